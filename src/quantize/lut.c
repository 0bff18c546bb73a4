/* Palettes: one table per group of output channels, optimal in the squared error. */
#include "base/num.h"
#include "base/parallel.h"
#include "quantize/job.h"
#include "quantize/palette.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HALVES 65536

/* Scratch memory of one thread. */
typedef struct {
    palette_work *work;
    uint32_t count[HALVES];
    uint8_t code[HALVES];
    double x[HALVES], weight[HALVES];
    uint16_t *halves; /* a group's weights */
    uint8_t *codes;
} scratch;

#define SLICE 4096 /* weights that are decoded at a time */

/* Halves in ascending order of value: negative ones from the largest magnitude down, then the others up. */
static inline uint16_t ascending(unsigned i) {
    return (uint16_t)(i < 0x8000 ? 0xFFFF - i : i - 0x8000);
}

static void count_values(scratch *s, const uint16_t *h, size_t n) {
    memset(s->count, 0, sizeof s->count);
    for (size_t i = 0; i < n; i++) s->count[h[i]]++;
    s->count[0] += s->count[0x8000]; /* -0 is 0 */
    s->count[0x8000] = 0;
}

/* The table of the counted group: centres as halves, ascending; unused entries repeat the last. */
static void fit_table(scratch *s, unsigned bits, uint16_t *table) {
    size_t distinct = 0, k = (size_t)1 << bits;
    double centre[PALETTE_MAX], error;
    for (unsigned i = 0; i < HALVES; i++) {
        uint16_t u = ascending(i);
        if (!s->count[u] || (u & 0x7C00) == 0x7C00)
            continue; /* infinities and NaN are reported by the scan */
        s->x[distinct] = (double)num_f16_f32(u);
        s->weight[distinct++] = s->count[u];
    }
    size_t used = distinct ? palette_fit(s->work, s->x, s->weight, distinct, k, centre, &error) : 0;
    for (size_t i = 0; i < k; i++) table[i] = used ? num_f32_f16((float)centre[i < used ? i : used - 1]) : 0;
}

static uint8_t nearest(const float *value, size_t k, float x) {
    size_t lo = 0, hi = k - 1;
    while (lo < hi) { /* first entry whose midpoint with the next is not below x */
        size_t mid = (lo + hi) / 2;
        if (value[mid] + value[mid + 1] < 2 * x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (uint8_t)lo;
}

/* Codes of the counted group, packed. */
static void encode(scratch *s, const uint16_t *h, size_t n, unsigned bits, const float *value, uint8_t *out) {
    size_t k = (size_t)1 << bits;
    for (unsigned u = 0; u < HALVES; u++)
        if (s->count[u]) s->code[u] = nearest(value, k, num_f16_f32((uint16_t)u));
    s->code[0x8000] = s->code[0];
    for (size_t i = 0; i < n; i++) s->codes[i] = s->code[h[i]];
    num_pack(out, s->codes, n, bits);
}

/* Decodes what was written and compares. */
static void check(scratch *s, const uint16_t *h, size_t n, unsigned bits, const float *value,
                  const uint8_t *packed, quant_sum *sum) {
    float x[SLICE], decoded[SLICE];
    for (size_t at = 0; at < n; at += SLICE) {
        size_t m = n - at < SLICE ? n - at : SLICE;
        num_unpack(s->codes, packed, at, m, bits);
        for (size_t i = 0; i < m; i++) decoded[i] = value[s->codes[i]];
        num_f16_to_f32(x, h + at, m);
        quant_measure(sum, x, decoded, m);
    }
}

typedef struct {
    quant_job *j;
    uint64_t first_group;
    uint8_t *out; /* packed codes; NULL while only tables are made */
    quant_sum *sum;
    scratch *s[PARALLEL_MAX];
    err error[PARALLEL_MAX];
} pass;

static void group_step(void *ctx, size_t i, unsigned thread) {
    pass *p = ctx;
    quant_job *j = p->j;
    unsigned bits = j->scheme.bits;
    size_t n = (size_t)(j->scheme.group * j->cols), k = (size_t)1 << bits;
    scratch *s = p->s[thread];
    uint64_t g = p->first_group + i;
    const uint16_t *h = quant_source(j, g * n, n, s->halves, &p->error[thread]);
    if (!h) return;
    count_values(s, h, n);
    if (g >= j->fitted) fit_table(s, bits, j->table + g * k);
    if (!p->out) return;
    float value[PALETTE_MAX];
    uint8_t *out = p->out + i * num_packed_size(n, bits);
    num_f16_to_f32(value, j->table + g * k, k);
    encode(s, h, n, bits, value, out);
    check(s, h, n, bits, value, out, &p->sum[i]);
}

static bool run_pass(pass *p, size_t groups, err *e) {
    quant_job *j = p->j;
    size_t n = (size_t)(j->scheme.group * j->cols), k = (size_t)1 << j->scheme.bits;
    unsigned threads = j->threads ? j->threads : parallel_cpus();
    if (threads > PARALLEL_MAX) threads = PARALLEL_MAX;
    bool ok = true;
    if (!j->table) j->table = arena_array(j->a, (size_t)(j->rows / j->scheme.group) * k, sizeof *j->table);
    for (unsigned t = 0; t < threads; t++) {
        scratch *s = p->s[t] = mem_try(1, sizeof *s);
        if (s) s->work = palette_work_new(), s->halves = mem_try(n, 2), s->codes = mem_try(n, 1);
        if (!s || !s->halves || !s->codes)
            ok = err_set(e, ERR_MEMORY, "no memory to compress %s", j->result->name);
    }
    if (ok) parallel_for(groups, threads, group_step, p);
    for (unsigned t = 0; t < threads; t++) {
        if (ok && p->error[t].code) *e = p->error[t], ok = false;
        if (!p->s[t]) continue;
        palette_work_free(p->s[t]->work);
        mem_free(p->s[t]->halves);
        mem_free(p->s[t]->codes);
        mem_free(p->s[t]);
    }
    uint64_t end = p->first_group + groups;
    if (ok && p->first_group <= j->fitted && j->fitted < end) j->fitted = end;
    return ok;
}

/* Tables are made together with the codes, or before them when they are asked for first. */
static bool fill_tables(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    quant_job *j = (quant_job *)ctx;
    uint64_t groups = (uint64_t)(j->rows / j->scheme.group);
    pass p = {.j = j, .first_group = j->fitted};
    if (j->fitted < groups && !run_pass(&p, (size_t)(groups - j->fitted), e)) return false;
    memcpy(dst, j->table + first, (size_t)n * 2);
    return true;
}

static bool fill_codes(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    quant_job *j = (quant_job *)ctx;
    uint64_t size = (uint64_t)(j->scheme.group * j->cols);
    size_t groups = (size_t)(n / size);
    pass p = {.j = j, .first_group = first / size, .out = dst, .sum = mem_try(groups, sizeof *p.sum)};
    bool ok =
        p.sum ? run_pass(&p, groups, e) : err_set(e, ERR_MEMORY, "no memory to compress %s", j->result->name);
    quant_begin(j, first);
    for (size_t i = 0; ok && i < groups; i++) quant_count(j, &p.sum[i]);
    mem_free(p.sum);
    return ok;
}

const ir_const *lut_codes(quant_job *j) {
    static const uint8_t type[] = {[4] = DT_UINT4, [6] = DT_UINT6, [8] = DT_UINT8};
    ir_const *c = ir_const_fill(j->a, IR_TYPE(type[j->scheme.bits], j->rows, j->cols), fill_codes, j);
    c->fill_unit = (uint64_t)(j->scheme.group * j->cols);
    return c;
}

const ir_const *lut_tables(quant_job *j) {
    return ir_const_fill(j->a, IR_TYPE(DT_FP16, j->rows / j->scheme.group, 1, 1 << j->scheme.bits, 1),
                         fill_tables, j);
}
