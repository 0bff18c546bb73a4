#include "reference/gemm.h"
#include "reference/ops.h"
#include <string.h>

#define SPATIAL 3

/* A convolution with its spatial dimensions padded to three (front ones of size 1). */
typedef struct {
    int64_t n, cin, cout, groups;
    int64_t in[SPATIAL], out[SPATIAL], kernel[SPATIAL];
    int64_t stride[SPATIAL], dilation[SPATIAL], pad[SPATIAL]; /* pad: in front */
} shape;

static int64_t product(const int64_t *d) {
    return d[0] * d[1] * d[2];
}

/* One value a spatial dimension, default 1. */
static bool per_dim(ref_eval *v, ir_operand name, int spatial, int64_t *out) {
    size_t n;
    const int64_t *list = ev_list(v, name, &n);
    if (list && n != (size_t)spatial)
        return ev_fail(v, "%s must have %d values", ir_operand_name(name), spatial);
    for (int d = 0; d < spatial; d++) {
        out[SPATIAL - spatial + d] = list ? list[d] : 1;
        if (list && (list[d] < 1 || list[d] > INT32_MAX))
            return ev_fail(v, "%s must be positive", ir_operand_name(name));
    }
    return true;
}

static bool custom_pads(ref_eval *v, int spatial, int64_t *pad) {
    size_t n;
    const int64_t *list = ev_list(v, A_pad, &n);
    if (n != 0 && n != 2 * (size_t)spatial) return ev_fail(v, "pad must have %d values", 2 * spatial);
    for (int d = 0; d < spatial && n; d++) {
        if (list[2 * d] < 0 || list[2 * d + 1] < 0) return ev_fail(v, "pad must not be negative");
        pad[SPATIAL - spatial + d] = list[2 * d];
    }
    return true;
}

static bool read_shape(ref_eval *v, shape *s, bool transposed) {
    const ir_type *x = &ev_in(v, A_x)->type, *w = &ev_in(v, A_weight)->type, *y = &v->out[0].type;
    int spatial = x->rank - 2;
    if (spatial < 1 || spatial > SPATIAL || w->rank != x->rank || y->rank != x->rank)
        return ev_fail(v, "x must have rank 3 to 5, as many as weight");
    *s = (shape){.n = x->dim[0], .cin = x->dim[1], .cout = y->dim[1], .groups = ev_int(v, A_groups, 1)};
    for (int d = 0; d < SPATIAL; d++) s->in[d] = s->out[d] = s->kernel[d] = s->stride[d] = s->dilation[d] = 1;
    for (int d = 0; d < spatial; d++) {
        int to = SPATIAL - spatial + d;
        s->in[to] = x->dim[2 + d], s->out[to] = y->dim[2 + d], s->kernel[to] = w->dim[2 + d];
    }
    if (!per_dim(v, A_strides, spatial, s->stride) || !per_dim(v, A_dilations, spatial, s->dilation))
        return false;
    bool fits = s->groups > 0 && s->cin % s->groups == 0 && s->cout % s->groups == 0;
    if (fits && !transposed) fits = w->dim[0] == s->cout && w->dim[1] == s->cin / s->groups;
    if (fits && transposed) fits = w->dim[0] == s->cin && w->dim[1] == s->cout / s->groups;
    if (!fits) return ev_fail(v, "x, weight and groups don't fit");
    const char *type = ev_text(v, A_pad_type, "valid");
    if (!strcmp(type, "custom")) return custom_pads(v, spatial, s->pad);
    if (!strcmp(type, "valid")) return true;
    bool lower = !strcmp(type, "same_lower");
    for (int d = 0; d < SPATIAL; d++) {
        int64_t a = transposed ? s->in[d] : s->out[d], b = transposed ? s->out[d] : s->in[d];
        int64_t total = (a - 1) * s->stride[d] + (s->kernel[d] - 1) * s->dilation[d] + 1 - b;
        s->pad[d] = total <= 0 ? 0 : lower ? (total + 1) / 2 : total / 2;
    }
    return true;
}

/* Output indices o in [*lo, *hi) whose input index o * stride + at lies in [0, in). */
static void valid_range(int64_t at, int64_t stride, int64_t in, int64_t out, int64_t *lo, int64_t *hi) {
    *lo = at >= 0 ? 0 : (-at + stride - 1) / stride;
    *hi = in - at <= 0 ? 0 : (in - at + stride - 1) / stride;
    if (*hi > out) *hi = out;
}

/* y[out] += w * x[in shifted by the kernel offset] over one channel plane. */
static void add_plane(float *y, const float *x, float w, const shape *s, const int64_t *k) {
    int64_t at[SPATIAL], lo[SPATIAL], hi[SPATIAL];
    for (int d = 0; d < SPATIAL; d++) {
        at[d] = k[d] * s->dilation[d] - s->pad[d];
        valid_range(at[d], s->stride[d], s->in[d], s->out[d], &lo[d], &hi[d]);
    }
    for (int64_t a = lo[0]; a < hi[0]; a++)
        for (int64_t b = lo[1]; b < hi[1]; b++) {
            float *row = y + (a * s->out[1] + b) * s->out[2];
            const float *in =
                x + ((a * s->stride[0] + at[0]) * s->in[1] + b * s->stride[1] + at[1]) * s->in[2] + at[2];
            if (s->stride[2] == 1)
                for (int64_t c = lo[2]; c < hi[2]; c++) row[c] += w * in[c];
            else
                for (int64_t c = lo[2]; c < hi[2]; c++) row[c] += w * in[c * s->stride[2]];
        }
}

static bool conv_general(ref_eval *v, const shape *s, const float *x) {
    const ref_tensor *tw = ev_in(v, A_weight);
    int64_t taps = product(s->kernel), cg = s->cin / s->groups, og = s->cout / s->groups;
    int64_t in = product(s->in), out = product(s->out);
    float *w = ev_temp(v, cg * taps), *y = ref_floats(&v->out[0]);
    if (!w) return false;
    memset(y, 0, (size_t)ref_count(&v->out[0]) * 4);
    for (int64_t o = 0; o < s->cout; o++) {
        ref_read(tw, o * cg * taps, cg * taps, w);
        for (int64_t b = 0; b < s->n; b++)
            for (int64_t i = 0; i < cg * taps; i++) {
                int64_t t = i % taps, k[SPATIAL] = {t / (s->kernel[1] * s->kernel[2]),
                                                    t / s->kernel[2] % s->kernel[1], t % s->kernel[2]};
                int64_t c = o / og * cg + i / taps;
                add_plane(y + (b * s->cout + o) * out, x + (b * s->cin + c) * in, w[i], s, k);
            }
    }
    return true;
}

/* A kernel of one element is a matrix product. */
static bool conv_point(ref_eval *v, const shape *s, const float *x) {
    enum { ROWS = 64 };
    const ref_tensor *tw = ev_in(v, A_weight);
    int64_t plane = product(s->in);
    float *y = ref_floats(&v->out[0]);
    if (plane == 1) {
        ref_matrix b;
        if (!ref_weight(&b, tw, s->cin, s->cout) && !(b.data = ev_cells(v, tw))) return false;
        ref_gemm(y, x, s->n, &b);
        return true;
    }
    float *w = ev_temp(v, ROWS * s->cin);
    if (!w) return false;
    for (int64_t o = 0; o < s->cout; o += ROWS) {
        int64_t rows = s->cout - o < ROWS ? s->cout - o : ROWS;
        ref_read(tw, o * s->cin, rows * s->cin, w);
        for (int64_t b = 0; b < s->n; b++)
            ref_gemm(y + (b * s->cout + o) * plane, w, rows,
                     &(ref_matrix){.data = x + b * s->cin * plane, .k = s->cin, .n = plane});
    }
    return true;
}

static bool add_bias(ref_eval *v, const shape *s) {
    const ref_tensor *tb = ev_in(v, A_bias);
    if (!tb) return true;
    const float *b = ev_floats(v, tb);
    if (!b) return false;
    if (ref_count(tb) != s->cout) return ev_fail(v, "bias must have %lld values", (long long)s->cout);
    int64_t plane = product(s->out);
    float *y = ref_floats(&v->out[0]);
    for (int64_t i = 0; i < s->n * s->cout; i++)
        for (int64_t j = 0; j < plane; j++) y[i * plane + j] += b[i % s->cout];
    return true;
}

bool ev_conv(ref_eval *v) {
    shape s;
    const float *x = ev_floats(v, ev_in(v, A_x));
    if (!x || !read_shape(v, &s, false) || !ev_new(v, 0)) return false;
    bool point = s.groups == 1 && product(s.kernel) == 1 && product(s.stride) == 1 &&
                 s.pad[0] + s.pad[1] + s.pad[2] == 0 && !memcmp(s.in, s.out, sizeof s.in);
    return (point ? conv_point : conv_general)(v, &s, x) && add_bias(v, &s);
}

/* Every input element adds its weighted kernel to the output, at index * stride + tap * dilation - pad. */
static void scatter_plane(float *y, const float *x, const float *w, const shape *s) {
    for (int64_t i = 0, n = product(s->in); i < n; i++)
        for (int64_t t = 0, taps = product(s->kernel); t < taps; t++) {
            int64_t at[SPATIAL],
                idx[SPATIAL] = {i / (s->in[1] * s->in[2]), i / s->in[2] % s->in[1], i % s->in[2]};
            int64_t tap[SPATIAL] = {t / (s->kernel[1] * s->kernel[2]), t / s->kernel[2] % s->kernel[1],
                                    t % s->kernel[2]};
            bool inside = true;
            for (int d = 0; d < SPATIAL; d++) {
                at[d] = idx[d] * s->stride[d] + tap[d] * s->dilation[d] - s->pad[d];
                inside = inside && at[d] >= 0 && at[d] < s->out[d];
            }
            if (inside) y[(at[0] * s->out[1] + at[1]) * s->out[2] + at[2]] += x[i] * w[t];
        }
}

bool ev_conv_transpose(ref_eval *v) {
    shape s;
    const float *x = ev_floats(v, ev_in(v, A_x));
    if (!x || !read_shape(v, &s, true) || !ev_new(v, 0)) return false;
    const ref_tensor *tw = ev_in(v, A_weight);
    int64_t taps = product(s.kernel), cg = s.cin / s.groups, og = s.cout / s.groups;
    int64_t in = product(s.in), out = product(s.out);
    float *w = ev_temp(v, og * taps), *y = ref_floats(&v->out[0]);
    if (!w) return false;
    memset(y, 0, (size_t)ref_count(&v->out[0]) * 4);
    for (int64_t c = 0; c < s.cin; c++) {
        ref_read(tw, c * og * taps, og * taps, w);
        for (int64_t b = 0; b < s.n; b++)
            for (int64_t o = 0; o < og; o++)
                scatter_plane(y + (b * s.cout + c / cg * og + o) * out, x + (b * s.cin + c) * in,
                              w + o * taps, &s);
    }
    return add_bias(v, &s);
}
