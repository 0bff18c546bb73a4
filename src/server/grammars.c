#include "server/grammars.h"
#include "base/sha256.h"
#include <pthread.h>
#include <string.h>

enum { KEPT = 16 };

typedef struct {
    char key[SHA256_HEX];
    grammar *g;
    uint64_t used;
} kept;

struct grammars {
    pthread_mutex_t lock;
    kept list[KEPT];
    uint64_t clock;
};

grammars *grammars_new(void) {
    grammars *g = mem_alloc(sizeof *g);
    *g = (grammars){0};
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void grammars_free(grammars *g) {
    if (!g) return;
    for (size_t i = 0; i < KEPT; i++)
        if (g->list[i].g) grammar_free(g->list[i].g);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

static grammar *find(grammars *g, const char *key) {
    for (size_t i = 0; i < KEPT; i++) {
        kept *k = &g->list[i];
        if (!k->g || strcmp(k->key, key)) continue;
        k->used = ++g->clock;
        return grammar_share(k->g);
    }
    return NULL;
}

/* In place of the one that was used longest ago. */
static void keep(grammars *g, const char *key, grammar *made) {
    kept *to = &g->list[0];
    for (size_t i = 1; i < KEPT; i++)
        if (g->list[i].used < to->used) to = &g->list[i];
    if (to->g) grammar_free(to->g);
    *to = (kept){.g = grammar_share(made), .used = ++g->clock};
    memcpy(to->key, key, sizeof to->key);
}

typedef struct {
    grammars_make *make;
    const void *ctx;
    err *e;
    grammar *made;
} making;

static void make_it(void *ctx) {
    making *k = ctx;
    k->made = k->make(k->ctx, k->e);
}

grammar *grammars_get(grammars *g, const char *key, size_t n, grammars_make *make, const void *ctx, err *e) {
    if (!g) return make(ctx, e);
    char hex[SHA256_HEX];
    sha256 h;
    sha256_init(&h);
    sha256_update(&h, key, n);
    sha256_final(&h, hex);
    pthread_mutex_lock(&g->lock);
    grammar *found = find(g, hex);
    pthread_mutex_unlock(&g->lock);
    if (found) return found;
    making k = {make, ctx, e, NULL};
    if (!mem_guard(NULL, make_it, &k, NULL))
        err_set(e, ERR_MEMORY, "no memory for the grammar"); /* not the request's */
    grammar *made = k.made;
    if (!made) return NULL;
    pthread_mutex_lock(&g->lock);
    keep(g, hex, made);
    pthread_mutex_unlock(&g->lock);
    return made;
}
