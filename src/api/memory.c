#include "api/api.h"
#include <string.h>

_Static_assert((int)MILLET_LOG_DUMP == (int)HEAP_LOG_DUMP && (int)MILLET_LOG_INFO == (int)HEAP_LOG_INFO,
               "millet_log_level lists the levels of base/heap.h");

void millet_free(void *p) {
    mem_free(p);
}

heap *api_heap(const millet_open_options *o, err *e) {
    millet_allocator a;
    heap_hooks hooks = {.log = o->log, .log_ctx = o->log_ctx};
    if (!api_struct_in(&a, sizeof a, o->allocator, "millet_allocator", e)) return NULL;
    if (!a.alloc != !a.free) {
        err_set(e, ERR_USAGE, "millet_allocator: alloc and free go together");
        return NULL;
    }
    hooks.alloc = a.alloc;
    hooks.free = a.free;
    hooks.ctx = a.ctx;
    heap *h = heap_new(NULL, &hooks);
    if (!h) err_set(e, ERR_MEMORY, "out of memory");
    return h;
}

void api_heap_end(heap *h, bool bound) {
    if (bound)
        heap_leave(h);
    else
        heap_drop(h);
}

typedef struct {
    api_fn *fn;
    void *args;
    err *e;
} guarded;

static void enter(void *ctx) {
    const guarded *g = ctx;
    g->fn(g->args, g->e);
}

bool api_guard(heap *h, api_fn *fn, void *args, bool *left, err *e) {
    guarded g = {fn, args, e};
    size_t wanted;
    if (mem_guard(h, enter, &g, &wanted)) return !e->code;
    if (left) *left = true;
    *e = (err){0}; /* what was said on the way there matters less */
    return err_set(e, ERR_MEMORY, "out of memory (%zu bytes asked for)", wanted);
}

heap *api_session_heap(heap *parent, millet_session_options *to, const millet_session_options *options,
                       err *e) {
    if (!api_struct_in(to, sizeof *to, options, "millet_session_options", e)) return NULL;
    if (to->precision != MILLET_FAST && to->precision != MILLET_STRICT) {
        err_set(e, ERR_USAGE, "precision %d: expected MILLET_FAST or MILLET_STRICT", (int)to->precision);
        return NULL;
    }
    heap *h = heap_new(parent, NULL);
    if (!h) err_set(e, ERR_MEMORY, "out of memory");
    return h;
}

typedef struct {
    const void *data;
    size_t bytes;
    void *copy;
} gift;

static void copy(void *args, err *e) {
    gift *g = args;
    (void)e;
    g->copy = mem_alloc(g->bytes);
    if (g->bytes) memcpy(g->copy, g->data, g->bytes);
}

/* In a heap of its own, which goes with it. */
void *api_give(const heap *h, const void *data, size_t bytes, err *e) {
    gift g = {data, bytes, NULL};
    heap *own = heap_new(NULL, heap_hooks_of(h));
    if (!own)
        err_set(e, ERR_MEMORY, "out of memory");
    else if (api_guard(own, copy, &g, NULL, e))
        heap_leave(own);
    else
        heap_drop(own);
    return g.copy;
}

void api_model_stats(millet_model_stats *stats, const heap *h, const rt_model *const *m, size_t n) {
    millet_model_stats whole = {.memory = heap_bytes(h), .memory_peak = heap_peak(h)};
    for (size_t i = 0; i < n; i++) {
        size_t plans;
        double seconds;
        rt_model_figures(m[i], &plans, &seconds);
        whole.plans += plans;
        whole.plan_seconds += seconds;
    }
    api_struct_out(stats, &whole, sizeof whole);
}
