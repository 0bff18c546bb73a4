#include "structured/grammar.h"

grammar *grammar_from_schema(const json *schema, const grammar_options *o, err *e) {
    (void)schema, (void)o;
    err_set(e, ERR_UNSUPPORTED, "schemas are not read yet");
    return NULL;
}

grammar *grammar_tools(const tools_options *o, err *e) {
    (void)o;
    err_set(e, ERR_UNSUPPORTED, "calls of tools can't be constrained yet");
    return NULL;
}
