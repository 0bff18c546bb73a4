"""Cases of schemas and instances in the form of the JSON Schema test suite: tests/data/schemas.json. What is valid is what
the package jsonschema says; what isn't written as millet writes (docs/structured.md) is marked "written": false.

    .venv/bin/python tests/oracle/structured.py > tests/data/schemas.json
"""
import json, sys
import jsonschema

groups = []
def group(description, schema, *instances, other=()):
    """other: valid instances that millet writes in another way, and so does not accept as they stand."""
    groups.append((description, schema, instances, other))

anything = [None, True, False, 0, -1, 12, 1.5, -0.25, 1e-7, "", "a", "true", [], [1, "x", None], {}, {"a": 1}, {"a": {"b": []}}]
group("everything", True, *anything)
group("an empty schema", {}, *anything)
group("nothing but annotations", {"title": "t", "description": "d", "default": 3, "examples": [1], "$comment": "c", "x-y": 1}, *anything)
for t in ["null", "boolean", "integer", "number", "string", "array", "object"]:
    group("type " + t, {"type": t}, *anything)
group("a list of types", {"type": ["string", "null", "integer"]}, *anything)
group("type object or array", {"type": ["object", "array"]}, *anything)
group("an integer written with a fraction", {"type": "integer"}, 1, 7, 1.5, other=[1.0, 1e3])

group("enum of scalars", {"enum": ["red", "green", 3, -1.5, None, True]}, "red", "gree", "greenish", 3, 3.5, 31, -1.5, None, True, False, "", [], {})
group("enum beside type", {"type": "string", "enum": ["a", 1, "b", None]}, "a", "b", "c", 1, None)
group("enum beside bounds", {"enum": [1, 5, 10, 15, "x"], "minimum": 4, "maximum": 10}, 1, 5, 10, 15, "x")
group("enum beside lengths", {"enum": ["", "a", "ab", "abc", 7], "minLength": 1, "maxLength": 2}, "", "a", "ab", "abc", 7)
group("enum beside a pattern", {"enum": ["a1", "b", "c22"], "pattern": "[0-9]"}, "a1", "b", "c22")
group("enum of arrays and objects", {"enum": [[1, 2], {"a": [], "b": "x"}, []]}, [1, 2], [1], [], [2, 1], {"a": [], "b": "x"}, {"a": []}, {"b": "x"}, other=[{"b": "x", "a": []}])
group("enum of texts that need escapes", {"enum": ["a\"b", "c\\d", "e\nf", "\u0001", "g/h", "é😀"]}, "a\"b", "c\\d", "e\nf", "\u0001", "g/h", "é😀", "ab", "\n")
group("const", {"const": "x"}, "x", "y", "", 1, None)
group("const number", {"const": 12}, 12, 1, 2, 120, "12", other=[12.0])
group("const object", {"const": {"k": [1, {"z": None}]}}, {"k": [1, {"z": None}]}, {"k": [1]}, {}, {"k": [1, {"z": None}], "l": 1})
group("const and enum agree", {"const": 2, "enum": [1, 2, 3]}, 1, 2, 3)
group("const false is not 0", {"const": False}, False, 0, None)
group("const 0 is not false", {"const": 0}, False, 0, None, 1)

for lo, hi in [(0, 9), (0, 100), (3, 17), (1, 1), (-5, 5), (-20, -7), (99, 101), (-1, 0), (10, 1000000), (7, 7777), (-128, 127)]:
    edge = sorted({lo - 1, lo, lo + 1, (lo + hi) // 2, hi - 1, hi, hi + 1, lo * 10, hi * 10, -lo, -hi, 0})
    group(f"integer from {lo} to {hi}", {"type": "integer", "minimum": lo, "maximum": hi}, *edge, lo + 0.5, "1")
    group(f"number from {lo} to {hi}", {"type": "number", "minimum": lo, "maximum": hi}, *edge, lo + 0.5, lo - 0.5, hi + 0.25, hi - 0.25, hi + 0.001, lo - 0.001, None)
    group(f"integer between {lo} and {hi}, exclusive", {"type": "integer", "exclusiveMinimum": lo - 1, "exclusiveMaximum": hi + 1}, *edge)
group("minimum 0", {"type": "integer", "minimum": 0}, -1, 0, 1, 10**18, -10)
group("minimum only, of numbers", {"type": "number", "minimum": 1.1}, 1.1, 1.2, 1.09, 1, 2, 0.999, 1234.5, -3)
group("maximum only", {"type": "integer", "maximum": -3}, -3, -2, -4, 0, 3, -30, -2000000)
group("maximum only, of numbers", {"type": "number", "maximum": 3.0}, 3, 2.9, 3.1, 0, -100.25, 30, 0.003)
group("exclusive bounds of numbers", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0, 1, 0.5, 0.001, 0.999, -0.5, 1.001)
group("small fractions", {"type": "number", "minimum": 0.001, "maximum": 0.002}, 0.001, 0.002, 0.0015, 0.0009, 0.0021, 0, 1, 0.0011)
group("fractions around 0", {"type": "number", "minimum": -0.25, "maximum": 0.75}, -0.25, -0.26, -0.2, 0, 0.5, 0.75, 0.76, 1, -1)
group("both kinds of minimum", {"type": "number", "minimum": 3, "exclusiveMinimum": 3, "maximum": 5}, 3, 3.1, 5, 5.1, 2)
group("bounds do not concern other types", {"minimum": 3}, 2, 3, "x", None, [1], {"a": 0})
group("large bounds", {"type": "integer", "minimum": 1000000007, "maximum": 900719925474099}, 1000000006, 1000000007, 900719925474099, 900719925474100, 5)
group("multiples of 5", {"type": "integer", "multipleOf": 5}, 0, 5, 10, -15, 7, 12345, 1, -1)
group("multiples of 12 with bounds", {"type": "integer", "multipleOf": 12, "minimum": 10, "maximum": 150}, 0, 12, 24, 144, 156, 150, 13, -12)
group("multiples of 4 and 6", {"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]}, 12, 24, 4, 6, 0, 36, 18)
group("multipleOf of numbers", {"type": "number", "multipleOf": 3}, 3, 4, 9, -6, 1.5, 0)
group("multipleOf 1.0", {"type": "number", "multipleOf": 1.0}, 3, 1.5, 0, -7)

for lo, hi in [(0, 0), (1, 1), (0, 3), (2, 4), (3, None), (5, 5), (1, 100)]:
    s = {"type": "string", "minLength": lo}
    if hi is not None: s["maxLength"] = hi
    group(f"strings of {lo} to {hi} characters", s, *["x" * k for k in (0, 1, 2, 3, 4, 5, 6, 99, 100, 101)], "é" * 3, "😀" * 4, "a\n\"\\", 5)
group("a huge maxLength", {"type": "string", "maxLength": 1000000000}, "", "x" * 500, 1)
group("a pattern that is anchored", {"type": "string", "pattern": "^[a-z]+$"}, "abc", "", "aBc", "a1", "a b", "é", 5)
group("a pattern that is searched for", {"type": "string", "pattern": "b+c"}, "bc", "abbcd", "b", "cb", "xx bbc", "bbb")
group("a pattern anchored at its beginning", {"type": "string", "pattern": "^id-"}, "id-", "id-7é\n", "xid-", "id")
group("a pattern anchored at its end", {"type": "string", "pattern": "\\.txt$"}, "a.txt", ".txt", "atxt", "a.txt.", "a.TXT")
group("alternatives with their own anchors", {"type": "string", "pattern": "^a|b$"}, "a", "ax", "b", "xb", "xa", "bx", "")
group("counted repeats", {"type": "string", "pattern": "^(?:ab){2,3}c?$"}, "abab", "ababab", "ab", "abababab", "ababc", "abc", "abac")
group("exactly", {"type": "string", "pattern": "^[0-9]{4}-[A-F]{2}$"}, "1234-AB", "123-AB", "12345-AB", "1234-AG", "1234-ABC")
group("lazy repeats", {"type": "string", "pattern": "^a+?b*?$"}, "a", "ab", "aabb", "b", "")
group("classes", {"type": "string", "pattern": "^[^a-c\\d_]\\w\\s[-+.]$"}, "xa -", "x_ +", "a_ +", "x- +", "1a .", "xa\t.", "xa  ")
group("escapes in patterns", {"type": "string", "pattern": "^\\$\\(\\x41\\u00e9\\t\\/\\.\\)$"}, "$(Aé\t/.)", "$(Aé\t/x)", "$(aé\t/.)")
group("quotes and backslashes", {"type": "string", "pattern": "^\"[^\"\\\\]*\"\\\\$"}, "\"a\"\\", "\"\"\\", "\"a\"", "\"\\\"\\")
group("a dot is any character but line ends", {"type": "string", "pattern": "^.{3}$"}, "abc", "a😀é", "ab", "a\nb", "abcd", "\"\\\t")
group("empty pattern", {"type": "string", "pattern": ""}, "", "x", "é\n")
group("groups and alternatives", {"type": "string", "pattern": "^(red|green|(dark|light) blue)$"}, "red", "dark blue", "blue", "light blue", "light  blue", "redgreen")
group("a group", {"type": "string", "pattern": "^([0-9]{4})$"}, "1999", "199", "19999")
group("characters beyond", {"type": "string", "pattern": "^[à-ÿ😀-😏]+$"}, "é", "😀", "é😁", "a", "😐", "")
group("pattern and lengths", {"type": "string", "pattern": "^[a-z]*$", "minLength": 2, "maxLength": 4}, "a", "ab", "abcd", "abcde", "AB", "éé")
group("two patterns", {"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "z$"}]}, "az", "a", "z", "abcz", "za", "abz!")
group("a pattern does not concern numbers", {"pattern": "^x$"}, "x", "y", 7, None, [])
group("not a digit, a word, a space", {"type": "string", "pattern": "^\\D\\W\\S$"}, "a-b", "1-b", "aab", "a- ", "é-é", "x\ta")
group("date", {"type": "string", "format": "date"}, "2024-02-29", "1999-12-31", "2000-01-01", "1900-02-28", "2400-02-29", "0001-01-01")
group("date-time", {"type": "string", "format": "date-time"}, "2024-02-29T23:59:59Z", "1999-12-31T00:00:00.5+01:00", "2000-01-01T12:30:00-05:30")
group("time", {"type": "string", "format": "time"}, "23:59:59Z", "00:00:00.123456+01:00")
group("uuid", {"type": "string", "format": "uuid"}, "123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-00000000ABCD")
group("ipv4", {"type": "string", "format": "ipv4"}, "0.0.0.0", "255.255.255.255", "10.20.30.40")
group("email", {"type": "string", "format": "email"}, "a@b.example", "first.last+tag@mail.example.org")

group("arrays of integers", {"type": "array", "items": {"type": "integer"}}, [], [1], [1, 2, 3], [1, "2"], ["x"], [1.5], [[1]], 1)
for lo, hi in [(0, 0), (1, 1), (0, 2), (2, 3), (2, None), (1, 5)]:
    s = {"type": "array", "items": {"type": "boolean"}, "minItems": lo}
    if hi is not None: s["maxItems"] = hi
    group(f"{lo} to {hi} items", s, *[[True] * k for k in range(7)], [1] * max(lo, 1))
group("a huge maxItems", {"type": "array", "maxItems": 1000000000, "items": {"const": 1}}, [], [1], [1] * 40, [2])
group("a huge minItems", {"type": "array", "minItems": 100000, "items": {"const": 1}}, [], [1] * 10)
group("lengths without items", {"type": "array", "minItems": 1, "maxItems": 2}, [], [1], ["a", {}], [1, 2, 3])
group("prefixItems", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, [], ["a"], ["a", 1], [1], ["a", "b"], ["a", 1, None, {}])
group("prefixItems and items", {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}}, [], ["a"], ["a", None, None], ["a", 1], [None])
group("a tuple", {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "items": False, "minItems": 2}, [1, 2], [1], [1, 2, 3], [0.5, -2], ["1", 2])
group("prefixItems with limits", {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}], "minItems": 1, "maxItems": 2}, [], [1], [1, 2], [1, 2, 3], [2])
group("a prefix that can't be met", {"type": "array", "prefixItems": [{"const": 1}, False]}, [], [1], [1, 2])
group("items false", {"type": "array", "items": False}, [], [1])
group("arrays in arrays", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1}}, [], [[1]], [[1], [2, 3]], [[]], [1], [[1], []])
group("items of arrays only", {"items": {"type": "integer"}}, [1], ["a"], "a", {"a": "b"}, 1)

person = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}, "required": ["name", "age"], "additionalProperties": False}
group("a strict object", person, {"name": "x", "age": 3}, {"name": "x"}, {"age": 3}, {}, {"name": "x", "age": -1}, {"name": 1, "age": 1}, {"name": "x", "age": 3, "z": 1}, [], other=[{"age": 3, "name": "x"}])
optional = dict(person, required=[])
group("optional properties", optional, {}, {"name": "x"}, {"age": 1}, {"name": "x", "age": 3}, {"nam": 1}, {"name": "x", "a": 1})
group("a required one between optional ones", {"type": "object", "properties": {k: {"type": "integer"} for k in "abcde"}, "required": ["c"], "additionalProperties": False},
      {"c": 1}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, {"a": 1, "b": 2}, {"b": 1, "c": 1, "e": 1}, {}, {"c": "x"}, {"c": 1, "f": 1}, other=[{"c": 1, "a": 1}])
group("open objects", {"type": "object", "properties": {"a": {"type": "integer"}}}, {}, {"a": 1}, {"a": "x"}, {"b": "x"}, {"a": 1, "b": None, "c": [{}]}, {"aa": "x"}, {"": 0}, other=[{"b": 1, "a": 1}])
group("a map", {"type": "object", "additionalProperties": {"type": "integer"}}, {}, {"x": 1}, {"x": 1, "y": 2}, {"x": "1"}, {"x": 1, "y": None})
group("properties and a map", {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": {"type": "boolean"}},
      {"id": "x"}, {"id": "x", "a": True}, {"id": "x", "a": 1}, {"a": True}, {"id": True}, {"id": "x", "ident": False, "i": True}, {"id": "x", "\"q\"": True})
group("required without properties", {"type": "object", "required": ["a", "b"]}, {"a": 1, "b": 2}, {"a": 1}, {}, {"a": None, "b": [], "c": 1}, other=[{"b": 1, "a": 1}])
group("required, of no named type", {"required": ["a"]}, {"a": 1}, {}, {"b": 1}, "x", 1, [])
group("a property that can't be", {"type": "object", "properties": {"a": False, "b": {}}}, {}, {"b": 1}, {"a": 1}, {"c": 1})
group("names that need escapes", {"type": "object", "properties": {"a\"b": {"const": 1}, "c\\d": {"const": 2}, "é\n": {"const": 3}}, "additionalProperties": False},
      {"a\"b": 1}, {"c\\d": 2}, {"é\n": 3}, {"a\"b": 1, "c\\d": 2, "é\n": 3}, {"ab": 1}, {"a\"b": 2})
group("names that begin alike", {"type": "object", "properties": {"a": {"const": 1}, "ab": {"const": 2}, "abc": {"const": 3}}, "additionalProperties": {"const": 0}},
      {"a": 1, "ab": 2, "abc": 3}, {"ab": 2}, {"abcd": 0}, {"a": 0}, {"ab": 1}, {"b": 0}, {"": 0}, {"abcd": 1}, {"a": 1, "abb": 0})
group("at least one property", {"type": "object", "minProperties": 1}, {}, {"a": 1}, {"a": 1, "b": 2})
group("at least one of the optional ones", dict(optional, minProperties=1), {}, {"name": "x"}, {"age": 1}, {"name": "x", "age": 3})
group("at most two properties", {"type": "object", "maxProperties": 2}, {}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3})
group("at most two, one of them named", {"type": "object", "properties": {"a": {}}, "maxProperties": 2}, {}, {"a": 1}, {"a": 1, "b": 2}, {"b": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}, {"b": 1, "c": 2, "d": 3})
group("no property", {"type": "object", "maxProperties": 0}, {}, {"a": 1})
group("objects in objects", {"type": "object", "properties": {"p": person, "q": {"type": "object", "properties": {"r": {"type": "array", "items": person}}}}, "required": ["p"]},
      {"p": {"name": "x", "age": 1}}, {"p": {}}, {"q": {}}, {"p": {"name": "x", "age": 1}, "q": {"r": [{"name": "y", "age": 2}]}}, {"p": {"name": "x", "age": 1}, "q": {"r": [{}]}}, {"p": {"name": "x", "age": 1}, "q": {"r": {}}})

group("a reference", {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "minimum": 1}}}, 1, 0, "1")
group("a reference with siblings", {"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {"type": "integer", "minimum": 1}}}, 1, 5, 6, 0)
group("definitions", {"type": "array", "items": {"$ref": "#/definitions/x"}, "definitions": {"x": {"enum": ["a", "b"]}}}, ["a", "b"], ["c"], [])
group("a pointer with escapes", {"$ref": "#/$defs/a~1b~0c%25", "$defs": {"a/b~c%": {"const": 1}}}, 1, 2)
group("a reference to a property", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}, {"a": 1, "b": 2}, {"b": "x"})
group("a reference into a list", {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#/prefixItems/0"}]}, [1, 2], [1, "x"])
group("a list by recursion", {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": False}}},
      {"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}, {"v": 1}, {"v": 1, "next": {}}, {"v": 1, "next": {"v": "x", "next": None}})
group("a tree", {"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name"], "additionalProperties": False},
      {"name": "r"}, {"name": "r", "children": []}, {"name": "r", "children": [{"name": "a", "children": [{"name": "b"}]}]}, {"name": "r", "children": [{}]}, {"children": []}, {"name": "r", "children": [{"name": 1}]})
group("two that call each other", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}, "b": {"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}}}},
      [], [{}], [{"x": []}], [{"x": [{"y": []}]}], [[]], [{"x": {}}], {})
group("an expression", {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [{"type": "number"}, {"type": "object", "properties": {"op": {"enum": ["+", "*"]}, "args": {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 2}}, "required": ["op", "args"], "additionalProperties": False}]}}},
      1, {"op": "+", "args": [1, 2]}, {"op": "+", "args": [1, {"op": "*", "args": [2, 3, 4]}]}, {"op": "-", "args": [1, 2]}, {"op": "+", "args": [1]}, "x", {"op": "+", "args": [1, {}]})

group("anyOf of types", {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}, 1, "ab", "abc", None, 1.5)
group("anyOf that overlaps", {"anyOf": [{"minimum": 10}, {"multipleOf": 3}], "type": "integer"}, 3, 10, 11, 12, 4, 0, -3)
group("anyOf beside properties", {"type": "object", "properties": {"k": {"type": "string"}}, "anyOf": [{"required": ["k"]}, {"required": ["l"]}]}, {"k": "x"}, {"l": 1}, {}, {"k": 1}, {"k": "x", "l": 2})
group("anyOf of objects that begin alike", {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 1}}, "required": ["a", "b"], "additionalProperties": False},
                                                        {"type": "object", "properties": {"a": {"const": 1}, "c": {"const": 2}}, "required": ["a", "c"], "additionalProperties": False}]},
      {"a": 1, "b": 1}, {"a": 1, "c": 2}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1, "c": 2})
group("anyOf in anyOf", {"anyOf": [{"anyOf": [{"const": 1}, {"const": "a"}]}, {"anyOf": [{"const": 2}, {"type": "null"}]}]}, 1, "a", 2, None, 3, "b")
group("two anyOf at once", {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"minimum": 5}, {"maxLength": 1}]}]}, 5, 4, "a", "ab", None)
group("anyOf with true", {"anyOf": [True, {"type": "integer"}]}, 1, "x", None)
group("anyOf with false", {"anyOf": [False, {"type": "integer"}]}, 1, "x")
group("oneOf of types", {"oneOf": [{"type": "integer"}, {"type": "null"}, {"type": "array"}]}, 1, None, [], "x", {})
group("oneOf of numbers apart", {"oneOf": [{"type": "number", "maximum": 0}, {"type": "number", "exclusiveMinimum": 10}]}, 0, -5, 10, 11, 5, "x")
group("oneOf of constants", {"oneOf": [{"const": 1}, {"const": 2}, {"enum": ["a", "b"]}]}, 1, 2, "a", "c", 3)
shape = {"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"], "additionalProperties": False},
                   {"type": "object", "properties": {"kind": {"const": "rect"}, "w": {"type": "number"}, "h": {"type": "number"}}, "required": ["kind", "w", "h"], "additionalProperties": False}]}
group("oneOf told apart by a property", shape, {"kind": "circle", "r": 1}, {"kind": "rect", "w": 1, "h": 2}, {"kind": "rect", "r": 1}, {"kind": "x"}, {}, {"kind": "circle", "r": 1, "w": 1})
group("a list of such", {"type": "array", "items": shape}, [], [{"kind": "circle", "r": 1}, {"kind": "rect", "w": 1, "h": 2}], [{"kind": "circle"}])
group("oneOf of strings by pattern", {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}, "a", "bx", "c", "ab")
group("oneOf of lengths", {"oneOf": [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 3}]}, "", "a", "ab", "abc")
group("oneOf inside of anyOf", {"anyOf": [{"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, {"type": "null"}]}, 1, True, None, "x")
group("allOf of objects", {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]},
      {"a": 1, "b": "x"}, {"a": 1}, {"b": "x"}, {"a": "x", "b": "x"}, {"a": 1, "b": "x", "c": None})
group("allOf of one property", {"type": "object", "allOf": [{"properties": {"n": {"type": "integer", "minimum": 3}}}, {"properties": {"n": {"maximum": 5}}}], "required": ["n"]}, {"n": 3}, {"n": 5}, {"n": 2}, {"n": 6}, {})
group("allOf with additional ones", {"allOf": [{"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, {"properties": {"b": {"minimum": 3}}}]},
      {"a": "x", "b": 3}, {"b": 2}, {"b": "x"}, {"a": None}, {"c": 1}, {"c": "x"})
group("allOf of types", {"allOf": [{"type": ["integer", "string", "null"]}, {"type": ["number", "null"]}]}, 1, None, "x", 1.5)
group("allOf of prefixes", {"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}]}, {"items": {"minimum": 3}}]}, [3], [2], ["x"], [3, 4], [3, 1], [3, "x"])
group("allOf of references", {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, "b": {"properties": {"y": {"type": "integer"}}, "required": ["y"]}}},
      {"x": 1, "y": 2}, {"x": 1}, {"y": 1}, {"x": 1, "y": "z"})

weather = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}, "unit": {"enum": ["C", "F"]}, "days": {"type": "array", "items": {"type": "object", "properties": {"date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, "high": {"type": "number", "minimum": -90, "maximum": 60}, "rain": {"type": "boolean"}}, "required": ["date", "high", "rain"], "additionalProperties": False}, "minItems": 1, "maxItems": 7}}, "required": ["city", "unit", "days"], "additionalProperties": False}
day = {"date": "2024-05-01", "high": 21.5, "rain": False}
group("a forecast", weather, {"city": "Oslo", "unit": "C", "days": [day]}, {"city": "", "unit": "C", "days": [day]}, {"city": "Oslo", "unit": "K", "days": [day]}, {"city": "Oslo", "unit": "C", "days": []},
      {"city": "Oslo", "unit": "C", "days": [day] * 7}, {"city": "Oslo", "unit": "C", "days": [day] * 8}, {"city": "Oslo", "unit": "F", "days": [dict(day, high=60.5)]}, {"city": "Oslo", "unit": "F", "days": [dict(day, high=-90)]}, {"city": "Oslo", "unit": "F", "days": [dict(day, date="2024-5-1")]})

out = []
for description, schema, instances, other in groups:
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    tests = [{"data": x, "valid": check.is_valid(x)} for x in instances]
    for x in other:
        assert check.is_valid(x), (description, x)
        tests.append({"data": x, "valid": True, "written": False})
    out.append({"description": description, "schema": schema, "tests": tests})
print("[\n" + ",\n".join(json.dumps(g, ensure_ascii=True, separators=(",", ":")) for g in out) + "\n]")
print(len(out), "groups,", sum(len(g["tests"]) for g in out), "instances", file=sys.stderr)
