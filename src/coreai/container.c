#include "base/str.h"
#include "coreai/bytecode.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define VERSION         6 /* of the bytecode */
#define DIALECT_VERSION 2 /* of the encoding of aicode's attributes and types */

static const char *const section_name[AI_SECTION_COUNT] = {
    "strings",   "dialects",  "attributes and types", "offsets of attributes and types",
    "IR",        "resources", "resource offsets",     "dialect version",
    "properties"};

bool ai_bad(ai_bytecode *b, const ai_cursor *c, err_code code, const char *fmt, ...) {
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(b->e, code, "byte %zu: %s", ai_at(c), text);
}

bool ai_good(ai_bytecode *b, const ai_cursor *c, const char *what) {
    return !c->bad || ai_bad(b, c, ERR_FORMAT, "malformed %s", what);
}

/* Magic, version and the producer's name. */
static bool read_head(ai_bytecode *b, ai_cursor *c) {
    if (ai_left(c) < 4 || memcmp(c->p, "ML\xEFR", 4))
        return ai_bad(b, c, ERR_FORMAT, "no MLIR bytecode: it begins with \"ML\\xEFR\"");
    c->p += 4;
    uint64_t version = ai_varint(c);
    if (!ai_good(b, c, "version")) return false;
    if (version != VERSION)
        return ai_bad(b, c, ERR_UNSUPPORTED, "bytecode version %" PRIu64 ", %s than the known %d", version,
                      version > VERSION ? "newer" : "older", VERSION);
    const uint8_t *end = memchr(c->p, 0, ai_left(c));
    if (!end) return ai_bad(b, c, ERR_FORMAT, "the producer's name doesn't end");
    b->producer = arena_strn(b->a, (const char *)c->p, (size_t)(end - c->p));
    c->p = end + 1;
    return true;
}

static bool read_sections(ai_bytecode *b, ai_cursor *c) {
    while (c->p < c->end) {
        uint8_t id;
        ai_cursor section = ai_section(c, &id);
        if (!ai_good(b, c, "section")) return false;
        if (b->has[id]) return ai_bad(b, c, ERR_FORMAT, "two sections of %s", section_name[id]);
        b->has[id] = true;
        b->section[id] = section;
    }
    static const uint8_t needed[] = {AI_SECTION_STRING, AI_SECTION_DIALECT, AI_SECTION_ATTRIBUTE,
                                     AI_SECTION_ATTRIBUTE_OFFSET, AI_SECTION_IR};
    for (size_t i = 0; i < sizeof needed; i++)
        if (!b->has[needed[i]]) return ai_bad(b, c, ERR_FORMAT, "no section of %s", section_name[needed[i]]);
    return true;
}

/* Lengths, with the NUL at the end, in reverse order; then the bytes. */
static bool read_strings(ai_bytecode *b) {
    ai_cursor c = b->section[AI_SECTION_STRING];
    b->n_string = ai_count(&c);
    uint64_t *length = ARENA_ARRAY(b->a, uint64_t, b->n_string);
    b->string = ARENA_ARRAY(b->a, const char *, b->n_string);
    for (uint32_t i = b->n_string; i--;) length[i] = ai_varint(&c);
    for (uint32_t i = 0; i < b->n_string && ai_good(b, &c, "string"); i++) {
        ai_cursor s = ai_take(&c, length[i]);
        size_t n = ai_left(&s);
        if (c.bad) continue;
        if (!n || s.p[n - 1] || memchr(s.p, 0, n - 1) || utf8_valid((const char *)s.p, n - 1) != n - 1)
            return ai_bad(b, &s, ERR_FORMAT, "string %u is not UTF-8 with a NUL at its end", i);
        b->string[i] = (const char *)s.p;
    }
    return ai_good(b, &c, "string");
}

/* The name of a dialect and the version of its encoding. */
static bool read_dialect(ai_bytecode *b, ai_cursor *c) {
    bool versioned;
    uint64_t name = ai_flagged(c, &versioned);
    if (!ai_good(b, c, "dialect")) return false;
    if (name >= b->n_string) return ai_bad(b, c, ERR_FORMAT, "malformed dialect");
    if (strcmp(b->string[name], "aicode"))
        return ai_bad(b, c, ERR_UNSUPPORTED, "dialect %.60s, expected aicode alone", b->string[name]);
    if (!versioned) return ai_bad(b, c, ERR_FORMAT, "dialect aicode has no version");
    uint8_t id;
    ai_cursor section = ai_section(c, &id);
    uint64_t version = ai_varint(&section);
    if (!ai_good(b, c, "dialect") || !ai_good(b, &section, "dialect")) return false;
    if (id != AI_SECTION_DIALECT_VERSION)
        return ai_bad(b, c, ERR_FORMAT, "malformed version of dialect aicode");
    return version == DIALECT_VERSION ||
           ai_bad(b, c, ERR_UNSUPPORTED,
                  "encoding version %" PRIu64 " of dialect aicode, %s than the known %d", version,
                  version > DIALECT_VERSION ? "newer" : "older", DIALECT_VERSION);
}

static bool read_op_names(ai_bytecode *b, ai_cursor *c, uint32_t n_dialect) {
    uint32_t total = ai_count(c);
    b->op = ARENA_ARRAY(b->a, const char *, total);
    while (c->p < c->end) {
        ai_index(c, n_dialect);
        for (uint32_t n = ai_count(c); n && !c->bad; n--) {
            bool registered;
            uint64_t name = ai_flagged(c, &registered);
            if (name >= b->n_string || b->n_op >= total) ai_spoil(c);
            if (!c->bad) b->op[b->n_op++] = b->string[name];
        }
    }
    return ai_good(b, c, "list of ops");
}

static bool read_dialects(ai_bytecode *b) {
    ai_cursor c = b->section[AI_SECTION_DIALECT];
    uint32_t n = ai_count(&c);
    for (uint32_t i = 0; i < n; i++)
        if (!read_dialect(b, &c)) return false;
    return ai_good(b, &c, "list of dialects") && read_op_names(b, &c, n);
}

/* One resource: alignment, size, padding, bytes. */
static bool read_blob(ai_bytecode *b, ai_cursor *c, uint64_t bytes, uint8_t kind, const char *name) {
    ai_cursor entry = ai_take(c, bytes);
    if (!ai_good(b, c, "resource")) return false;
    ai_blob *blob = &b->blob[b->n_blob++];
    blob->name = name;
    if (kind) return true; /* a bool or a string: nothing refers to it */
    uint64_t alignment = ai_varint(&entry), size = ai_varint(&entry);
    ai_align(&entry, alignment);
    if (!ai_good(b, &entry, "resource")) return false;
    if (size != ai_left(&entry))
        return ai_bad(b, &entry, ERR_FORMAT, "resource %.60s of %" PRIu64 " bytes has room for %zu", name,
                      size, ai_left(&entry));
    blob->data = entry.p;
    blob->bytes = size;
    return true;
}

static bool read_resource_group(ai_bytecode *b, ai_cursor *at, ai_cursor *data, size_t *cap) {
    uint32_t n = ai_count(at);
    b->blob = arena_grow(b->a, b->blob, b->n_blob, cap, (size_t)b->n_blob + n + 1, sizeof *b->blob);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t name = ai_index(at, b->n_string);
        uint64_t bytes = ai_varint(at);
        uint8_t kind = ai_byte(at);
        if (!ai_good(b, at, "list of resources") || !read_blob(b, data, bytes, kind, b->string[name]))
            return false;
    }
    return true;
}

static bool read_resources(ai_bytecode *b) {
    if (b->has[AI_SECTION_RESOURCE] != b->has[AI_SECTION_RESOURCE_OFFSET])
        return err_set(b->e, ERR_FORMAT,
                       "a section of resources without one of their offsets, or the other way round");
    if (!b->has[AI_SECTION_RESOURCE]) return true;
    ai_cursor at = b->section[AI_SECTION_RESOURCE_OFFSET], data = b->section[AI_SECTION_RESOURCE];
    size_t cap = 0;
    if (ai_count(&at)) return ai_bad(b, &at, ERR_UNSUPPORTED, "external resources");
    while (at.p < at.end) {
        ai_varint(&at); /* the dialect */
        if (!ai_good(b, &at, "list of resources") || !read_resource_group(b, &at, &data, &cap)) return false;
    }
    return ai_good(b, &at, "list of resources");
}

static bool read_properties(ai_bytecode *b) {
    if (!b->has[AI_SECTION_PROPERTY]) return true;
    ai_cursor c = b->section[AI_SECTION_PROPERTY];
    b->n_property = ai_count(&c);
    b->property = ARENA_ARRAY(b->a, ai_property, b->n_property);
    for (uint32_t i = 0; i < b->n_property && !c.bad; i++) {
        ai_cursor p = ai_take(&c, ai_varint(&c));
        b->property[i].number = ARENA_ARRAY(b->a, uint64_t, ai_left(&p));
        while (p.p < p.end) b->property[i].number[b->property[i].n++] = ai_varint(&p);
        if (!ai_good(b, &p, "properties")) return false;
    }
    return ai_good(b, &c, "properties");
}

bool ai_read_container(ai_bytecode *b, size_t n) {
    ai_cursor c = {b->data, b->data, b->data + n, false, 0};
    return read_head(b, &c) && read_sections(b, &c) && read_strings(b) && read_dialects(b) &&
           read_resources(b) && read_properties(b);
}
