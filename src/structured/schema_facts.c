#include "structured/schema.h"
#include <math.h>
#include <string.h>

typedef struct {
    compiler *c;
    facts *f;
    const json *s; /* the schema under way */
} reading;

static bool bad(reading *r, const json *v, const char *why) {
    return bad_keyword(r->c, r->s, v->key, ERR_INVALID, why);
}

static void list_add(arena *a, json_list *l, const json *v) {
    l->v = arena_grow(a, l->v, l->n, &l->cap, l->n + 1, sizeof *l->v);
    l->v[l->n++] = v;
}

/* ---- one reader a kind of keyword ---- */

static bool read_type(reading *r, const json *v) {
    static const struct {
        const char *name;
        unsigned type;
    } all[] = {{"null", T_NULL},     {"boolean", T_BOOLEAN}, {"integer", T_INTEGER}, {"number", T_NUMBER},
               {"string", T_STRING}, {"array", T_ARRAY},     {"object", T_OBJECT}};
    unsigned types = 0;
    for (const json *x = v->kind == JSON_ARRAY ? v->child : v; x; x = x == v ? NULL : x->next) {
        size_t i = 0;
        if (x->kind != JSON_STRING) return bad(r, v, "expected the name of a type, or a list of them");
        while (i < sizeof all / sizeof *all && !json_is(x, all[i].name)) i++;
        if (i == sizeof all / sizeof *all) return bad(r, v, "no such type");
        types |= all[i].type;
    }
    r->f->types &= types;
    return true;
}

static bool read_values(reading *r, const json *v, bool list) {
    facts *f = r->f;
    json_list both = {0};
    if (list && v->kind != JSON_ARRAY) return bad(r, v, "expected a list");
    for (const json *x = list ? v->child : v; x; x = list ? x->next : NULL) {
        bool in = !f->listed;
        for (size_t i = 0; !in && i < f->value.n; i++) in = json_equal(x, f->value.v[i]);
        if (in) list_add(r->c->a, &both, x);
    }
    f->listed = true;
    f->value = both;
    return true;
}

static bool read_enum(reading *r, const json *v) {
    return read_values(r, v, true);
}

static bool read_const(reading *r, const json *v) {
    return read_values(r, v, false);
}

/* sign 1: the larger bound counts (a minimum). */
static bool read_bound(reading *r, const json *v, bound *b, int sign, bool exclusive) {
    if (v->kind == JSON_BOOL && exclusive)
        return bad(r, v, "expected a number (the true or false of draft 4 is not read)");
    if ((v->kind != JSON_INT && v->kind != JSON_REAL) || !isfinite(v->d))
        return bad(r, v, "expected a number");
    int order = b->v ? sign * compare_numbers(v, b->v) : 1;
    if (order > 0) *b = (bound){v, exclusive};
    if (!order) b->exclusive |= exclusive;
    return true;
}

static bool read_minimum(reading *r, const json *v) {
    return read_bound(r, v, &r->f->low, 1, false);
}

static bool read_exclusive_minimum(reading *r, const json *v) {
    return read_bound(r, v, &r->f->low, 1, true);
}

static bool read_maximum(reading *r, const json *v) {
    return read_bound(r, v, &r->f->high, -1, false);
}

static bool read_exclusive_maximum(reading *r, const json *v) {
    return read_bound(r, v, &r->f->high, -1, true);
}

static bool read_multiple(reading *r, const json *v) {
    if ((v->kind != JSON_INT && v->kind != JSON_REAL) || v->d <= 0)
        return bad(r, v, "expected a number above 0");
    if (v->d != floor(v->d) || v->d > 10000)
        return bad_keyword(r->c, r->s, v->key, ERR_UNSUPPORTED, "only whole numbers up to 10000");
    list_add(r->c->a, &r->f->multiple, v);
    return true;
}

/* A count: whole, from 0; 2.0 is one. */
static bool read_count(reading *r, const json *v, uint64_t *out, bool least) {
    if ((v->kind != JSON_INT && v->kind != JSON_REAL) || !(v->d >= 0) || v->d != floor(v->d))
        return bad(r, v, "expected a whole number from 0");
    uint64_t n = v->d < 4e9 ? (uint64_t)v->d : (uint64_t)4000000000u;
    if (least ? n > *out : n < *out) *out = n;
    return true;
}

#define COUNT_KEYWORD(field, least)                                                                          \
    static bool read_##field(reading *r, const json *v) {                                                    \
        return read_count(r, v, &r->f->field, least);                                                        \
    }
COUNT_KEYWORD(min_length, true)
COUNT_KEYWORD(max_length, false)
COUNT_KEYWORD(min_items, true)
COUNT_KEYWORD(max_items, false)
COUNT_KEYWORD(min_members, true)
COUNT_KEYWORD(max_members, false)

static bool read_pattern(reading *r, const json *v) {
    if (v->kind != JSON_STRING) return bad(r, v, "expected a regular expression");
    list_add(r->c->a, &r->f->pattern, v);
    return true;
}

static bool read_format(reading *r, const json *v) {
    if (v->kind != JSON_STRING) return bad(r, v, "expected a name");
    list_add(r->c->a, &r->f->format, v);
    return true;
}

static bool read_required(reading *r, const json *v) {
    if (v->kind != JSON_ARRAY) return bad(r, v, "expected a list of names");
    JSON_EACH(x, v) {
        if (x->kind != JSON_STRING) return bad(r, v, "expected a list of names");
        list_add(r->c->a, &r->f->required, x);
    }
    return true;
}

static bool is_schema(const json *v) {
    return v->kind == JSON_OBJECT || v->kind == JSON_BOOL;
}

static bool check_schema(reading *r, const json *v) {
    return is_schema(v) || bad(r, v, "expected a schema");
}

static bool check_schemas(reading *r, const json *v) {
    if (v->kind != JSON_ARRAY || !v->child) return bad(r, v, "expected a list of schemas");
    JSON_EACH(x, v) {
        if (!is_schema(x)) return bad(r, v, "expected a list of schemas");
    }
    return true;
}

static bool check_members(reading *r, const json *v) {
    if (v->kind != JSON_OBJECT) return bad(r, v, "expected an object of schemas");
    JSON_EACH(x, v) {
        if (!is_schema(x)) return bad(r, v, "expected an object of schemas");
    }
    return true;
}

static bool check_items(reading *r, const json *v) {
    if (v->kind == JSON_ARRAY)
        return bad_keyword(r->c, r->s, v->key, ERR_UNSUPPORTED, "a list of schemas is called prefixItems");
    return check_schema(r, v);
}

static bool check_unique(reading *r, const json *v) {
    if (v->kind != JSON_BOOL) return bad(r, v, "expected true or false");
    return !v->i ||
           bad_keyword(r->c, r->s, v->key, ERR_UNSUPPORTED, "what was written can't be looked up again");
}

static bool skip(reading *r, const json *v) {
    (void)r, (void)v;
    return true;
}

/* ---- all keywords ---- */

static const struct {
    const char *name;
    bool (*read)(reading *r, const json *v);
    unsigned of; /* types of which it says something */
} keywords[] = {
    {"type", read_type, 0},
    {"enum", read_enum, 0},
    {"const", read_const, 0},
    {"minimum", read_minimum, T_NUMBER},
    {"maximum", read_maximum, T_NUMBER},
    {"exclusiveMinimum", read_exclusive_minimum, T_NUMBER},
    {"exclusiveMaximum", read_exclusive_maximum, T_NUMBER},
    {"multipleOf", read_multiple, T_NUMBER},
    {"minLength", read_min_length, T_STRING},
    {"maxLength", read_max_length, T_STRING},
    {"pattern", read_pattern, T_STRING},
    {"format", read_format, T_STRING},
    {"minItems", read_min_items, T_ARRAY},
    {"maxItems", read_max_items, T_ARRAY},
    {"items", check_items, T_ARRAY},
    {"prefixItems", check_schemas, T_ARRAY},
    {"uniqueItems", check_unique, 0},
    {"minProperties", read_min_members, T_OBJECT},
    {"maxProperties", read_max_members, T_OBJECT},
    {"properties", check_members, T_OBJECT},
    {"additionalProperties", check_schema, T_OBJECT},
    {"required", read_required, T_OBJECT},
    {"anyOf", check_schemas, 0},
    {"oneOf", check_schemas, 0},
    /* read where goals are spread */
    {"allOf", skip, 0},
    {"$ref", skip, 0},
    /* places, and what says nothing of values */
    {"$defs", skip, 0},
    {"definitions", skip, 0},
    {"$schema", skip, 0},
    {"$id", skip, 0},
    {"$anchor", skip, 0},
    {"$comment", skip, 0},
    {"title", skip, 0},
    {"description", skip, 0},
    {"default", skip, 0},
    {"examples", skip, 0},
    {"example", skip, 0},
    {"deprecated", skip, 0},
    {"readOnly", skip, 0},
    {"writeOnly", skip, 0},
    {"contentEncoding", skip, 0},
    {"contentMediaType", skip, 0},
};

static bool read_keyword(reading *r, const json *v) {
    size_t n = sizeof keywords / sizeof *keywords, i = 0;
    while (i < n && !json_named(v, keywords[i].name)) i++;
    if (i == n) {
        bool extension = !strncmp(v->key, "x-", 2);
        return extension || bad_keyword(r->c, r->s, v->key, ERR_UNSUPPORTED, "keyword not supported");
    }
    for (unsigned t = 1; t <= T_ALL; t <<= 1)
        if (keywords[i].of & t) r->f->plain[t] = false;
    return keywords[i].read(r, v);
}

bool facts_read(compiler *c, const goal *g, facts *f) {
    *f = (facts){.parts = *g, .types = T_ALL};
    f->max_length = f->max_items = f->max_members = UINT64_MAX;
    for (unsigned t = 1; t <= T_ALL; t <<= 1) f->plain[t] = true;
    reading r = {c, f, NULL};
    for (size_t i = 0; i < g->n; i++) {
        const part *p = &g->part[i];
        r.s = p->schema;
        if (p->schema->kind == JSON_BOOL) {
            if (!p->schema->i) f->types = 0;
            continue;
        }
        JSON_EACH(v, p->schema) {
            if (!read_keyword(&r, v)) return false;
        }
        const json *any = json_get(p->schema, "anyOf"), *one = json_get(p->schema, "oneOf");
        if (f->choice) continue;
        if (any && !(p->done & PART_ANY_DONE)) f->choice = p->schema;
        if (!f->choice && one && !(p->done & PART_ONE_DONE)) f->choice = p->schema, f->choice_is_one = true;
    }
    return true;
}
