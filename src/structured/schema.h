/* JSON Schema (draft 2020-12, and what earlier drafts have in common with it) to rules.
 *
 * What a value has to meet is a goal: several schemas at once, which is what $ref, allOf and a property that
 * two schemas speak of come to. A goal is spread (schema.c) into facts, one for each keyword; alternatives
 * (anyOf, oneOf) are goals that have one branch more and leave that keyword out. Equal goals share their
 * rule, so that schemas which refer to themselves become rules that call themselves. */
#ifndef STRUCTURED_SCHEMA_H
#define STRUCTURED_SCHEMA_H
#include "base/map.h"
#include "structured/json_rules.h"

enum {
    PART_ANY_DONE = 1, /* anyOf: a branch is among the goal's parts */
    PART_ONE_DONE = 2, /* oneOf */
    PART_SPREAD = 4    /* so is what it refers to and includes */
};

typedef struct {
    const json *schema;
    unsigned done;
} part;

typedef struct {
    part *part;
    size_t n, cap;
} goal;

typedef struct compiler {
    net *n;
    arena *a;
    json_rules j;
    const json *root;
    map *rules; /* goal -> rule */
    size_t n_rules, n_parts;
    unsigned depth;
    err *e;
} compiler;

enum {
    T_NULL = 1,
    T_BOOLEAN = 2,
    T_INTEGER = 4, /* numbers that are written without point and exponent */
    T_FRACTION = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_NUMBER = T_INTEGER | T_FRACTION,
    T_ALL = 127
};

typedef struct {
    const json *v; /* NULL: none */
    bool exclusive;
} bound;

typedef struct {
    const json **v;
    size_t n, cap;
} json_list;

/* What a goal says, keyword by keyword; alternatives left out. */
typedef struct {
    goal parts; /* spread: no references, no allOf */
    unsigned types;
    bool listed; /* enum or const: only these */
    json_list value;
    bound low, high;
    json_list multiple;
    uint64_t min_length, max_length; /* UINT64_MAX: no limit; so below */
    json_list pattern, format;
    uint64_t min_items, max_items, min_members, max_members;
    json_list required;
    bool plain[T_ALL + 1]; /* by type: nothing but the type is said of it */
    const json *choice;    /* the first schema whose anyOf or oneOf is still open; NULL */
    bool choice_is_one;
} facts;

/* ---- schema.c ---- */

/* Adds a schema once. One that comes again without a branch is to have one. */
bool goal_add(compiler *c, goal *g, part p);
/* The goal of a branch of f's choice. */
bool goal_branch(compiler *c, const facts *f, const json *branch, goal *g);
/* With what its parts refer to and include. */
bool goal_spread(compiler *c, const goal *g, goal *all);
/* The rule of a goal; UINT32_MAX after an error. */
uint32_t compile_goal(compiler *c, const goal *g);
/* Where a schema is: its JSON pointer, in the compiler's arena. */
const char *place_of(const compiler *c, const json *schema);
/* Errors that name a keyword of a schema and its place; false. */
bool bad_keyword(compiler *c, const json *schema, const char *keyword, err_code code, const char *why);
compiler compiler_new(net *n, const json *root, err *e);

/* What members have to meet: the one of a name; NULL: any that no "properties" speaks of. */
bool member_goal(compiler *c, const facts *f, const char *name, size_t len, goal *g);

/* ---- schema_facts.c ---- */

bool facts_read(compiler *c, const goal *g, facts *f);

/* ---- schema_number.c, schema_string.c, schema_array.c, schema_object.c: what the goal says of one type ----
 */

/* Adds edges from start to end. */
bool add_numbers(compiler *c, const facts *f, uint32_t start, uint32_t end);
bool add_strings(compiler *c, const facts *f, uint32_t start, uint32_t end);
bool add_arrays(compiler *c, const facts *f, uint32_t start, uint32_t end);
bool add_objects(compiler *c, const facts *f, uint32_t start, uint32_t end);
/* The strings of f as they are written, without quotes, with `behind` after each. */
bool strings_dfa(compiler *c, const facts *f, writing w, const char *behind, dfa *d);
bool strings_have_form(const facts *f); /* a pattern or a format */
/* Puts texts around what d accepts; it has no way on by the first byte of behind from where it ends. */
bool dfa_enclose(compiler *c, const char *before, dfa *d, const char *behind);

/* ---- schema_values.c ---- */

/* Whether f allows v, a value that is listed; alternatives left out. *ok. */
bool facts_allow(compiler *c, const facts *f, const json *v, bool *ok);
bool add_listed(compiler *c, const facts *f, uint32_t start, uint32_t end);
const rx *written_value(arena *a, const json *v, bool plain);    /* plain: strings without quotes */
bool listed_values(compiler *c, const facts *f, json_list *out); /* those that the other keywords allow */
bool json_equal(const json *x, const json *y);
unsigned json_type(const json *v); /* T_INTEGER also of 1.0 */
int compare_numbers(const json *x, const json *y);

/* ---- schema_apart.c ---- */

/* Whether no value can meet both; *apart false: it can, or who knows. */
bool goals_apart(compiler *c, const goal *x, const goal *y, unsigned depth, bool *apart);
#endif
