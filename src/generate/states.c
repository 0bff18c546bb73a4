/* A decoder's states by name, as numbers, wherever they live. */
#include "base/num.h"
#include "generate/decoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMAINDER "_lo"

/* The session that has a state of that name, and its place there; NULL: none has. */
static rt_session *find(const decoder *d, const char *name, size_t *at) {
    for (size_t p = 0; p < decoder_lm(d)->n_model; p++) {
        rt_session *s = decoder_session(d, p);
        for (*at = 0; *at < rt_state_count(s); ++*at)
            if (!strcmp(rt_state_name(s, *at), name)) return s;
    }
    return NULL;
}

static rt_session *must_find(const decoder *d, const char *name, size_t *at, err *e) {
    rt_session *s = find(d, name, at);
    if (!s) err_set(e, ERR_INVALID, "no package has a state %s", name);
    return s;
}

/* The name of a state's remainder, when there is one. */
static bool remainder_of(const decoder *d, const char *name, char *out, size_t size) {
    size_t at;
    int n = snprintf(out, size, "%s" REMAINDER, name);
    return n > 0 && (size_t)n < size && find(d, out, &at);
}

/* Whether that is the remainder of another state. */
static bool is_remainder(const decoder *d, const char *name) {
    char whole[256];
    size_t n = strlen(name), end = strlen(REMAINDER), at;
    if (n <= end || n - end >= sizeof whole || strcmp(name + n - end, REMAINDER)) return false;
    memcpy(whole, name, n - end);
    whole[n - end] = 0;
    return find(d, whole, &at);
}

/* State number i of those that are no remainder; NULL behind the last. *n: how many were seen. */
static const char *walk(const decoder *d, size_t i, size_t *n) {
    *n = 0;
    for (size_t p = 0; p < decoder_lm(d)->n_model; p++) {
        const rt_session *s = decoder_session(d, p);
        for (size_t k = 0; k < rt_state_count(s); k++) {
            const char *name = rt_state_name(s, k);
            if (!is_remainder(d, name) && (*n)++ == i) return name;
        }
    }
    return NULL;
}

size_t decoder_state_count(const decoder *d) {
    size_t n;
    walk(d, SIZE_MAX, &n);
    return n;
}

const char *decoder_state_name(const decoder *d, size_t i) {
    size_t n;
    return walk(d, i, &n);
}

bool decoder_state_type(const decoder *d, const char *name, ir_type *type, err *e) {
    size_t at;
    const rt_session *s = must_find(d, name, &at, e);
    if (s) *type = rt_state_type(s, at);
    return s != NULL;
}

/* Adds a state's values to x. */
static bool add(decoder *d, const char *name, float *x, err *e) {
    size_t at;
    rt_tensor t;
    rt_session *s = must_find(d, name, &at, e);
    if (!s || !rt_state_get(s, name, &t, e)) return false;
    if (t.type.dtype != DT_FP16 && t.type.dtype != DT_FP32)
        return err_set(e, ERR_UNSUPPORTED, "state %s is neither fp16 nor fp32", name);
    for (int64_t i = 0; i < ir_type_count(&t.type); i++)
        x[i] +=
            t.type.dtype == DT_FP16 ? num_f16_f32(((const uint16_t *)t.data)[i]) : ((const float *)t.data)[i];
    return true;
}

/* Sets a state to the values rounded to its type; x keeps what was lost. */
static bool put(decoder *d, const char *name, float *x, err *e) {
    size_t at;
    rt_session *s = must_find(d, name, &at, e);
    if (!s) return false;
    ir_type type = rt_state_type(s, at);
    size_t n = (size_t)ir_type_count(&type);
    bool half = type.dtype == DT_FP16;
    if (!half && type.dtype != DT_FP32)
        return err_set(e, ERR_UNSUPPORTED, "state %s is neither fp16 nor fp32", name);
    uint16_t *packed = half ? mem_try(n, sizeof *packed) : NULL;
    if (half && !packed) return err_set(e, ERR_MEMORY, "no memory for a copy of state %s", name);
    if (half) num_f32_to_f16(packed, x, n);
    const rt_tensor t = {name, type, half ? (const void *)packed : x};
    bool ok = rt_state_set(s, name, &t, e);
    for (size_t i = 0; i < n; i++) x[i] = half ? x[i] - num_f16_f32(packed[i]) : 0;
    free(packed);
    return ok;
}

bool decoder_state_get(decoder *d, const char *name, float *values, err *e) {
    char rest[256];
    ir_type type;
    if (!decoder_state_type(d, name, &type, e)) return false;
    memset(values, 0, (size_t)ir_type_count(&type) * sizeof *values);
    return add(d, name, values, e) && (!remainder_of(d, name, rest, sizeof rest) || add(d, rest, values, e));
}

bool decoder_state_set(decoder *d, const char *name, const float *values, err *e) {
    char rest[256];
    ir_type type;
    if (!decoder_state_type(d, name, &type, e)) return false;
    size_t n = (size_t)ir_type_count(&type);
    float *x = mem_try(n, sizeof *x);
    if (!x) return err_set(e, ERR_MEMORY, "no memory for a copy of state %s", name);
    memcpy(x, values, n * sizeof *x);
    bool ok = put(d, name, x, e) && (!remainder_of(d, name, rest, sizeof rest) || put(d, rest, x, e));
    free(x);
    return ok;
}
