#include "reference/ops.h"
#include "reference/walk.h"
#include <string.h>

typedef enum { UPDATE, ADD, SUB, MUL, DIV, MAX, MIN } scatter_mode;

static bool read_mode(ref_eval *v, scatter_mode *mode) {
    static const char *const names[] = {"update", "add", "sub", "mul", "div", "max", "min"};
    const char *text = ev_text(v, A_mode, "add");
    for (int i = 0; i < 7; i++)
        if (!strcmp(text, names[i])) {
            *mode = (scatter_mode)i;
            return true;
        }
    return ev_fail(v, "mode \"%.40s\" is unknown", text);
}

static float combine_float(scatter_mode mode, float a, float b) {
    switch (mode) {
    case ADD: return a + b;
    case SUB: return a - b;
    case MUL: return a * b;
    case DIV: return a / b;
    case MAX: return b > a || b != b ? b : a;
    case MIN: return b < a || b != b ? b : a;
    default: return b;
    }
}

static int32_t combine_int(scatter_mode mode, int32_t a, int32_t b) {
    switch (mode) {
    case ADD: return (int32_t)((uint32_t)a + (uint32_t)b);
    case SUB: return (int32_t)((uint32_t)a - (uint32_t)b);
    case MUL: return (int32_t)((uint32_t)a * (uint32_t)b);
    case DIV: return b == 0 ? 0 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
    case MAX: return b > a ? b : a;
    case MIN: return b < a ? b : a;
    default: return b;
    }
}

/* What the three forms share. */
typedef struct {
    scatter_mode mode;
    bool is_float, validate;
    const ref_tensor *data, *indices;
    const int32_t *index;
    const ref_cell *update;
    ref_cell *out;
} scatter;

static bool begin(ref_eval *v, scatter *s) {
    const ref_tensor *tu = ev_in(v, A_updates);
    s->data = ev_in(v, A_data);
    s->indices = ev_in(v, A_indices);
    s->is_float = dtype_is_float(s->data->type.dtype);
    s->validate = ev_bool(v, A_validate_indices, false);
    if (dtype_is_float(tu->type.dtype) != s->is_float) return ev_fail(v, "data and updates differ in kind");
    s->index = ev_ints(v, s->indices);
    s->update = ev_cells(v, tu);
    if (!s->index || !s->update || !read_mode(v, &s->mode) || !ev_new(v, 0)) return false;
    s->out = v->out[0].cell;
    ref_read(s->data, 0, ref_count(s->data), s->out);
    return true;
}

static void apply(const scatter *s, int64_t to, const ref_cell *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float a, b, r;
        int32_t k;
        if (s->is_float) {
            memcpy(&a, &s->out[to + i], 4);
            memcpy(&b, &from[i], 4);
            r = combine_float(s->mode, a, b);
            memcpy(&s->out[to + i], &r, 4);
        } else {
            k = combine_int(s->mode, (int32_t)s->out[to + i], (int32_t)from[i]);
            memcpy(&s->out[to + i], &k, 4);
        }
    }
}

bool ev_scatter(ref_eval *v) {
    scatter s;
    if (!begin(v, &s)) return false;
    int axis = ev_axis(v, A_axis, 0, s.data->type.rank);
    if (axis < 0) return false;
    int64_t n = s.data->type.dim[axis], inner = ref_inner(&s.data->type, axis),
            outer = ref_outer(&s.data->type, axis);
    int64_t count = ref_count(s.indices);
    if (count && !n) return ev_fail(v, "axis %d has no elements", axis);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < count; j++) {
            int64_t at = ev_index(v, s.index[j], n, s.validate);
            if (at < 0) return false;
            apply(&s, (o * n + at) * inner, s.update + (o * count + j) * inner, inner);
        }
    return true;
}

bool ev_scatter_along_axis(ref_eval *v) {
    scatter s;
    if (!begin(v, &s)) return false;
    int axis = ev_axis(v, A_axis, 0, s.data->type.rank);
    if (axis < 0) return false;
    int64_t n = s.data->type.dim[axis], m = s.indices->type.dim[axis], inner = ref_inner(&s.data->type, axis);
    int64_t count = ref_count(s.indices);
    if (count && !n) return ev_fail(v, "axis %d has no elements", axis);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = ev_index(v, s.index[i], n, s.validate);
        if (at < 0) return false;
        apply(&s, (i / (m * inner) * n + at) * inner + i % inner, s.update + i, 1);
    }
    return true;
}

bool ev_scatter_nd(ref_eval *v) {
    scatter s;
    if (!begin(v, &s)) return false;
    int last = s.indices->type.rank - 1;
    if (last < 0 || s.indices->type.dim[last] > s.data->type.rank)
        return ev_fail(v, "indices don't fit data");
    int depth = (int)s.indices->type.dim[last];
    int64_t inner = ref_inner(&s.data->type, depth - 1), tuples = ref_outer(&s.indices->type, last);
    for (int64_t r = 0; r < tuples; r++) {
        int64_t at = 0;
        for (int d = 0; d < depth; d++) {
            int64_t n = s.data->type.dim[d];
            if (!n) return ev_fail(v, "dimension %d of data has no elements", d);
            int64_t k = ev_index(v, s.index[r * depth + d], n, s.validate);
            if (k < 0) return false;
            at = at * n + k;
        }
        apply(&s, at * inner, s.update + r * inner, inner);
    }
    return true;
}
