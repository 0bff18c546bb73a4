#include "api/api.h"
#include <inttypes.h>
#include <string.h>

_Static_assert((int)MILLET_OK == (int)ERR_NONE && (int)MILLET_IO == (int)ERR_IO &&
                   (int)MILLET_CANCELLED == (int)ERR_CANCELLED,
               "millet_code lists the codes of base/err.h");
_Static_assert(sizeof((millet_error *)0)->message == sizeof((err *)0)->msg, "messages are copied whole");
_Static_assert(MILLET_MAX_RANK == IR_MAX_RANK, "shapes are copied whole");

const char *millet_version(void) {
    return MILLET_VERSION;
}

int millet_abi(void) {
    return MILLET_ABI;
}

millet_cancel *millet_cancel_new(void) {
    millet_cancel *c = mem_try(1, sizeof *c); /* nobody's: it belongs to no model */
    if (c) atomic_init(&c->set, false);
    return c;
}

void millet_cancel_free(millet_cancel *c) {
    mem_free(c);
}

void millet_cancel_set(millet_cancel *c) {
    atomic_store(&c->set, true);
}

void millet_cancel_clear(millet_cancel *c) {
    atomic_store(&c->set, false);
}

bool millet_cancel_is_set(const millet_cancel *c) {
    return atomic_load(&c->set);
}

bool api_done(millet_error *out, const err *e) {
    if (out) {
        out->code = (millet_code)e->code;
        memcpy(out->message, e->msg, sizeof out->message);
        if (!e->code) out->message[0] = 0;
    }
    return !e->code;
}

static const struct {
    millet_dtype outside;
    ir_dtype inside;
} dtypes[] = {
    {MILLET_BOOL, DT_BOOL},     {MILLET_INT8, DT_INT8},     {MILLET_INT16, DT_INT16},
    {MILLET_INT32, DT_INT32},   {MILLET_INT64, DT_INT64},   {MILLET_UINT8, DT_UINT8},
    {MILLET_UINT16, DT_UINT16}, {MILLET_UINT32, DT_UINT32}, {MILLET_UINT64, DT_UINT64},
    {MILLET_FP16, DT_FP16},     {MILLET_FP32, DT_FP32},     {MILLET_FP64, DT_FP64},
};
#define N_DTYPES (sizeof dtypes / sizeof dtypes[0])

ir_dtype api_dtype_in(millet_dtype d) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].outside == d) return dtypes[i].inside;
    return DT_NONE;
}

millet_dtype api_dtype_out(ir_dtype d) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].inside == d) return dtypes[i].outside;
    return (millet_dtype)0;
}

const char *millet_dtype_name(millet_dtype d) {
    ir_dtype inside = api_dtype_in(d);
    return inside == DT_NONE ? "?" : dtype_name(inside);
}

size_t millet_dtype_size(millet_dtype d) {
    ir_dtype inside = api_dtype_in(d);
    return inside == DT_NONE ? 0 : dtype_bits(inside) / 8;
}

bool api_given(const void *argument, const char *what, err *e) {
    return argument || err_set(e, ERR_USAGE, "no %s", what);
}

bool api_tensor_in(rt_tensor *out, const millet_tensor *t, err *e) {
    const char *name = t->name ? t->name : "(no name)";
    ir_dtype d = api_dtype_in(t->dtype);
    if (d == DT_NONE) return err_set(e, ERR_USAGE, "tensor %s: unknown dtype %d", name, (int)t->dtype);
    if (t->rank < 0 || t->rank > IR_MAX_RANK)
        return err_set(e, ERR_USAGE, "tensor %s: rank %d is outside 0 to %d", name, t->rank, IR_MAX_RANK);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0) return err_set(e, ERR_USAGE, "tensor %s: size %" PRId64, name, t->shape[i]);
    *out = (rt_tensor){t->name, ir_tensor(d, t->rank, t->shape), t->data};
    int64_t bytes = ir_type_bytes(&out->type);
    if (bytes < 0 || (uint64_t)bytes != t->bytes)
        return err_set(e, ERR_USAGE, "tensor %s: %zu bytes where its shape takes %" PRId64, name, t->bytes,
                       bytes);
    return t->data || !bytes || err_set(e, ERR_USAGE, "tensor %s: no data", name);
}

void api_tensor_out(millet_tensor *out, const rt_tensor *t) {
    *out = (millet_tensor){.name = t->name, .dtype = api_dtype_out(t->type.dtype), .rank = t->type.rank};
    for (int i = 0; i < t->type.rank; i++) out->shape[i] = t->type.dim[i];
    out->data = t->data;
    out->bytes = (size_t)ir_type_bytes(&t->type);
}

bool api_sized(const void *s, const char *name, err *e) {
    size_t size;
    memcpy(&size, s, sizeof size);
    return size > sizeof size ||
           err_set(e, ERR_USAGE, "%s: set its size member to sizeof(%s) before the call", name, name);
}

static size_t smaller(const void *s, size_t whole_size) {
    size_t size;
    memcpy(&size, s, sizeof size);
    return size < whole_size ? size : whole_size;
}

bool api_struct_in(void *to, size_t whole_size, const void *from, const char *name, err *e) {
    memset(to, 0, whole_size);
    if (!from) return true;
    if (!api_sized(from, name, e)) return false;
    memcpy(to, from, smaller(from, whole_size));
    return true;
}

void api_struct_out(void *to, const void *from, size_t whole_size) {
    size_t size;
    memcpy(&size, to, sizeof size);
    size_t both = smaller(to, whole_size);
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size, both - sizeof size);
    memset((char *)to + both, 0, size - both);
}
