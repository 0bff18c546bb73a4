#include "models/weights.h"
#include "base/num.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 4096 };      /* elements converted at a time, on the stack */
enum { SCANNED = 4 << 20 }; /* elements whose pages are dropped together */

typedef struct {
    const st_tensor *t;
    uint64_t first; /* element of the tensor that is the constant's first */
    ir_dtype to;
    weight_fold fold;
} job;

bool weight_readable(ir_dtype d) {
    return d == DT_FP32 || d == DT_FP16 || d == DT_BF16;
}

static void fold_values(float *x, size_t n, weight_fold fold) {
    if (fold == FOLD_ADD_ONE)
        for (size_t i = 0; i < n; i++) x[i] = 1 + x[i];
    if (fold == FOLD_NEG_EXP)
        for (size_t i = 0; i < n; i++) x[i] = (float)-exp((double)x[i]);
}

static void load(float *x, const job *j, uint64_t first, size_t n) {
    st_floats(j->t, j->first + first, n, x);
    fold_values(x, n, j->fold);
}

static bool fill(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)e;
    const job *j = ctx;
    unsigned size = dtype_bits(j->to) / 8;
    float x[BLOCK];
    for (uint64_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        load(x, j, first + i, m);
        uint8_t *to = (uint8_t *)dst + i * size;
        if (j->to == DT_FP16)
            num_f32_to_f16(to, x, m);
        else
            memcpy(to, x, m * sizeof *x);
    }
    st_drop(j->t, j->first + first, n);
    return true;
}

/* The same as below on bf16 bits: rounding to bf16 left nothing between 65280 and 65536. */
static void scan_bf16(weight_range *r, const uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i += BLOCK, p += 2 * (size_t)BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        uint16_t over = 0, under = 0, bad = 0; /* at most BLOCK each */
        for (size_t k = 0; k < m; k++) {
            uint16_t u;
            memcpy(&u, p + 2 * k, 2);
            u &= 0x7FFF;
            bad = (uint16_t)(bad + (u >= 0x7F80));
            over = (uint16_t)(over + (u >= 0x4780));
            under = (uint16_t)(under + ((uint16_t)(u - 1) < 0x3300));
        }
        r->overflow += (uint64_t)(over - bad);
        r->vanish += under;
        r->not_finite += bad;
    }
}

static void scan_values(weight_range *r, const job *j, uint64_t first, uint64_t n) {
    float x[BLOCK];
    for (uint64_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        load(x, j, first + i, m);
        uint32_t over = 0, under = 0, bad = 0;
        for (size_t k = 0; k < m; k++) {
            uint32_t u = num_f32_bits(x[k]) & 0x7FFFFFFFu;
            bad += u >= 0x7F800000u;
            over += u >= 0x477FF000u;     /* 65520, half way to 65536 */
            under += u - 1 < 0x33000000u; /* above 0 and at most 2^-25, half of the smallest fp16 */
        }
        r->overflow += over - bad;
        r->vanish += under;
        r->not_finite += bad;
    }
}

weight_range weight_scan(const st_tensor *t, weight_fold fold) {
    job j = {.t = t, .fold = t->folded ? FOLD_NONE : fold};
    uint64_t n = (uint64_t)ir_type_count(&t->type);
    weight_range r = {0};
    for (uint64_t at = 0; at < n; at += SCANNED) {
        uint64_t m = n - at < SCANNED ? n - at : SCANNED;
        if (t->type.dtype == DT_BF16 && t->data && j.fold == FOLD_NONE)
            scan_bf16(&r, (const uint8_t *)t->data + 2 * at, m);
        else
            scan_values(&r, &j, at, m);
        st_drop(t, at, m);
    }
    return r;
}

/* --- codes and scales as they are --- */

static bool fill_codes(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)e;
    const job *j = ctx;
    const tensor_view *v = j->t->view;
    int8_t code[BLOCK];
    for (uint64_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        tensor_codes(v, j->first + first + i, m, code);
        if (v->form->kept_bits == 8)
            memcpy((uint8_t *)dst + i, code, m);
        else
            num_pack((uint8_t *)dst + i * v->form->kept_bits / 8, (const uint8_t *)code, m,
                     v->form->kept_bits);
    }
    st_drop(j->t, j->first + first, n);
    return true;
}

static bool fill_scales(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)e;
    const job *j = ctx;
    tensor_scales(j->t->view, j->first / GGUF_KEPT_BLOCK + first, n, dst);
    st_drop(j->t, j->first + first * GGUF_KEPT_BLOCK, n * GGUF_KEPT_BLOCK);
    return true;
}

/* NULL: the values are not packed. */
static const ir_packed *packed_form(arena *a, const job *j, const ir_type *shape) {
    const tensor_view *v = j->t->view;
    if (!v || v->form->plain != DT_NONE || shape->rank != 2 || shape->dtype != DT_FP16) return NULL;
    ir_packed *p = ARENA_NEW(a, ir_packed);
    if (v->keeps) {
        int64_t rows = shape->dim[0], cols = shape->dim[1];
        ir_dtype d = v->form->kept_bits == 8 ? DT_INT8 : DT_INT4;
        p->codes = ir_const_fill(a, IR_TYPE(d, rows, cols), fill_codes, j);
        p->scales = ir_const_fill(a, IR_TYPE(DT_FP16, rows, cols / GGUF_KEPT_BLOCK), fill_scales, j);
    } else {
        p->why = v->form->keep ? "its columns are in another order, which tears blocks apart"
                               : arena_printf(a, "%s has no counterpart", v->form->name);
    }
    return p;
}

const ir_const *weight_const(arena *a, const st_tensor *t, weight_fold fold, int64_t row, ir_type shape) {
    ir_type rest = t->type;
    if (rest.rank) rest.dim[0] = row;
    if (t->folded) fold = FOLD_NONE;
    if (t->data && t->type.dtype == shape.dtype && fold == FOLD_NONE) {
        ir_const *c = ir_const_new(a, shape, (const uint8_t *)t->data + (row ? ir_type_bytes(&rest) : 0));
        c->in_blob = true;
        return c;
    }
    job *j = ARENA_NEW(a, job);
    *j = (job){t, row ? (uint64_t)ir_type_count(&rest) : 0, shape.dtype, fold};
    ir_const *c = ir_const_fill(a, shape, fill, j);
    c->packed = packed_form(a, j, &shape);
    return c;
}

bool weight_equal(const st_tensor *a, const st_tensor *b) {
    uint64_t n, m;
    const void *x = st_stored(a, &n), *y = st_stored(b, &m);
    return ir_type_equal(&a->type, &b->type) && !a->view == !b->view && n == m && !memcmp(x, y, (size_t)n);
}
