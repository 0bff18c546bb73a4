/* --json-object and --json-schema of commands that generate. */
#ifndef CLI_CONSTRAINT_H
#define CLI_CONSTRAINT_H
#include "chat/talk.h"
#include "cli/options.h"

/* The grammar that the options ask for; NULL without an error when they ask for none. o: as
 * grammar_from_schema(). */
grammar *cli_grammar(const cli_args *a, const grammar_options *o, err *e);
/* The same for replies of a conversation: *o borrows what the two return, grammar_free() them. */
bool cli_forms(const cli_args *a, talk_options *o, err *e);
/* A matcher at its beginning for m's tokens; NULL without an error when they ask for none. */
matcher *cli_constraint(const cli_args *a, const lm *m, err *e);
#endif
