#include "structured/grammar.h"
#include "structured/json_rules.h"
#include "structured/mask.h"

grammar *grammar_json_object(const grammar_options *o, err *e) {
    net *n = net_new();
    json_rules j = {.n = n};
    return net_finish(n, with_options(n, o, json_object_rule(&j)), e);
}

grammar *grammar_share(grammar *g) {
    pthread_mutex_lock(&g->lock);
    g->owners++;
    pthread_mutex_unlock(&g->lock);
    return g;
}

void grammar_free(grammar *g) {
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    bool last = !--g->owners;
    pthread_mutex_unlock(&g->lock);
    if (!last) return;
    mask_cache_free(g->cache);
    pthread_mutex_destroy(&g->lock);
    arena_free(g->a);
    mem_free(g);
}

size_t grammar_bytes(const grammar *g) {
    return g->bytes;
}

grammar *grammar_from_text(const char *what, const void *text, size_t n, const grammar_options *o, err *e) {
    arena *a = arena_new();
    const json *schema = json_parse(a, what, text, n, e);
    grammar *g = schema ? grammar_from_schema(schema, o, e) : NULL;
    if (schema && !g) err_where(e, "%s", what);
    arena_free(a);
    return g;
}
