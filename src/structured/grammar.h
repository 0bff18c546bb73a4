/* Grammars: what a generated text may be, byte by byte. A JSON document that a JSON Schema describes, or a
 * reply of several parts: free text, reasoning, calls of tools.
 *
 *     grammar *g = grammar_from_schema(schema, NULL, &e);          // or grammar_json_object(),
 * grammar_tools() ... matcher *m = matcher_new(g, vocabulary, &e);                 // structured/matcher.h
 *     generate_options o = {..., .constraint = m};                 // generate/generator.h
 *
 * What is accepted always validates. Documents are written in one way (docs/structured.md): members in the
 * order of "properties", one optional space behind ":" and ",", no other white space. A keyword that can't be
 * kept is refused by its name and place.
 *
 * A grammar never changes; any number of threads may use one. What they find out about it (masks) is kept in
 * it, up to a bound. */
#ifndef STRUCTURED_GRAMMAR_H
#define STRUCTURED_GRAMMAR_H
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct grammar grammar;

typedef struct {
    /* Free text comes first, up to and including this ("</think>"), and then any line breaks up to two. NULL:
     * none. It is part of what the matcher is fed: for prompts that end inside of the reasoning. */
    const char *behind;
} grammar_options;

/* Any JSON object; the root of any schema. o may be NULL. NULL on error: ERR_UNSUPPORTED names the keyword
 * and its JSON pointer ("/properties/a/not"), ERR_INVALID what is no schema or allows nothing, ERR_LIMIT what
 * is too large. The schema is not needed any more once this returns. */
grammar *grammar_json_object(const grammar_options *o, err *e);
grammar *grammar_from_schema(const json *schema, const grammar_options *o, err *e);
/* The same from the schema's text; what names it in errors. */
grammar *grammar_from_text(const char *what, const void *text, size_t n, const grammar_options *o, err *e);
/* Refers to one more owner; grammar_free() of the last one frees it. */
grammar *grammar_share(grammar *g);
void grammar_free(grammar *g);

/* ---- calls of tools ---- */

typedef struct {
    const char *name;
    const json *parameters; /* a schema of type object; NULL: no parameters */
    bool loose;             /* parameters are any object, the schema is not looked at */
} grammar_tool;

typedef enum {
    TOOLS_JSON, /* <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call> */
    TOOLS_XML   /* <tool_call>\n<function=f>\n<parameter=k>\nvalue\n</parameter>\n</function>\n</tool_call>:
                   values of   type string as they are, all others as JSON */
} tools_dialect;

typedef enum {
    TOOLS_AUTO,    /* free text, in which any number of well-formed calls of these tools may stand */
    TOOLS_REQUIRED /* nothing but calls, at least one. A named function: give only that tool */
} tools_choice;

typedef struct {
    const grammar_tool *tool; /* n_tool > 0 */
    size_t n_tool;
    tools_dialect dialect;
    tools_choice choice;
    bool one_call;      /* at most one: parallel_tool_calls false, or a named function */
    grammar_options at; /* behind: as above */
} tools_options;

/* Calls are parted by a line break. */
grammar *grammar_tools(const tools_options *o, err *e);

/* Bytes that it takes, without the masks that are kept. */
size_t grammar_bytes(const grammar *g);
#endif
