#!/usr/bin/env python3
"""Grammars from JSON Schema against the package jsonschema: what is accepted and refused, byte by byte, and what comes of masks when
tokens are drawn at random."""
import datetime
import ipaddress
import json
import os
import subprocess
import sys
import uuid

DRIVER = os.environ["STRUCTURED"]
SOURCE = os.environ["MILLET_SOURCE"]
CASES = os.environ.get("MILLET_CASES", "../shared/cases")

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("skipped: no jsonschema (tools/setup test installs it)")
    sys.exit(77)

failures = 0


def fail(*what):
    global failures
    failures += 1
    print("FAILED:", *what)


def ask(lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run([DRIVER], input=text, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"driver: exit {run.returncode}: {run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def conformance(groups):
    """Every instance as Python writes it, tightly and with spaces."""
    lines, count = [], 0
    for g in groups:
        data = [t["data"] for t in g["tests"]]
        tight = [json.dumps(x, separators=(",", ":"), ensure_ascii=False) for x in data]
        loose = [json.dumps(x, ensure_ascii=False) for x in data]
        lines.append({"schema": g["schema"], "texts": tight + loose})
    for g, line, answer in zip(groups, lines, ask(lines)):
        if "error" in answer:
            fail(g["description"], answer["error"])
            continue
        check = Draft202012Validator(g["schema"])
        for i, (text, got) in enumerate(zip(line["texts"], answer["accepted"])):
            t = g["tests"][i % len(g["tests"])]
            if check.is_valid(t["data"]) != t["valid"]:
                fail("the file says", t, "of", g["description"])
            if got != (t["valid"] and t.get("written", True)):
                fail(g["description"], ":", text, "is", "accepted" if got else "refused")
            count += 1
    return count


FORMATS = {
    "date": datetime.date.fromisoformat,
    "time": lambda s: datetime.datetime.fromisoformat("2000-01-01T" + fraction(s)),
    "date-time": lambda s: datetime.datetime.fromisoformat(fraction(s)),
    "uuid": uuid.UUID,
    "ipv4": ipaddress.IPv4Address,
}


def fraction(text):
    """Python 3.11 reads fractions of a second up to six digits only."""
    head, dot, rest = text.partition(".")
    if not dot:
        return text
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return head + "." + (digits + "000000")[:6] + rest[len(digits):]


def has_format(name, text):
    try:
        FORMATS[name](text)
        return True
    except ValueError:
        return False


def formats():
    """Texts that are nearly dates and the like: accepted just where Python reads them."""
    texts = {
        "date": [f"{y}-{m:02}-{d:02}" for y in ("1900", "2000", "2023", "2024", "2100", "0001", "0000") for m in (0, 1, 2, 4, 12, 13) for d in (0, 1, 28, 29, 30, 31, 32)],
        "time": [f"{h}:{m}:{s}{z}" for h in ("00", "23", "24") for m in ("00", "59", "60") for s in ("00", "59", "59.25") for z in ("Z", "+00:00", "-23:59")],
        "date-time": ["2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00.123456789+05:30"],
        "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400", "123e4567-e89b-12d3-a456-42661417400g", "00000000-0000-0000-0000-000000000000"],
        "ipv4": [f"{a}.{b}.0.1" for a in (0, 9, 99, 199, 249, 255, 256, "01") for b in (1, 260)] + ["1.2.3", "1.2.3.4.5"],
    }
    lines = [{"schema": {"type": "string", "format": f}, "texts": [json.dumps(t) for t in ts]} for f, ts in texts.items()]
    for (name, ts), answer in zip(texts.items(), ask(lines)):
        for text, got in zip(ts, answer["accepted"]):
            if got != has_format(name, text):
                fail(name, text, "is", "accepted" if got else "refused")


def refusals():
    """Keywords that can't be kept are named with their place."""
    string = {"type": "string"}
    cases = [
        ({"not": {}}, "/not"),
        ({"type": "object", "properties": {"a": {"if": {}}}}, "/properties/a/if"),
        ({"$defs": {"x/y": {"uniqueItems": True}}, "items": {"$ref": "#/$defs/x~1y"}}, "/$defs/x~1y/uniqueItems"),
        ({"patternProperties": {"a": {}}}, "/patternProperties"),
        ({"contains": {}}, "/contains"),
        ({"minlength": 3}, "/minlength"),
        ({"multipleOf": 0.01}, "/multipleOf"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"type": "text"}, "/type"),
        ({"type": 1}, "/type"),
        ({"minLength": -1}, "/minLength"),
        ({"minLength": 1.5}, "/minLength"),
        ({"minimum": "1"}, "/minimum"),
        ({"type": "number", "minimum": 1e15}, "minimum: bounds are compared in 15 digits"),
        ({"type": "number", "minimum": 1e-20, "maximum": 1e-19}, "minimum: bounds are compared in 15 digits"),
        ({"type": "integer", "maximum": -(10**20)}, "maximum: bounds are compared in 15 digits"),
        ({"type": "integer", "minimum": 1.2, "maximum": 1.8}, "no document fits"),
        ({"type": "number", "minimum": 2, "exclusiveMaximum": 2}, "no document fits"),
        ({"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 6}, "no document fits"),
        ({"type": "integer", "exclusiveMinimum": 10**20, "exclusiveMaximum": 10**20 + 10**6}, "Minimum: bounds are compared in 15 digits"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum"),
        ({"enum": 1}, "/enum"),
        ({"required": "a"}, "/required"),
        ({"properties": []}, "/properties"),
        ({"properties": {"a": 1}}, "/properties"),
        ({"items": [{}]}, "/items"),
        ({"anyOf": []}, "/anyOf"),
        ({"allOf": {}}, "/allOf"),
        ({"$ref": "#/nowhere"}, "/$ref"),
        ({"$ref": "other.json"}, "/$ref"),
        ({"$ref": "#"}, "/$ref"),
        ({"allOf": [{"$ref": "#"}]}, "stands for itself"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "stands for itself"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "/oneOf"),
        ({"oneOf": [{"const": i} for i in range(201)]}, "/oneOf"),  # compared in pairs
        ({"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]}, "/oneOf"),
        (dict(string, format="phone"), "/format"),
        (dict(string, pattern="("), "/pattern"),
        (dict(string, pattern="a{2,1}"), "/pattern"),
        (dict(string, pattern="(?=a)"), "look-ahead"),
        (dict(string, pattern="\\bx"), "word boundary"),
        (dict(string, pattern="(a)\\1"), "back reference"),
        (dict(string, pattern="a(^b)"), "anchor"),
        (dict(string, pattern="\\p{L}"), "Unicode property"),
        (dict(string, pattern="a{1000000}"), "repeats more than"),
        (dict(string, pattern="(a{1,1000}){1,1000}"), "too large"),
        (dict(string, pattern="^(a|b)*a(a|b){20}$"), "/pattern: needs more than"),
        ({"type": "object", "minProperties": 2}, "/minProperties"),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}, "/maxProperties"),
        (False, "no document"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no document"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no document"),
        ({"type": "array", "items": False, "minItems": 1}, "no document"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no document"),
        ({"enum": []}, "no document"),
    ]
    for (schema, wanted), answer in zip(cases, ask([{"schema": s, "texts": []} for s, _ in cases])):
        if wanted not in answer.get("error", ""):
            fail(schema, "should be refused with", wanted, "and says", answer)


def documents(groups, tokenizer, n, steps):
    """Texts that were drawn validate."""
    lines = [{"schema": g["schema"], "tokenizer": tokenizer, "seed": i + 1, "n": n, "steps": steps} for i, g in enumerate(groups)]
    done = cut = 0
    for g, answer in zip(groups, ask(lines)):
        if "error" in answer:
            if g["description"] != "a huge minItems":
                fail(g["description"], answer["error"])
            continue
        check = Draft202012Validator(g["schema"])
        for text in answer["documents"]:
            if text is None:
                cut += 1
                continue
            try:
                value = json.loads(text)
            except ValueError as e:
                fail(g["description"], "no JSON:", text[:200], e)
                continue
            if not check.is_valid(value):
                fail(g["description"], "does not validate:", text[:500])
            name = g["schema"].get("format") if isinstance(g["schema"], dict) else None
            if name in FORMATS and not has_format(name, value):
                fail(name, "drew", value)
            done += 1
    if cut > done / 10:
        fail(cut, "of", cut + done, "texts did not end")
    return done


def tools(tokenizer, n):
    """Calls that were drawn, in both dialects, have the name of a tool and arguments of its schema."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
                  "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}, "required": ["city", "days"], "additionalProperties": False}
    defs = [{"name": "forecast", "parameters": parameters}, {"name": "now"}]
    lines = [{"tools": {"tools": defs, "xml": xml, "required": True}, "tokenizer": tokenizer, "seed": 5, "n": n, "steps": 400} for xml in (False, True)]
    check = Draft202012Validator(parameters)
    count = 0
    for xml, answer in zip((False, True), ask(lines)):
        if "error" in answer:
            fail("tools", answer["error"])
            continue
        for text in filter(None, answer["documents"]):
            for call in text.split("\n</tool_call>")[:-1]:
                body = call.lstrip("\n").removeprefix("<tool_call>\n")
                name, arguments = xml_call(body) if xml else json_call(body)
                count += 1
                if name not in ("forecast", "now") or (name == "now" and arguments) or (name == "forecast" and not check.is_valid(arguments)):
                    fail("a call of", name, "with", arguments)
    return count


def json_call(body):
    call = json.loads(body)
    return call["name"], call["arguments"]


def xml_call(body):
    head, _, rest = body.partition(">\n")
    arguments = {}
    for part in rest.removesuffix("</function>").split("\n</parameter>\n")[:-1]:
        key, _, value = part.partition(">\n")
        key = key.removeprefix("<parameter=")
        arguments[key] = value if key == "city" else json.loads(value)
    return head.removeprefix("<function="), arguments


def main():
    with open(os.path.join(SOURCE, "tests/data/schemas.json")) as f:
        groups = json.load(f)
    count = conformance(groups)
    formats()
    refusals()
    small, large = os.path.join(os.environ["DEMO"], "Tokenizer"), os.path.join(CASES, "tokenizer/qwen3_5")
    drawn = documents(groups, small, 4, 300)
    calls = tools(small, 20)
    if os.path.exists(large):
        drawn += documents(groups[::4], large, 2, 120)
        calls += tools(large, 5)
    print(f"{count} instances, {drawn} drawn documents, {calls} drawn calls, {failures} failures")
    return failures > 0


sys.exit(main())
