#include "structured/json_rules.h"
#include <string.h>

const rx *json_quoted(arena *a, const rx *x) {
    const rx *quote = rx_bytes(a, '"', '"');
    return rx_cat(a, quote, rx_cat(a, x, quote));
}

const rx *json_keyed(arena *a, const rx *quoted) {
    return rx_cat(a, quoted, rx_cat(a, rx_text(a, ":"), rx_optional(a, rx_text(a, " "))));
}

static uint32_t terminal(net *n, uint32_t *made, const rx *x) {
    if (!*made) *made = 1 + net_terminal_rx(n, x, "JSON", NULL);
    return *made - 1;
}

static const rx *any_string(arena *a) {
    return json_quoted(a, rx_repeat(a, lex_any_char(a), 0, RX_FOREVER));
}

uint32_t json_string(json_rules *j) {
    return terminal(j->n, &j->string, j->string ? NULL : any_string(net_arena(j->n)));
}

uint32_t json_key(json_rules *j) {
    arena *a = net_arena(j->n);
    return terminal(j->n, &j->key, j->key ? NULL : json_keyed(a, any_string(a)));
}

uint32_t json_number(json_rules *j) {
    return terminal(j->n, &j->number, j->number ? NULL : lex_number(net_arena(j->n)));
}

uint32_t json_integer(json_rules *j) {
    return terminal(j->n, &j->integer, j->integer ? NULL : lex_integer(net_arena(j->n)));
}

uint32_t json_comma(json_rules *j) {
    arena *a = net_arena(j->n);
    return terminal(j->n, &j->comma,
                    j->comma ? NULL : rx_cat(a, rx_text(a, ","), rx_optional(a, rx_text(a, " "))));
}

static uint32_t json_word(json_rules *j) {
    arena *a = net_arena(j->n);
    const rx *x = rx_alt(a, rx_text(a, "true"), rx_alt(a, rx_text(a, "false"), rx_text(a, "null")));
    return terminal(j->n, &j->word, x);
}

uint32_t json_array_rule(json_rules *j) {
    net *n = j->n;
    if (j->array) return j->array - 1;
    uint32_t rule = net_rule_new(n, 0, NO_LIMIT), start = net_start(n, rule);
    j->array = rule + 1;
    uint32_t first = net_node_new(n, rule), item = net_node_new(n, rule), behind = net_node_new(n, rule),
             end = net_node_new(n, rule), value = json_value(j);
    net_take_text(n, start, "[", first);
    net_take_text(n, first, "]", end);
    net_call(n, first, value, behind);
    net_call(n, item, value, behind);
    net_take(n, behind, json_comma(j), item);
    net_take_text(n, behind, "]", end);
    net_final(n, end);
    return rule;
}

uint32_t json_object_rule(json_rules *j) {
    net *n = j->n;
    if (j->object) return j->object - 1;
    uint32_t rule = net_rule_new(n, 0, NO_LIMIT), start = net_start(n, rule);
    j->object = rule + 1;
    uint32_t first = net_node_new(n, rule), key = net_node_new(n, rule), value = net_node_new(n, rule),
             behind = net_node_new(n, rule), end = net_node_new(n, rule);
    net_take_text(n, start, "{", first);
    net_take_text(n, first, "}", end);
    net_take(n, first, json_key(j), value);
    net_take(n, key, json_key(j), value);
    net_call(n, value, json_value(j), behind);
    net_take(n, behind, json_comma(j), key);
    net_take_text(n, behind, "}", end);
    net_final(n, end);
    return rule;
}

uint32_t json_value(json_rules *j) {
    net *n = j->n;
    if (j->value) return j->value - 1;
    uint32_t rule = net_rule_new(n, 0, NO_LIMIT), start = net_start(n, rule), end = net_node_new(n, rule);
    j->value = rule + 1;
    net_take(n, start, json_string(j), end);
    net_take(n, start, json_number(j), end);
    net_take(n, start, json_word(j), end);
    net_call(n, start, json_object_rule(j), end);
    net_call(n, start, json_array_rule(j), end);
    net_final(n, end);
    return rule;
}

/* ---- free text ---- */

/* Knuth, Morris and Pratt: state k + 1 has seen the first k bytes. */
void search_for(dfa *d, arena *a, const char *text) {
    size_t len = strlen(text);
    d->n = (uint32_t)len + 2;
    d->next = arena_array(a, d->n, sizeof *d->next);
    d->accept = ARENA_ARRAY(a, bool, d->n);
    for (size_t k = 0, fall = 0; k < len; k++) { /* fall: where the text so far, but its first byte, leads */
        for (unsigned b = 0; b < 256; b++) d->next[k + 1][b] = k ? d->next[fall + 1][b] : 1;
        d->next[k + 1][(uint8_t)text[k]] = (uint32_t)k + 2;
        if (k) fall = d->next[fall + 1][(uint8_t)text[k]] - 1;
    }
    d->accept[d->n - 1] = true;
}

uint32_t text_until(net *n, const char *end) {
    dfa d;
    search_for(&d, net_arena(n), end);
    return net_terminal_dfa(n, &d, &(terminal_options){.markup = true});
}

uint32_t text_to_end(net *n, const char *without) {
    dfa d;
    search_for(&d, net_arena(n), without ? without : "");
    d.accept[d.n - 1] = false;
    for (unsigned b = 0; !without && b < 256; b++) d.next[1][b] = 1;
    for (uint32_t s = 1; s < d.n; s++) { /* without the state that has seen it all */
        if (without && s + 1 == d.n) break;
        d.accept[s] = true;
        for (unsigned b = 0; without && b < 256; b++)
            if (d.next[s][b] + 1 == d.n) d.next[s][b] = 0;
    }
    if (without) d.n--;
    return net_terminal_dfa(n, &d, &(terminal_options){.markup = true, .may_end = true});
}

uint32_t with_options(net *n, const grammar_options *o, uint32_t rule) {
    if (!o || !o->behind || !*o->behind) return rule;
    arena *a = net_arena(n);
    uint32_t root = net_rule_new(n, 0, NO_LIMIT), start = net_start(n, root), breaks = net_node_new(n, root),
             ready = net_node_new(n, root), end = net_node_new(n, root);
    const rx *line = rx_text(a, "\n");
    net_take(n, start, text_until(n, o->behind), breaks);
    net_free_edge(n, breaks, ready);
    net_take(n, breaks,
             net_terminal_rx(n, rx_repeat(a, line, 1, 2), "line breaks", &(terminal_options){.markup = true}),
             ready);
    net_call(n, ready, rule, end);
    net_final(n, end);
    return root;
}
