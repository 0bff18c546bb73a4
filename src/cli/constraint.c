#include "cli/constraint.h"
#include "cli/input.h"

grammar *cli_grammar(const cli_args *a, const grammar_options *o, err *e) {
    if (cli_given(a, "json-schema")) {
        const char *path = cli_text(a, "json-schema");
        str text = {0};
        grammar *g = cli_read_text(&text, path, e)
                         ? grammar_from_text(cli_input_name(path), str_get(&text), text.len, o, e)
                         : NULL;
        str_free(&text);
        return g;
    }
    return cli_flag(a, "json-object") ? grammar_json_object(o, e) : NULL;
}

matcher *cli_constraint(const cli_args *a, const lm *m, err *e) {
    grammar *g = cli_grammar(a, NULL, e);
    const vocabulary *tokens = g ? lm_vocabulary(m, e) : NULL;
    matcher *c = tokens ? matcher_new(g, tokens, e) : NULL;
    grammar_free(g);
    return c;
}

bool cli_forms(const cli_args *a, talk_options *o, err *e) {
    o->form = cli_grammar(a, NULL, e);
    o->form_behind = o->form ? cli_grammar(a, &(grammar_options){.behind = "</think>"}, e) : NULL;
    return !e->code;
}
