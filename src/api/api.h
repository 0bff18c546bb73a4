/* Between the public header and the modules: opaque public types are the modules' own objects under another
 * name. */
#ifndef API_API_H
#define API_API_H
#include "base/err.h"
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

static inline rt_mode api_mode(millet_precision p) {
    return p == MILLET_STRICT ? RT_STRICT : RT_FAST;
}

/* Structs that begin with their size. Callers built against an older header pass smaller ones, against a
 * newer one larger. api_sized(): the size is set, at least to that of the first version. api_struct_in():
 * copies what both sides know; the rest is zero, and all is when from is NULL. */
bool api_sized(const void *s, size_t first_version, const char *name, err *e);
bool api_struct_in(void *to, size_t whole_size, const void *from, const char *name, err *e);
#endif
