#include "ir/type.h"
#include "base/str.h"
#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bits, cls;
} dtypes[DT_COUNT] = {[DT_NONE] = {"none", 0, DTC_NONE},
#define X(e, name, bits, cls) [e] = {name, bits, DTC_##cls},
                      IR_DTYPES(X)
#undef X
};

const char *dtype_name(ir_dtype d) {
    return dtypes[d].name;
}

unsigned dtype_bits(ir_dtype d) {
    return dtypes[d].bits;
}

ir_dclass dtype_class(ir_dtype d) {
    return dtypes[d].cls;
}

ir_dtype dtype_by_name(const char *name) {
    for (int d = 1; d < DT_COUNT; d++)
        if (!strcmp(dtypes[d].name, name)) return (ir_dtype)d;
    return DT_NONE;
}

ir_type ir_tensor(ir_dtype d, int rank, const int64_t *dim) {
    ir_type t = {.kind = IR_TENSOR, .dtype = (uint8_t)d, .rank = (int8_t)rank};
    for (int i = 0; i < rank; i++) t.dim[i] = dim[i];
    return t;
}

bool ir_type_equal(const ir_type *a, const ir_type *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->rank);
}

bool ir_type_compatible(const ir_type *a, const ir_type *b) {
    if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i] && a->dim[i] != IR_DIM_UNKNOWN && b->dim[i] != IR_DIM_UNKNOWN)
            return false;
    return true;
}

bool ir_type_known(const ir_type *t) {
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] == IR_DIM_UNKNOWN) return false;
    return true;
}

int64_t ir_type_count(const ir_type *t) {
    int64_t n = 1;
    bool zero = false;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0) return -1;
        if (t->dim[i] == 0)
            zero = true;
        else if (n > (INT64_C(1) << 62) / t->dim[i])
            return -1;
        else
            n *= t->dim[i];
    }
    return zero ? 0 : n;
}

int64_t ir_type_bytes(const ir_type *t) {
    int64_t n = ir_type_count(t), bits = dtype_bits(t->dtype);
    if (n < 0 || (bits && n > (INT64_C(1) << 62) / bits)) return -1;
    return (n * bits + 7) / 8;
}

const char *ir_type_text(arena *a, const ir_type *t) {
    if (t->kind == IR_OPAQUE) return "opaque";
    str s = {0};
    if (t->kind == IR_STATE) str_adds(&s, "state<");
    str_adds(&s, dtype_name(t->dtype));
    str_addc(&s, '[');
    for (int i = 0; i < t->rank; i++) {
        if (i) str_addc(&s, ',');
        if (t->dim[i] == IR_DIM_UNKNOWN)
            str_addc(&s, '?');
        else
            str_printf(&s, "%" PRId64, t->dim[i]);
    }
    str_addc(&s, ']');
    if (t->kind == IR_STATE) str_addc(&s, '>');
    const char *r = arena_strn(a, s.s, s.len);
    str_free(&s);
    return r;
}
