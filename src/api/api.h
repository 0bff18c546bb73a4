/* Between the public header and the modules. */
#ifndef API_API_H
#define API_API_H
#include "base/err.h"
#include "generate/lm.h"
#include "ir/type.h"
#include "millet.h"
#include "runtime/session.h"

/* Hands an error out: copies e to *out (MILLET_OK when none is set) and returns whether there was none. */
bool api_done(millet_error *out, const err *e);

/* DT_NONE and 0 for what the other side doesn't have. */
ir_dtype api_dtype_in(millet_dtype d);
millet_dtype api_dtype_out(ir_dtype d);

/* Checks rank, sizes and byte count. */
bool api_tensor_in(rt_tensor *out, const millet_tensor *t, err *e);
void api_tensor_out(millet_tensor *out, const rt_tensor *t);

struct millet_package {
    rt_model *m;
};

struct millet_cancel {
    atomic_bool set;
};

static inline const atomic_bool *api_flag(const millet_cancel *c) {
    return c ? &c->set : NULL;
}

const lm *api_lm(const millet_lm *m);

/* What a session is opened with; zero members where options is NULL. */
bool api_session_options(millet_session_options *to, const millet_session_options *options, err *e);

static inline rt_mode api_mode(millet_precision p) {
    return p == MILLET_STRICT ? RT_STRICT : RT_FAST;
}

/* Structs that begin with their size. Callers built against an older header pass smaller ones, against a
 * newer one larger. api_sized(): the size is set. api_struct_in(): copies what both sides know; the rest is
 * zero, and all is when from is NULL. api_struct_out(): writes what both sides know, but the size; the
 * caller's other members become zero. */
bool api_sized(const void *s, const char *name, err *e);
bool api_struct_in(void *to, size_t whole_size, const void *from, const char *name, err *e);
void api_struct_out(void *to, const void *from, size_t whole_size);
#endif
