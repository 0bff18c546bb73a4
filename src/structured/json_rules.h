/* The rules of JSON without a schema, in a grammar under way. */
#ifndef STRUCTURED_JSON_RULES_H
#define STRUCTURED_JSON_RULES_H
#include "structured/lexical.h"
#include "structured/network.h"

/* What was made already, + 1. Zero-initialise but for n. */
typedef struct {
    net *n;
    uint32_t value, object, array; /* rules */
    uint32_t string, key, number, integer, word,
        comma; /* terminals; key: with its colon; word: true, false, null */
} json_rules;

uint32_t json_value(json_rules *j);
uint32_t json_object_rule(json_rules *j);
uint32_t json_array_rule(json_rules *j);
uint32_t json_string(json_rules *j);
uint32_t json_key(json_rules *j);
uint32_t json_number(json_rules *j);
uint32_t json_integer(json_rules *j);
uint32_t json_comma(json_rules *j);
/* A string whose text (between the quotes) is x, quotes and, for a key, the colon around it. */
const rx *json_quoted(arena *a, const rx *x);
const rx *json_keyed(arena *a, const rx *quoted);

/* Free text up to and including the first `end`. Free text to the end of everything that has no `without`
 * (NULL: all). */
uint32_t text_until(net *n, const char *end);
uint32_t text_to_end(net *n, const char *without);
/* Texts that end with the first `end` in them. */
void search_for(dfa *d, arena *a, const char *end);
/* What comes first by o (may be NULL), in front of rule; the root. */
uint32_t with_options(net *n, const grammar_options *o, uint32_t rule);
#endif
