/* Between the public header and the modules. Every public function that may allocate runs in a guard on the
 * heap of its object: what is opened has one, so has each session, as a child of what it belongs to. */
#ifndef API_API_H
#define API_API_H
#include "base/err.h"
#include "base/heap.h"
#include "generate/lm.h"
#include "ir/type.h"
#include "millet.h"
#include "runtime/session.h"

struct millet_package {
    heap *h;
    rt_model *m;
    atomic_bool bound; /* a session shares a state with one of another package, which may outlast this */
};

struct millet_tokenizer {
    heap *h;
    tokenizer *t;
};

struct millet_lm {
    heap *h;
    lm *m;
    millet_package *package; /* one a model of m, which owns those */
    millet_tokenizer text;   /* t NULL: none */
};

struct millet_cancel {
    atomic_bool set;
};

static inline const atomic_bool *api_flag(const millet_cancel *c) {
    return c ? &c->set : NULL;
}

static inline rt_mode api_mode(millet_precision p) {
    return p == MILLET_STRICT ? RT_STRICT : RT_FAST;
}

/* Hands an error out: copies e to *out (MILLET_OK when none is set) and returns whether there was none. */
bool api_done(millet_error *out, const err *e);

/* ---- memory ---- */

/* What o asks for; it was read by api_struct_in(). NULL with e set: no memory. */
heap *api_heap(const millet_open_options *o, err *e);
/* Calls fn(args, e) with h as the heap. No memory is an error; *left (may be NULL): fn was left in the
 * middle. Returns whether e holds none. */
typedef void api_fn(void *args, err *e);
bool api_guard(heap *h, api_fn *fn, void *args, bool *left, err *e);
/* A heap for a session of what parent holds, and its options. NULL with e set. */
heap *api_session_heap(heap *parent, millet_session_options *to, const millet_session_options *options,
                       err *e);
/* The end of what was opened and is closed now: what a session left in the middle goes too, unless bound. */
void api_heap_end(heap *h, bool bound);
/* A copy for the caller, who may keep it when h is gone. NULL with e set. */
void *api_give(const heap *h, const void *data, size_t bytes, err *e);
void api_model_stats(millet_model_stats *stats, const heap *h, const rt_model *const *m, size_t n);

/* ---- tensors ---- */

/* DT_NONE and 0 for what the other side doesn't have. */
ir_dtype api_dtype_in(millet_dtype d);
millet_dtype api_dtype_out(ir_dtype d);

/* Whether an argument that is needed is there; NULL: ERR_USAGE, "no WHAT". */
bool api_given(const void *argument, const char *what, err *e);
/* Checks rank, sizes and byte count. */
bool api_tensor_in(rt_tensor *out, const millet_tensor *t, err *e);
void api_tensor_out(millet_tensor *out, const rt_tensor *t);

/* ---- structs that begin with their size ---- */

/* Callers built against an older header pass smaller ones, against a newer one larger. api_sized(): the size
 * is set. api_struct_in(): copies what both sides know; the rest is zero, and all is when from is NULL.
 * api_struct_out(): writes what both sides know, but the size; the caller's other members become zero. */
bool api_sized(const void *s, const char *name, err *e);
bool api_struct_in(void *to, size_t whole_size, const void *from, const char *name, err *e);
void api_struct_out(void *to, const void *from, size_t whole_size);
#endif
