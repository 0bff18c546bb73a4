#include "checkpoint/tensor.h"
#include "base/file.h"
#include "base/num.h"

/* Stored place of element i, and how many elements behind it lie behind that. */
static int64_t order_of(const tensor_order *o, int64_t i, int64_t *run) {
    int64_t head, within;
    *run = INT64_MAX;
    if (o->kind == ORDER_SAME) return i;
    if (i < o->first) {
        *run = o->first - i;
        return i;
    }
    head = (i - o->first) / o->unit, within = (i - o->first) % o->unit;
    if (o->kind == ORDER_PAIRS) {
        int64_t half = o->unit / 2;
        *run = 1;
        return o->first + head * o->unit + within % half * 2 + within / half;
    }
    *run = o->unit - within;
    return o->first + (head % o->each * o->groups + head / o->each) * o->unit + within;
}

/* A stretch of the tensor that lies in one piece. */
typedef struct {
    uint64_t at, n;
} stretch;

static stretch stretch_at(const tensor_view *v, uint64_t first, uint64_t n) {
    int64_t row = (int64_t)first / v->cols, col = (int64_t)first % v->cols, rows, cols;
    uint64_t at = (uint64_t)(order_of(&v->row, row, &rows) * v->cols + order_of(&v->col, col, &cols));
    uint64_t most = (uint64_t)(v->cols - col);
    if (v->col.kind != ORDER_SAME)
        most = (uint64_t)cols < most ? (uint64_t)cols : most;
    else if (rows > 1)
        most = (uint64_t)rows < n / (uint64_t)v->cols + 2 ? most + (uint64_t)((rows - 1) * v->cols) : n;
    return (stretch){at, most < n ? most : n};
}

/* Stored elements [first, first + n), in whichever blocks. */
static void decode(const tensor_view *v, uint64_t first, uint64_t n, float *out) {
    uint64_t size = v->form->values;
    while (n) {
        const uint8_t *block = v->data + first / size * v->form->bytes;
        uint64_t skip = first % size, m = n / size * size;
        if (skip || !m) { /* a part of a block */
            float part[GGUF_MAX_BLOCK];
            m = size - skip < n ? size - skip : n;
            v->form->decode(part, block, 1);
            memcpy(out, part + skip, m * sizeof *out);
        } else {
            v->form->decode(out, block, (size_t)(m / size));
        }
        first += m, n -= m, out += m;
    }
}

static void view_floats(const tensor_view *v, uint64_t first, uint64_t n, float *out) {
    while (n) {
        stretch s = stretch_at(v, first, n);
        decode(v, s.at, s.n, out);
        first += s.n, n -= s.n, out += s.n;
    }
}

bool st_floats(const st_tensor *t, uint64_t first, uint64_t n, float *out) {
    if (t->view) return view_floats(t->view, first, n, out), true;
    const uint8_t *p = (const uint8_t *)t->data + first * dtype_bits((ir_dtype)t->type.dtype) / 8;
    switch (t->type.dtype) {
    case DT_FP32: memcpy(out, p, n * sizeof *out); return true;
    case DT_FP16: num_f16_to_f32(out, p, n); return true;
    case DT_BF16: num_bf16_to_f32(out, p, n); return true;
    default: return false;
    }
}

const void *st_stored(const st_tensor *t, uint64_t *bytes) {
    *bytes = t->view ? t->view->bytes : (uint64_t)ir_type_bytes(&t->type);
    return t->view ? t->view->data : t->data;
}

/* Rows in another order are near each other in ways not worth following: their pages go at the end. */
void st_drop(const st_tensor *t, uint64_t first, uint64_t n) {
    const tensor_view *v = t->view;
    if (!v) {
        unsigned width = dtype_bits((ir_dtype)t->type.dtype) / 8;
        file_drop((const uint8_t *)t->data + first * width, (size_t)(n * width));
    } else if (v->row.kind == ORDER_SAME) {
        uint64_t size = v->form->values, begin = first / size, end = (first + n) / size;
        file_drop(v->data + begin * v->form->bytes, (size_t)((end - begin) * v->form->bytes));
    } else if (first + n == (uint64_t)(v->rows * v->cols)) {
        file_drop(v->data, (size_t)v->bytes);
    }
}

/* --- codes and scales --- */

void tensor_codes(const tensor_view *v, uint64_t first, uint64_t n, int8_t *out) {
    uint16_t scale;
    while (n) {
        stretch s = stretch_at(v, first, n);
        for (uint64_t i = 0; i < s.n; i += GGUF_KEPT_BLOCK)
            v->form->keep(out + i, &scale, v->data + (s.at + i) / GGUF_KEPT_BLOCK * v->form->bytes);
        first += s.n, n -= s.n, out += s.n;
    }
}

void tensor_scales(const tensor_view *v, uint64_t first, uint64_t n, uint16_t *out) {
    int8_t code[GGUF_KEPT_BLOCK];
    first *= GGUF_KEPT_BLOCK, n *= GGUF_KEPT_BLOCK;
    while (n) {
        stretch s = stretch_at(v, first, n);
        for (uint64_t i = 0; i < s.n; i += GGUF_KEPT_BLOCK)
            v->form->keep(code, out++, v->data + (s.at + i) / GGUF_KEPT_BLOCK * v->form->bytes);
        first += s.n, n -= s.n;
    }
}
