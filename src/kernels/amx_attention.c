/* Attention of many queries on AMX tiles: 128 query rows of a group at a time against 64 keys at a time, the
 * softmax as it comes. Products are those of pairs of bf16 (amx_pairs.h), which hold every number that fp16
 * has; keys and values that are kept more precisely are left to others. */
#include "kernels/amx_pairs.h"
#include "kernels/lanes_avx512.h"
/* the words of */
#include "kernels/body_exp.h"
#include "kernels/ops.h"
#include "kernels/overlay.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define ROWS 128
#define KEYS 64

/* In scratch, 64-byte aligned. */
typedef struct {
    char *q;            /* left, inner d */
    char *k, *v;        /* right, inner d; right, inner KEYS */
    char *turn;         /* keys as a left operand, of 16 */
    char *p;            /* weights: left, inner KEYS */
    float *score, *y;   /* [ROWS][KEYS], [ROWS][d_v] */
    float *top, *sum;   /* [ROWS], [ROWS][16]: by lane */
    const float **mask; /* [ROWS]: at key 0, or NULL */
    int64_t *seen;      /* [ROWS] */
} work;

size_t kern_amx_attention_scratch(int64_t d, int64_t d_v) {
    int64_t n = ROWS * d + KEYS * d + KEYS * d_v + 16 * d + 2 * ROWS * KEYS + ROWS * d_v + 17 * ROWS;
    return (size_t)n * 4 + ROWS * (sizeof(float *) + sizeof(int64_t)) + 64;
}

static work work_in(const kern_attention *job) {
    char *p = (char *)job->scratch + (-(uintptr_t)job->scratch & 63);
    work w;
    w.q = p, p += ROWS * job->d * 4;
    w.k = p, p += KEYS * job->d * 4;
    w.v = p, p += KEYS * job->d_v * 4;
    w.turn = p, p += 16 * job->d * 4;
    w.p = p, p += ROWS * KEYS * 4;
    w.score = (float *)(void *)p, p += ROWS * KEYS * 4;
    w.y = (float *)(void *)p, p += ROWS * job->d_v * 4;
    w.top = (float *)(void *)p, p += ROWS * 4;
    w.sum = (float *)(void *)p, p += ROWS * 64;
    w.mask = (const float **)(void *)p, p += ROWS * sizeof(float *);
    w.seen = (int64_t *)(void *)p;
    return w;
}

/* 16 numbers from element `at` on. */
INLINE __m512 load16(const kern_memory *m, int64_t at) {
    return v_half((const uint16_t *)m->value + at);
}

/* n keys and values from `key` on as operands; zeros behind them. */
static void load_keys(const kern_attention *job, const work *w, int64_t group, int64_t key, int64_t n) {
    int64_t steps = job->d / 32, k = group * job->k_step.outer + key * job->k_step.inner,
            v = group * job->v_step.outer + key * job->v_step.inner;
    for (int64_t j = 0; j < KEYS; j += 16) {
        for (int64_t i = j; i < j + 16; i++)
            for (int64_t c = 0; c < job->d; c += 32) {
                int64_t at = k + i * job->k_step.inner + c;
                __m512 a = i < n ? load16(&job->k, at) : _mm512_setzero_ps();
                __m512 b = i < n ? load16(&job->k, at + 16) : _mm512_setzero_ps();
                pair_put_row(w->turn + c / 32 * PAIR_TILE, i % 16, a, b);
            }
        for (int64_t s = 0; s < steps; s++)
            pair_turn(w->k + (j / 16 * steps + s) * PAIR_TILE, w->turn + s * PAIR_TILE);
    }
    for (int64_t i = 0; i < KEYS; i += 2)
        for (int64_t c = 0; c < job->d_v; c += 16) {
            int64_t at = v + i * job->v_step.inner + c;
            __m512 a = i < n ? load16(&job->v, at) : _mm512_setzero_ps();
            __m512 b = i + 1 < n ? load16(&job->v, at + job->v_step.inner) : _mm512_setzero_ps();
            pair_put(w->v + (c / 16 * (KEYS / 32) + i / 32) * PAIR_TILE, i % 32 / 2, a, b);
        }
}

/* The sums so far of a row, times factor. */
INLINE void rescale(float *y, int64_t n, float factor) {
    for (int64_t c = 0; c < n; c += 16)
        _mm512_store_ps(y + c, _mm512_mul_ps(_mm512_load_ps(y + c), _mm512_set1_ps(factor)));
}

/* Weights may be as large as exp of this: what is subtracted from scores, the maximum once, need not follow
 * each new one, and sums need not be rescaled for it. */
#define SLACK 10.0f
/* Smaller weights than exp of this are 0, far below what sums of fp32 keep: numbers that small take the
 * processor a hundred cycles where they have no exponent left. */
#define LEAST -60.0f

/* Scores of row i to weights exp(score - about the maximum so far), as an operand. */
static void weigh(const kern_attention *job, const work *w, int64_t i, int64_t key) {
    const float *s = w->score + i * KEYS, *mask = w->mask[i] ? w->mask[i] + key : NULL;
    int64_t n = w->seen[i] - key;
    float *total = w->sum + i * 16;
    __m512 v[4], most = _mm512_set1_ps(-INFINITY), sum = _mm512_load_ps(total);
    EACH (u, 4) {
        __mmask16 there = first16(n - 16 * u);
        v[u] = _mm512_load_ps(s + 16 * u);
        if (mask) v[u] = _mm512_add_ps(v[u], _mm512_maskz_loadu_ps(there, mask + 16 * u));
        v[u] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), there, v[u]);
        most = _mm512_max_ps(v[u], most);
    }
    float less = w->top[i];
    if (_mm512_cmp_ps_mask(most, _mm512_set1_ps(less + SLACK), _CMP_GT_OQ)) {
        float top = _mm512_reduce_max_ps(most), factor = expf(less - top);
        w->top[i] = less = top;
        sum = _mm512_mul_ps(sum, _mm512_set1_ps(factor));
        rescale(w->y + i * job->d_v, job->d_v, factor);
    }
    __m512 by = _mm512_set1_ps(less < -FLT_MAX ? 0 : less);
    EACH (u, 4) {
        v[u] = _mm512_sub_ps(v[u], by);
        __mmask16 counts = _mm512_cmp_ps_mask(v[u], _mm512_set1_ps(LEAST), _CMP_NLT_UQ);
        v[u] = _mm512_maskz_mov_ps(counts, v_exp(_mm512_max_ps(_mm512_set1_ps(LEAST), v[u])));
        sum = _mm512_add_ps(sum, v[u]);
    }
    char *to = w->p + i / 16 * (KEYS / 32) * PAIR_TILE;
    pair_put_row(to, i % 16, v[0], v[1]);
    pair_put_row(to + PAIR_TILE, i % 16, v[2], v[3]);
    _mm512_store_ps(total, sum);
}

/* Keys that query t sees. */
static int64_t seen_by(const kern_attention *job, int64_t t) {
    int64_t n = job->visible ? job->visible[t] : job->mask ? job->keys : job->first + t + 1;
    return n > job->keys ? job->keys : n < 0 ? 0 : n;
}

/* Query rows first .. first + rows of a group, token by token; returns how many keys they see. */
static int64_t start_rows(const kern_attention *job, const work *w, int64_t group, int64_t first,
                          int64_t rows, int64_t all) {
    int64_t shared = job->heads / job->groups, end = 0;
    for (int64_t i = 0; i < all; i++) {
        int64_t row = first + (i < rows ? i : 0), t = row / shared, head = group * shared + row % shared;
        const float *q = job->q + head * job->q_step.outer + t * job->q_step.inner;
        __m512 scale = _mm512_set1_ps(job->scale);
        for (int64_t c = 0; c < job->d; c += 32)
            pair_put_row(w->q + (i / 16 * (job->d / 32) + c / 32) * PAIR_TILE, i % 16,
                         _mm512_mul_ps(_mm512_loadu_ps(q + c), scale),
                         _mm512_mul_ps(_mm512_loadu_ps(q + c + 16), scale));
        w->top[i] = -INFINITY;
        _mm512_store_ps(w->sum + i * 16, _mm512_setzero_ps());
        w->mask[i] = job->mask ? job->mask + t * job->ldm : NULL;
        w->seen[i] = i < rows ? seen_by(job, t) : 0;
        if (w->seen[i] > end) end = w->seen[i];
    }
    memset(w->y, 0, (size_t)(all * job->d_v) * 4);
    return end;
}

static void finish_row(const kern_attention *job, const work *w, int64_t group, int64_t row, int64_t i) {
    int64_t shared = job->heads / job->groups, t = row / shared, head = group * shared + row % shared;
    float *y = job->y + head * job->y_step.outer + t * job->y_step.inner;
    const float *gate = NULL;
    if (job->gate) gate = job->gate + head * job->gate_step.outer + t * job->gate_step.inner;
    __m512 factor = _mm512_set1_ps(1 / tree(_mm512_load_ps(w->sum + i * 16)));
    for (int64_t c = 0; c < job->d_v; c += 16) {
        __m512 v = _mm512_mul_ps(_mm512_load_ps(w->y + i * job->d_v + c), factor);
        if (gate) v = _mm512_mul_ps(v, v_sigmoid(_mm512_loadu_ps(gate + c)));
        _mm512_storeu_ps(y + c, v);
    }
}

static void item(const kern_attention *job, const work *w, int64_t group, int64_t first, int64_t rows) {
    int64_t all = (rows + 15) / 16 * 16, steps = job->d / 32, inner = KEYS / 32;
    int64_t end = start_rows(job, w, group, first, rows, all);
    int64_t from = 0; /* rows before it see none of the keys that come */
    for (int64_t key = 0; key < end; key += KEYS) {
        while (w->seen[from] <= key) from++;
        int64_t r = from / 32 * 32, tiles = (all - r) / 16;
        load_keys(job, w, group, key, end - key < KEYS ? end - key : KEYS);
        pair_multiply(&(pair_product){w->score + r * KEYS, KEYS, w->q + r * job->d * 4, w->k, tiles,
                                      KEYS / 16, steps, steps, false, false});
        for (int64_t i = r; i < all; i++) weigh(job, w, i, key);
        pair_multiply(&(pair_product){w->y + r * job->d_v, job->d_v, w->p + r * KEYS * 4, w->v, tiles,
                                      job->d_v / 16, inner, inner, true, false});
    }
    for (int64_t i = 0; i < rows; i++) finish_row(job, w, group, first + i, i);
}

void kern_amx_attend(const kern_attention *job, int64_t lo, int64_t hi) {
    int64_t rows = job->heads / job->groups * job->tokens, blocks = (rows + ROWS - 1) / ROWS;
    bool half = job->k.type == KERN_F16 && !job->k.rest && job->v.type == KERN_F16 && !job->v.rest;
    if (job->tokens < KERN_MANY || rows < 32 || job->d % 32 || job->d_v % 16 || !half) {
        kern_ops others;
        kern_ops_avx512(&others);
        others.attend(job, lo, hi);
        return;
    }
    work w = work_in(job);
    int64_t n = blocks * job->groups;
    tiles_on();
    for (int64_t i = n * lo / job->units; i < n * hi / job->units; i++) {
        /* long and short ones by turns, so that neighbouring shares have equal work */
        int64_t b = i % blocks, first = (b % 2 ? blocks - 1 - b / 2 : b / 2) * ROWS;
        item(job, &w, i / blocks, first, rows - first < ROWS ? rows - first : ROWS);
    }
    _tile_release();
}
