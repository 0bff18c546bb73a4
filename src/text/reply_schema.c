/* Types of a tool's parameters, as its JSON Schema tells them. */
#include "text/chat_forms.h"
#include "text/reply_call.h"
#include <string.h>

#define REF_LIMIT 16 /* schemas inside of one another that are looked at */

static unsigned type_named(const json *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", TYPE_STRING},   {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER},
                 {"boolean", TYPE_BOOLEAN}, {"null", TYPE_NULL},     {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is(name, types[i].name)) return types[i].type;
    return 0;
}

static unsigned type_of(const json *v) {
    static const unsigned types[] = {
        [JSON_NULL] = TYPE_NULL,    [JSON_BOOL] = TYPE_BOOLEAN,  [JSON_INT] = TYPE_NUMBER,
        [JSON_REAL] = TYPE_NUMBER,  [JSON_STRING] = TYPE_STRING, [JSON_ARRAY] = TYPE_ARRAY,
        [JSON_OBJECT] = TYPE_OBJECT};
    return types[v->kind];
}

/* The schema that "#/a/b" names; keys with ~ or % in them aren't looked for. */
static const json *follow(const json *root, const char *ref) {
    if (ref[0] != '#') return NULL;
    const json *at = root;
    for (const char *p = ref + 1; at && *p == '/';) {
        const char *end = strchr(++p, '/');
        size_t n = end ? (size_t)(end - p) : strlen(p);
        const json *found = NULL;
        JSON_EACH(c, at) {
            if (at->kind == JSON_OBJECT && c->key_len == n && !memcmp(c->key, p, n)) found = c;
        }
        at = found;
        p += n;
    }
    return at;
}

static unsigned types_of(const json *schema, const json *root, int depth) {
    if (!schema || schema->kind != JSON_OBJECT || depth > REF_LIMIT) return 0;
    const json *type = json_get(schema, "type"), *constant = json_get(schema, "const");
    unsigned types = 0;
    if (type && type->kind == JSON_STRING) return type_named(type);
    if (type && type->kind == JSON_ARRAY) {
        JSON_EACH(t, type) types |= type_named(t);
        return types;
    }
    if (constant) return type_of(constant);
    JSON_EACH(v, json_get_kind(schema, "enum", JSON_ARRAY)) types |= type_of(v);
    static const char *const choices[] = {"anyOf", "oneOf", "allOf"};
    for (size_t i = 0; i < 3; i++)
        JSON_EACH(s, json_get_kind(schema, choices[i], JSON_ARRAY)) types |= types_of(s, root, depth + 1);
    const char *ref = json_str(schema, "$ref", NULL);
    if (ref) types |= types_of(follow(root, ref), root, depth + 1);
    if (json_get(schema, "properties")) types |= TYPE_OBJECT;
    if (json_get(schema, "items")) types |= TYPE_ARRAY;
    return types;
}

static bool same(const json *name, const str *wanted) {
    return name && name->len == wanted->len && !memcmp(name->s, str_get(wanted), name->len);
}

unsigned tool_parameter_types(const json *tools, const str *tool, const str *parameter) {
    JSON_EACH(t, tools) {
        const json *f = chat_call(t), *parameters = json_get(f, "parameters");
        if (!same(json_get_kind(f, "name", JSON_STRING), tool)) continue;
        JSON_EACH(p, json_get_kind(parameters, "properties", JSON_OBJECT)) {
            json key = {.len = p->key_len, .s = p->key};
            unsigned types = same(&key, parameter) ? types_of(p, parameters, 0) : 0;
            if (types) return types;
        }
    }
    return TYPE_STRING;
}

static bool is_word(const char *s, size_t n, const char *word) {
    return n == strlen(word) && !memcmp(s, word, n);
}

/* As Python writes what JSON calls true, false and null. */
static const char *constant(const char *s, size_t n, unsigned types) {
    if (types & TYPE_NULL && (is_word(s, n, "None") || is_word(s, n, "null"))) return "null";
    if (!(types & TYPE_BOOLEAN)) return NULL;
    if (is_word(s, n, "True") || is_word(s, n, "true")) return "true";
    return is_word(s, n, "False") || is_word(s, n, "false") ? "false" : NULL;
}

void typed_value(str *out, const char *s, size_t n, unsigned types) {
    const char *word = constant(s, n, types);
    if (word) {
        str_adds(out, word);
        return;
    }
    arena *a = arena_new();
    err e = {0};
    const json *v = types & ~(unsigned)TYPE_STRING ? json_parse(a, "", s, n, &e) : NULL;
    if (v && v->kind != JSON_STRING && type_of(v) & types)
        str_add(out, s, n); /* as it is written: numbers keep their digits */
    else if (v && v->kind == JSON_STRING && !(types & TYPE_STRING))
        str_add(out, s, n);
    else
        str_json_string(out, s, n);
    arena_free(a);
}
