#include "base/num.h"
#include "reference/ops.h"
#include "reference/walk.h"
#include <string.h>

/* A table of values laid over a tensor's elements: a grid of the tensor's rank whose sizes divide its sizes.
 * The block of an element is [i_0 / b_0, ..] in row-major order of the grid. */
typedef struct {
    int rank;
    int64_t dim[IR_MAX_RANK], grid[IR_MAX_RANK];
    int64_t rows, row; /* rows along the last dimension, elements in one */
    int64_t per_block; /* elements of a row in one block */
} blocks;

static bool lay_blocks(ref_eval *v, const ir_type *t, const ir_type *grid, blocks *b) {
    *b = (blocks){.rank = t->rank, .rows = 1};
    if (t->rank < 1 || grid->rank < t->rank) return ev_fail(v, "the table's rank doesn't fit the data");
    for (int d = 0; d < t->rank; d++) {
        b->dim[d] = t->dim[d];
        b->grid[d] = grid->dim[d];
        if (grid->dim[d] < 1 || t->dim[d] % grid->dim[d])
            return ev_fail(v, "the table doesn't divide dimension %d", d);
        if (d + 1 < t->rank) b->rows *= t->dim[d];
    }
    b->row = t->dim[t->rank - 1];
    b->per_block = b->row / b->grid[t->rank - 1];
    return true;
}

/* The first block of a row; element j of the row is in block first + j / per_block. */
static int64_t row_block(const blocks *b, int64_t row) {
    int64_t at = 0, step = b->grid[b->rank - 1];
    for (int d = b->rank - 2; d >= 0; d--) {
        at += row % b->dim[d] / (b->dim[d] / b->grid[d]) * step;
        row /= b->dim[d];
        step *= b->grid[d];
    }
    return at;
}

/* Elements as fp32, integers converted; NULL on error. */
static const float *as_floats(ref_eval *v, const ref_tensor *t) {
    const ref_cell *c = ev_cells(v, t);
    if (!c || dtype_is_float(t->type.dtype)) return (const float *)(const void *)c;
    int64_t n = ref_count(t);
    float *f = ev_temp(v, n);
    if (f)
        for (int64_t i = 0; i < n; i++) f[i] = (float)(int32_t)c[i];
    return f;
}

/* Elements [first, first + n) as fp32. */
static void read_floats(const ref_tensor *t, int64_t first, int64_t n, float *f) {
    ref_read(t, first, n, f);
    if (dtype_is_float(t->type.dtype)) return;
    for (int64_t i = 0; i < n; i++) {
        int32_t k;
        memcpy(&k, &f[i], 4);
        f[i] = (float)k;
    }
}

/* ---- palettes ---- */

typedef struct {
    blocks b;
    const ref_cell *lut;
    int64_t entries, vector; /* values per table, cells per value */
    int axis;                /* that grows `vector` times */
} palette;

static bool open_palette(ref_eval *v, const ir_type *indices, palette *p) {
    const ref_tensor *tl = ev_in(v, A_lut);
    int k = indices->rank;
    if (tl->type.rank != k + 2) return ev_fail(v, "lut must have rank %d", k + 2);
    p->lut = ev_cells(v, tl);
    p->entries = tl->type.dim[k];
    p->vector = tl->type.dim[k + 1];
    if (!p->lut || !lay_blocks(v, indices, &tl->type, &p->b)) return false;
    p->axis = ir_in(v->op, A_vector_axis) ? ev_axis(v, A_vector_axis, 0, k) : 0;
    return p->axis >= 0 && p->entries > 0 && p->vector > 0;
}

/* Looks up one row of indices and puts the values where they belong in the dense result. */
static bool look_up_row(ref_eval *v, const palette *p, int64_t row, const int32_t *index, ref_cell *dense) {
    int64_t first = row_block(&p->b, row), inner = 1;
    for (int d = p->axis + 1; d < p->b.rank; d++) inner *= p->b.dim[d];
    for (int64_t j = 0; j < p->b.row; j++) {
        if (index[j] < 0 || index[j] >= p->entries)
            return ev_fail(v, "index %d is not in the table", (int)index[j]);
        const ref_cell *value = p->lut + ((first + j / p->b.per_block) * p->entries + index[j]) * p->vector;
        int64_t at = row * p->b.row + j;
        for (int64_t c = 0; c < p->vector; c++)
            dense[(at / inner * p->vector + c) * inner + at % inner] = value[c];
    }
    return true;
}

/* CoreML6 and 7: a flat bit stream of indices and one table. */
static bool lut_by_shape(ref_eval *v) {
    const ref_tensor *ti = ev_in(v, A_indices), *tl = ev_in(v, A_lut);
    const ref_cell *lut = ev_cells(v, tl);
    int64_t n = ir_type_count(&v->out[0].type), entries = ref_count(tl);
    unsigned bits = 0;
    while (bits < 8 && 1 << bits < entries) bits++;
    if (!ti->konst || ti->type.dtype != DT_UINT8 ||
        (size_t)ref_count(ti) < num_packed_size((size_t)n, bits) || !bits)
        return ev_fail(v, "indices must be a constant bit stream of %u-bit codes", bits);
    if (!lut || !ev_new(v, 0)) return false;
    uint8_t code[256];
    for (int64_t at = 0; at < n; at += 256) {
        int64_t k = n - at < 256 ? n - at : 256;
        num_unpack(code, ti->konst->data, (size_t)at, (size_t)k, bits);
        for (int64_t i = 0; i < k; i++) {
            if (code[i] >= entries) return ev_fail(v, "index %d is not in the table", code[i]);
            v->out[0].cell[at + i] = lut[code[i]];
        }
    }
    return true;
}

bool ev_lut_to_dense(ref_eval *v) {
    if (ir_in(v->op, A_shape)) return lut_by_shape(v);
    const ref_tensor *ti = ev_in(v, A_indices);
    palette p;
    if (!open_palette(v, &ti->type, &p) || !ev_new(v, 0)) return false;
    int32_t *index = ev_temp(v, p.b.row);
    for (int64_t r = 0; index && r < p.b.rows; r++) {
        ref_read(ti, r * p.b.row, p.b.row, index);
        if (!look_up_row(v, &p, r, index, v->out[0].cell)) return false;
    }
    return index != NULL;
}

/* ---- scales ---- */

/* f = scale * (f - offset) over one row. */
static void scale_row(const blocks *b, int64_t row, float *f, const float *scale, const float *offset) {
    int64_t first = row_block(b, row);
    for (int64_t j = 0; j < b->row; j++) {
        int64_t at = first + j / b->per_block;
        f[j] = scale[at] * (offset ? f[j] - offset[at] : f[j]);
    }
}

static bool open_scales(ref_eval *v, const ir_type *data, blocks *b, const float **scale,
                        const float **offset) {
    const ref_tensor *ts = ev_in(v, A_scale), *to = ev_in(v, A_offset);
    *scale = as_floats(v, ts);
    *offset = to ? as_floats(v, to) : NULL;
    if (to && *scale && ref_count(to) != ref_count(ts))
        return ev_fail(v, "offset must have the shape of scale");
    return *scale && (!to || *offset) && lay_blocks(v, data, &ts->type, b);
}

bool ev_blockwise(ref_eval *v) {
    const ref_tensor *td = ev_in(v, A_data);
    const float *scale, *offset;
    blocks b;
    if (!open_scales(v, &td->type, &b, &scale, &offset) || !ev_new(v, 0)) return false;
    float *o = ref_floats(&v->out[0]);
    for (int64_t r = 0; r < b.rows; r++) {
        read_floats(td, r * b.row, b.row, o + r * b.row);
        scale_row(&b, r, o + r * b.row, scale, offset);
    }
    return true;
}

bool ev_affine_dequantize(ref_eval *v) {
    const ref_tensor *td = ev_in(v, A_quantized_data), *ts = ev_in(v, A_scale), *tz = ev_in(v, A_zero_point);
    const float *scale = as_floats(v, ts), *zero = as_floats(v, tz);
    int axis = ev_axis(v, A_axis, 0, td->type.rank);
    if (!scale || !zero || axis < 0 || !ev_new(v, 0)) return false;
    int64_t n = td->type.dim[axis], inner = ref_inner(&td->type, axis), ns = ref_count(ts),
            nz = ref_count(tz);
    if ((ns != 1 && ns != n) || (nz != 1 && nz != n))
        return ev_fail(v, "scale and zero_point must have 1 or %lld values", (long long)n);
    float *o = ref_floats(&v->out[0]);
    read_floats(td, 0, ref_count(td), o);
    for (int64_t i = 0, count = ref_count(td); i < count; i++) {
        int64_t k = i / inner % n;
        o[i] = scale[ns == 1 ? 0 : k] * (o[i] - zero[nz == 1 ? 0 : k]);
    }
    return true;
}

bool ev_constexpr_cast(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_source_val);
    if (!ev_new(v, 0)) return false;
    ref_read(t, 0, ref_count(t), v->out[0].cell);
    return true;
}

/* ---- sparse ---- */

static bool check_bits(ref_eval *v, int64_t set, const ref_tensor *values) {
    return set == ref_count(values) || ev_fail(v, "the mask has %lld bits set for %lld values",
                                               (long long)set, (long long)ref_count(values));
}

/* The mask as cells of 0 and 1. Before CoreML8 it is a bit stream in bytes. */
static int32_t *read_mask(ref_eval *v, const ref_tensor *t, int64_t n) {
    int32_t *mask = ev_temp(v, n);
    if (!mask) return NULL;
    if (t->type.dtype != DT_UINT8) {
        ref_read(t, 0, n, mask);
        return mask;
    }
    if (!t->konst || (size_t)ref_count(t) < num_packed_size((size_t)n, 1)) {
        ev_error(v, "mask must be a constant bit stream");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) mask[i] = ((const uint8_t *)t->konst->data)[i / 8] >> (i % 8) & 1;
    return mask;
}

static int64_t count_set(const int32_t *mask, int64_t n) {
    int64_t set = 0;
    for (int64_t i = 0; i < n; i++) set += mask[i] != 0;
    return set;
}

bool ev_sparse_to_dense(ref_eval *v) {
    const ref_tensor *tv = ev_in(v, A_nonzero_data), *tm = ev_in(v, A_mask);
    int64_t n = ir_type_count(&v->out[0].type), k = 0;
    const ref_cell *values = ev_cells(v, tv);
    if (!tm->type.rank || (tm->type.dtype != DT_UINT8 && ref_count(tm) != n))
        return ev_fail(v, "mask doesn't fit");
    const int32_t *mask = read_mask(v, tm, n);
    if (!values || !mask || !check_bits(v, count_set(mask, n), tv) || !ev_new(v, 0)) return false;
    for (int64_t i = 0; i < n; i++) v->out[0].cell[i] = mask[i] ? values[k++] : 0;
    return true;
}

/* Results: the mask (each bit `vector` times along the axis) and the values under it, in its order. A value's
 * table is decided by its dense position. */
bool ev_lut_to_sparse(ref_eval *v) {
    const ref_tensor *tm = ev_in(v, A_indices_mask), *ti = ev_in(v, A_indices_nonzero_data);
    int64_t n = ref_count(tm), k = 0;
    const int32_t *code = ev_ints(v, ti);
    palette p;
    if (!code || !open_palette(v, &tm->type, &p)) return false;
    int32_t *mask = read_mask(v, tm, n), *index = ev_temp(v, p.b.row);
    ref_cell *dense = ev_temp(v, ir_type_count(&v->out[0].type));
    if (!mask || !index || !dense || !check_bits(v, count_set(mask, n), ti) || !ev_new(v, 0) || !ev_new(v, 1))
        return false;
    for (int64_t r = 0; r < p.b.rows; r++) {
        for (int64_t j = 0; j < p.b.row; j++) index[j] = mask[r * p.b.row + j] ? code[k++] : 0;
        if (!look_up_row(v, &p, r, index, dense)) return false;
    }
    int64_t inner = ref_inner(&tm->type, p.axis), wide = ref_count(&v->out[0]);
    k = 0;
    for (int64_t i = 0; i < wide; i++) {
        bool set = mask[i / (inner * p.vector) * inner + i % inner];
        ref_ints(&v->out[0])[i] = set;
        if (set) v->out[1].cell[k++] = dense[i];
    }
    return true;
}

bool ev_sparse_blockwise(ref_eval *v) {
    const ref_tensor *tm = ev_in(v, A_data_mask), *td = ev_in(v, A_nonzero_data);
    const float *scale, *offset, *data = as_floats(v, td);
    int64_t n = ref_count(tm), k = 0, at = 0;
    blocks b;
    if (!data || !open_scales(v, &tm->type, &b, &scale, &offset)) return false;
    int32_t *mask = read_mask(v, tm, n);
    float *row = ev_temp(v, b.row);
    if (!mask || !row || !check_bits(v, count_set(mask, n), td) || !ev_new(v, 0) || !ev_new(v, 1))
        return false;
    for (int64_t r = 0; r < b.rows; r++) {
        const int32_t *bits = mask + r * b.row;
        for (int64_t j = 0; j < b.row; j++) row[j] = bits[j] ? data[k++] : 0;
        scale_row(&b, r, row, scale, offset);
        for (int64_t j = 0; j < b.row; j++)
            if (bits[j]) ref_floats(&v->out[1])[at++] = row[j];
    }
    memcpy(v->out[0].cell, mask, (size_t)n * 4);
    return true;
}
