/* Constants: as they lie in the file where they can be used so, else turned into what the program has. */
#include "base/num.h"
#include "coreai/read.h"
#include <stdint.h>
#include <string.h>

#define FEW       64                  /* elements of integers that are kept as numbers */
#define MOST_MADE (UINT64_C(1) << 31) /* bytes of constants that are larger here than in the file */

struct ai_pool {
    struct {
        const ai_attr *x;
        const ai_type *t;
        const ir_const *c;
    } * entry;
    size_t n, cap;
    map *by_key;
};

/* Bits of an element. Codes lie packed in resources, one a byte elsewhere; truth values and codes of one bit
 * packed there, too. */
static unsigned stored_bits(const ai_attr *x, ir_dtype d, uint64_t n) {
    unsigned bits = dtype_bits(d);
    if (d == DT_BOOL) return x->bytes == n || x->splat ? 8 : 1;
    return bits >= 8 || x->code == AI_RESOURCE || (bits == 1 && !x->splat && x->bytes != n) ? bits : 8;
}

/* Elements of t, and that x holds as many. */
static bool count_elements(ai_read *r, const ai_attr *x, const ai_type *t, uint64_t *n) {
    if (x->code != AI_DENSE && x->code != AI_RESOURCE)
        return ai_fail(r, ERR_UNSUPPORTED, "a constant of attribute %u, %s", x->code,
                       ai_attr_name(x->code) ? ai_attr_name(x->code) : "which is unknown here");
    if (t->code != AI_TENSOR || !t->inner->dtype) {
        uint32_t code = t->inner ? t->inner->code : t->code;
        return ai_fail(r, ERR_UNSUPPORTED, "a constant of elements of type %u, %s", code,
                       ai_type_name(code) ? ai_type_name(code) : "which is unknown here");
    }
    *n = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] == AI_DYNAMIC || __builtin_mul_overflow(*n, (uint64_t)t->dim[i], n) ||
            *n > UINT64_C(1) << 40)
            return ai_fail(r, ERR_FORMAT, "a constant without a definite size");
    unsigned bits = stored_bits(x, (ir_dtype)t->inner->dtype, *n);
    uint64_t there = x->splat ? 1 : *n, want = (there * bits + 7) / 8;
    if (x->bytes != want)
        return ai_fail(r, ERR_FORMAT, "a constant of %zu bytes, %llu elements take %llu", x->bytes,
                       (unsigned long long)there, (unsigned long long)want);
    return true;
}

/* Element i, of one a byte or more. */
static int64_t int_at(const ai_attr *x, ir_dtype d, uint64_t i) {
    size_t each = dtype_bits(d) < 8 ? 1 : dtype_bits(d) / 8;
    const uint8_t *p = x->data + (x->splat ? 0 : i) * each;
    uint64_t v = 0;
    for (size_t k = each; k--;) v = v << 8 | p[k];
    unsigned shift = (unsigned)(64 - 8 * each);
    if (dtype_class(d) == DTC_INT) return (int64_t)(v << shift) >> shift;
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static int64_t packed_at(const ai_attr *x, ir_dtype d, uint64_t i) {
    unsigned bits = dtype_bits(d);
    if (bits >= 8 || x->code == AI_DENSE) return int_at(x, d, i); /* (those of one bit are no numbers here) */
    uint8_t code;
    num_unpack(&code, x->data, (size_t)i, 1, bits);
    return dtype_class(d) == DTC_INT ? num_sign_extend(code, bits) : code;
}

static float float_at(const ai_attr *x, ir_dtype d, uint64_t i) {
    const uint8_t *p = x->data + (x->splat ? 0 : i) * (dtype_bits(d) / 8);
    switch (d) {
    case DT_FP16: return num_f16_f32(num_get16(p));
    case DT_BF16: return num_bf16_f32(num_get16(p));
    case DT_E4M3: return num_e4m3_f32(*p);
    case DT_E5M2: return num_e5m2_f32(*p);
    default: return num_bits_f32(num_get32(p));
    }
}

const int64_t *ai_constant_ints(ai_read *r, const ai_attr *x, const ai_type *t, uint32_t *n) {
    ir_dclass c = t->inner ? dtype_class((ir_dtype)t->inner->dtype) : DTC_NONE;
    uint64_t count;
    if ((c != DTC_INT && c != DTC_UINT) || t->inner->dtype == DT_UINT1) return NULL;
    if (!count_elements(r, x, t, &count) || count > FEW) return NULL;
    int64_t *v = ARENA_ARRAY(r->a, int64_t, count);
    for (uint64_t i = 0; i < count; i++) v[i] = packed_at(x, (ir_dtype)t->inner->dtype, i);
    *n = (uint32_t)count;
    return v;
}

bool ai_constant_is(ai_read *r, const ai_value *v, double number) {
    const ai_lowered *l = &r->at[v->id];
    uint64_t n;
    if (!l->konst || !count_elements(r, l->konst, v->type, &n)) return false;
    ir_dtype d = (ir_dtype)v->type->inner->dtype;
    if (d == DT_FP64 || d == DT_BOOL || d == DT_UINT1) return false;
    if (l->konst->splat) n = n ? 1 : 0;
    for (uint64_t i = 0; i < n; i++) {
        double x = dtype_is_float(d) ? (double)float_at(l->konst, d, i) : (double)packed_at(l->konst, d, i);
        if (x != number) return false;
    }
    return true;
}

static void *room(ai_read *r, uint64_t bytes) {
    if (bytes > MOST_MADE || (r->bytes += bytes) > MOST_MADE) {
        ai_fail(r, ERR_LIMIT, "constants that spread to more than %llu bytes", (unsigned long long)MOST_MADE);
        return NULL;
    }
    return arena_alloc(r->a, bytes + 1);
}

static const ir_const *as_ints(ai_read *r, const ai_attr *x, ir_type type, ir_dtype d, uint64_t n) {
    int32_t *v = room(r, n * 4);
    if (!v) return NULL;
    for (uint64_t i = 0; i < n; i++) {
        int64_t k = packed_at(x, d, i);
        v[i] = k > INT32_MAX ? INT32_MAX : k < INT32_MIN ? INT32_MIN : (int32_t)k;
    }
    return ir_const_new(r->a, type, v);
}

static const ir_const *as_floats(ai_read *r, const ai_attr *x, ir_type type, ir_dtype d, uint64_t n) {
    float *v = room(r, n * 4);
    if (!v) return NULL;
    for (uint64_t i = 0; i < n; i++) v[i] = float_at(x, d, i);
    return ir_const_new(r->a, type, v);
}

/* Of codes below a byte: one bit stream, as resources have it. */
static const ir_const *as_codes(ai_read *r, const ai_attr *x, ir_type type, ir_dtype d, uint64_t n) {
    unsigned bits = dtype_bits(d);
    if (stored_bits(x, d, n) == bits) return ir_const_new(r->a, type, x->data);
    uint8_t *codes = room(r, n), *packed = codes ? room(r, num_packed_size(n, bits)) : NULL;
    if (!packed) return NULL;
    for (uint64_t i = 0; i < n; i++) codes[i] = (uint8_t)(x->data[x->splat ? 0 : i] & ((1u << bits) - 1));
    num_pack(packed, codes, n, bits);
    return ir_const_new(r->a, type, packed);
}

/* Bytes that are fine as they are, but perhaps repeated, or not where the type wants them. */
static const ir_const *as_bytes(ai_read *r, const ai_attr *x, ir_type type, ir_dtype d, uint64_t n) {
    size_t each = dtype_bits(d) / 8;
    bool in_place =
        !x->splat && (x->code == AI_RESOURCE || n * each > 4096) && (uintptr_t)x->data % each == 0;
    if (in_place) return ir_const_new(r->a, type, x->data);
    uint8_t *v = room(r, n * each);
    if (!v) return NULL;
    if (!x->splat)
        memcpy(v, x->data, n * each);
    else
        for (uint64_t i = 0; i < n; i++) memcpy(v + i * each, x->data, each);
    return ir_const_new(r->a, type, v);
}

/* One byte each. */
static const ir_const *as_bools(ai_read *r, const ai_attr *x, ir_type type, uint64_t n) {
    uint8_t *v = room(r, n);
    bool packed = stored_bits(x, DT_BOOL, n) == 1;
    for (uint64_t i = 0; v && i < n; i++)
        v[i] = packed ? x->data[i / 8] >> (i % 8) & 1 : x->data[x->splat ? 0 : i] != 0;
    return v ? ir_const_new(r->a, type, v) : NULL;
}

static const ir_const *make(ai_read *r, const ai_attr *x, const ai_type *t) {
    uint64_t n;
    ir_type type;
    if (!count_elements(r, x, t, &n) || !ai_to_ir(r, t, &type)) return NULL;
    ir_dtype d = (ir_dtype)t->inner->dtype;
    if (d == DT_FP64) {
        ai_fail(r, ERR_UNSUPPORTED, "a constant of fp64");
        return NULL;
    }
    if (dtype_bits(d) < 8 || d == DT_INT8 || d == DT_UINT8) { /* weights' codes keep their type */
        type.dtype = (uint8_t)d;
        return dtype_bits(d) < 8 ? as_codes(r, x, type, d, n) : as_bytes(r, x, type, d, n);
    }
    if (d == DT_BOOL) return as_bools(r, x, type, n);
    if (d == DT_FP16 || d == DT_FP32 || d == DT_INT32) return as_bytes(r, x, type, d, n);
    return dtype_is_float(d) ? as_floats(r, x, type, d, n) : as_ints(r, x, type, d, n);
}

/* The same constant is the same for every function. */
const ir_const *ai_constant(ai_read *r, const ai_attr *x, const ai_type *t) {
    if (!r->pool) {
        r->pool = ARENA_NEW(r->a, struct ai_pool);
        r->pool->by_key = map_new(r->a, 64);
    }
    struct ai_pool *p = r->pool;
    const void *key[2] = {x, t};
    uint32_t i = map_get(p->by_key, (const char *)key, sizeof key);
    if (i != MAP_NONE) return p->entry[i].c;
    const ir_const *c = make(r, x, t);
    if (!c) return NULL;
    p->entry = arena_grow(r->a, p->entry, p->n, &p->cap, p->n + 1, sizeof *p->entry);
    p->entry[p->n].x = x, p->entry[p->n].t = t, p->entry[p->n].c = c;
    map_add(p->by_key, arena_copy(r->a, key, sizeof key), sizeof key, (uint32_t)p->n++);
    return c;
}
