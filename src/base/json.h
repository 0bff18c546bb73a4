/* JSON documents: read over the yajl library into a flat tree in an arena. Strict: UTF-8, no duplicate keys,
 * no trailing text, at most JSON_MAX_DEPTH levels. Strings may hold NUL (use len). */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define JSON_MAX_DEPTH 200

typedef enum { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json {
    json_kind kind;
    uint32_t len;    /* string: bytes; array, object: children */
    const char *s;   /* string: the bytes, NUL-terminated */
    int64_t i;       /* JSON_INT, JSON_BOOL (0, 1) */
    double d;        /* JSON_INT and JSON_REAL */
    const char *key; /* in an object: this member's key, NUL-terminated */
    uint32_t key_len;
    const struct json *child, *next; /* first child; next sibling */
} json;

/* what names the text in errors (a file path). The result lives in a and does not point into text. */
const json *json_parse(arena *a, const char *what, const void *text, size_t n, err *e);
/* Where byte `at` (from 0, up to n) of a text is, for messages: "line 3 column 7 (byte 41)", with columns in
 * bytes; "column 7 (byte 6)" where the text has one line. Errors of json_parse() say it so. */
enum { JSON_PLACE = 80 };
void json_place(char out[JSON_PLACE], const void *text, size_t n, size_t at);
/* Maps, parses and unmaps a file. */
const json *json_parse_file(arena *a, const char *path, err *e);
/* The same; the root must be an object. */
const json *json_object_file(arena *a, const char *path, err *e);
/* Member of an object; NULL when absent, or when o is NULL or not an object. */
const json *json_get(const json *o, const char *key);
/* As json_get, and NULL too when the member is null or of another kind. */
const json *json_get_kind(const json *o, const char *key, json_kind kind);
/* Whether v (may be NULL) is this string, or the member of this name. Lengths count: "user" is not "user\0x".
 */
bool json_is(const json *v, const char *text);
bool json_named(const json *member, const char *key);
/* With a default when the member is absent or null; a member of another kind is also the default, and so is a
 * string with a NUL in it, which no C string holds: callers that must refuse it check with json_get(). */
int64_t json_int(const json *o, const char *key, int64_t fallback);
double json_double(const json *o, const char *key, double fallback);
bool json_bool(const json *o, const char *key, bool fallback);
const char *json_str(const json *o, const char *key, const char *fallback);
const char *json_kind_name(json_kind k);

/* Writes v, json_write.c. Canonical: on one line without spaces, members sorted by key, so that equal
 * documents give equal bytes (json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=False) in
 * Python). Pretty: for people, one member a line; what fits stays on one line. Both read back as v. */
void json_canonical(str *out, const json *v);
void json_pretty(str *out, const json *v);

#define JSON_EACH(c, parent) for (const json *c = (parent) ? (parent)->child : NULL; c; c = c->next)
#endif
