/* A decoder's states by name, as numbers, wherever they live. */
#include "base/num.h"
#include "generate/decoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMAINDER "_lo"

/* Where a state of that name lies: in a session, or among those that go in and out of calls. */
typedef struct {
    rt_session *s; /* NULL: carried */
    void *carried;
    const char *name;
    ir_type type;
} place;

/* Package by package; the carried ones last. False behind the last. */
static bool place_at(const decoder *d, size_t i, place *p) {
    const lm *m = decoder_lm(d);
    for (size_t k = 0; k < m->n_model; k++) {
        rt_session *s = decoder_session(d, k);
        size_t n = rt_state_count(s);
        if (i < n) *p = (place){s, NULL, rt_state_name(s, i), rt_state_type(s, i)};
        if (i < n) return true;
        i -= n;
    }
    if (i < m->form.n_carried)
        *p = (place){NULL, decoder_carried(d, i), m->form.carried[i].name, m->form.carried[i].type};
    return i < m->form.n_carried;
}

static bool find(const decoder *d, const char *name, place *p) {
    for (size_t i = 0; place_at(d, i, p); i++)
        if (!strcmp(p->name, name)) return true;
    return false;
}

static bool must_find(const decoder *d, const char *name, place *p, err *e) {
    return find(d, name, p) || err_set(e, ERR_INVALID, "no package has a state %s", name);
}

/* The name of a state's remainder, when there is one. */
static bool remainder_of(const decoder *d, const char *name, char *out, size_t size) {
    place p;
    int n = snprintf(out, size, "%s" REMAINDER, name);
    return n > 0 && (size_t)n < size && find(d, out, &p);
}

/* Whether that is the remainder of another state. */
static bool is_remainder(const decoder *d, const char *name) {
    char whole[256];
    size_t n = strlen(name), end = strlen(REMAINDER);
    place p;
    if (n <= end || n - end >= sizeof whole || strcmp(name + n - end, REMAINDER)) return false;
    memcpy(whole, name, n - end);
    whole[n - end] = 0;
    return find(d, whole, &p);
}

/* State number i of those that are no remainder; NULL behind the last. *n: how many were seen. */
static const char *walk(const decoder *d, size_t i, size_t *n) {
    place p;
    *n = 0;
    for (size_t k = 0; place_at(d, k, &p); k++)
        if (!is_remainder(d, p.name) && (*n)++ == i) return p.name;
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
    place p;
    bool ok = must_find(d, name, &p, e);
    if (ok) *type = p.type;
    return ok;
}

/* Adds a state's values to x. */
static bool add(decoder *d, const char *name, float *x, err *e) {
    place p;
    rt_tensor t;
    if (!must_find(d, name, &p, e) || (p.s && !rt_state_get(p.s, name, &t, e))) return false;
    if (!p.s) t = (rt_tensor){name, p.type, p.carried};
    if (t.type.dtype != DT_FP16 && t.type.dtype != DT_FP32)
        return err_set(e, ERR_UNSUPPORTED, "state %s is neither fp16 nor fp32", name);
    for (int64_t i = 0; i < ir_type_count(&t.type); i++)
        x[i] +=
            t.type.dtype == DT_FP16 ? num_f16_f32(((const uint16_t *)t.data)[i]) : ((const float *)t.data)[i];
    return true;
}

/* Sets a state to the values rounded to its type; x keeps what was lost. */
static bool put(decoder *d, const char *name, float *x, err *e) {
    place p;
    if (!must_find(d, name, &p, e)) return false;
    size_t n = (size_t)ir_type_count(&p.type);
    bool half = p.type.dtype == DT_FP16;
    if (!half && p.type.dtype != DT_FP32)
        return err_set(e, ERR_UNSUPPORTED, "state %s is neither fp16 nor fp32", name);
    uint16_t *packed = half ? mem_try(n, sizeof *packed) : NULL;
    if (half && !packed) return err_set(e, ERR_MEMORY, "no memory for a copy of state %s", name);
    if (half) num_f32_to_f16(packed, x, n);
    const rt_tensor t = {name, p.type, half ? (const void *)packed : x};
    bool ok = !p.s || rt_state_set(p.s, name, &t, e);
    if (!p.s) memcpy(p.carried, t.data, (size_t)ir_type_bytes(&p.type));
    for (size_t i = 0; i < n; i++) x[i] = half ? x[i] - num_f16_f32(packed[i]) : 0;
    mem_free(packed);
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
    mem_free(x);
    return ok;
}
