#include "runtime/interface.h"
#include "base/num.h"
#include <stdio.h>
#include <string.h>

static bool wrong(const coreml_feature *f, const ir_type *got, const char *expected, err *e) {
    arena *a = arena_new();
    err_set(e, ERR_USAGE, "input %s is %s, expected %s", f->name, ir_type_text(a, got), expected);
    arena_free(a);
    return false;
}

static bool same_dims(const int64_t *a, const int64_t *b, int rank) {
    return !memcmp(a, b, (size_t)rank * sizeof *a);
}

static bool check_range(const coreml_feature *f, const ir_type *t, err *e) {
    for (int d = 0; d < t->rank; d++) {
        const coreml_range *r = &f->range[d];
        if (t->dim[d] >= r->lower && (r->upper < 0 || t->dim[d] <= r->upper)) continue;
        char expected[120];
        if (r->upper < 0)
            snprintf(expected, sizeof expected, "%lld or more in dimension %d", (long long)r->lower, d);
        else
            snprintf(expected, sizeof expected, "%lld to %lld in dimension %d", (long long)r->lower,
                     (long long)r->upper, d);
        return wrong(f, t, expected, e);
    }
    return true;
}

/* choice: index of the enumerated shape, for inputs that have any. */
static bool check_shape(const coreml_feature *f, const ir_type *t, size_t *choice, err *e) {
    arena *a = arena_new();
    bool ok = t->kind == IR_TENSOR && t->dtype == f->type.dtype && (f->no_shape || t->rank == f->type.rank) &&
              ir_type_count(t) >= 0;
    if (!ok) wrong(f, t, ir_type_text(a, &f->type), e);
    if (ok && f->n_shapes) {
        for (*choice = 0; *choice < f->n_shapes; ++*choice)
            if (same_dims(f->shapes[*choice], t->dim, t->rank)) break;
        ok = *choice < f->n_shapes || wrong(f, t, "one of its enumerated shapes", e);
    } else if (ok && f->range) {
        ok = check_range(f, t, e);
    } else if (ok && !f->no_shape) {
        ok = same_dims(f->type.dim, t->dim, t->rank) || wrong(f, t, ir_type_text(a, &f->type), e);
    }
    arena_free(a);
    return ok;
}

static const rt_tensor *given(const char *name, const rt_tensor *in, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(in[i].name, name)) return &in[i];
    return NULL;
}

static bool is_tensor(const coreml_function *f, const char *kind, const coreml_feature *d, err *e) {
    return !d->other ||
           err_set(e, ERR_UNSUPPORTED,
                   "function %s: %s %s is no multi-array (%s), and only such can be fed or returned: "
                   "convert the model with a tensor in its place",
                   f->name, kind, d->name, d->other);
}

bool rt_only_tensors(const coreml_function *f, err *e) {
    for (size_t i = 0; i < f->n_in; i++)
        if (!is_tensor(f, "input", &f->in[i], e)) return false;
    for (size_t i = 0; i < f->n_out; i++)
        if (!is_tensor(f, "output", &f->out[i], e)) return false;
    return true;
}

bool rt_check_inputs(const coreml_function *f, const rt_tensor *in, size_t n, err *e) {
    size_t first_choice = SIZE_MAX;
    if (!rt_only_tensors(f, e)) return false;
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; k < f->n_in; k++) known |= !strcmp(f->in[k].name, in[i].name);
        if (!known) return err_set(e, ERR_USAGE, "there is no input %s", in[i].name);
        if (given(in[i].name, in, i)) return err_set(e, ERR_USAGE, "input %s is given twice", in[i].name);
    }
    for (size_t i = 0; i < f->n_in; i++) {
        const coreml_feature *d = &f->in[i];
        const rt_tensor *t = given(d->name, in, n);
        size_t choice = SIZE_MAX;
        if (!t && !(d->optional && d->has_default))
            return err_set(e, ERR_USAGE, "function %s needs input %s", f->name, d->name);
        if (t && !check_shape(d, &t->type, &choice, e)) return false;
        if (choice == SIZE_MAX) continue;
        if (first_choice == SIZE_MAX) first_choice = choice;
        if (choice != first_choice) /* shapes of several inputs go together */
            return err_set(e, ERR_USAGE,
                           "input %s has shape number %zu of its list, another input number %zu", d->name,
                           choice, first_choice);
    }
    return true;
}

bool rt_unpack(ref_tensor *t, const rt_tensor *from, err *e) {
    const ir_const c = {.type = from->type, .data = from->data, .bytes = (size_t)ir_type_bytes(&from->type)};
    ref_tensor packed;
    if (!ref_tensor_const(&packed, &c, e) || !ref_tensor_new(t, &from->type, e))
        return err_where(e, "%s", from->name);
    ref_read(&packed, 0, ref_count(t), t->cell);
    ref_buf_set_half(t->buf, from->type.dtype == DT_FP16);
    return true;
}

bool rt_make_input(ref_tensor *t, const coreml_feature *f, const rt_tensor *in, size_t n, err *e) {
    const rt_tensor *from = given(f->name, in, n);
    if (from) return rt_unpack(t, from, e);
    if (!ref_tensor_new(t, &f->type, e)) return err_where(e, "%s", f->name);
    float value = (float)f->default_value;
    if (f->type.dtype == DT_FP16) value = num_round_f16(value);
    for (int64_t i = 0, count = ref_count(t); i < count; i++) {
        if (dtype_is_float((ir_dtype)f->type.dtype))
            ref_floats(t)[i] = value;
        else
            ref_ints(t)[i] = (int32_t)f->default_value;
    }
    ref_buf_set_half(t->buf, f->type.dtype == DT_FP16);
    return true;
}
