/* Attention of many queries on AMX tiles: up to ROWS query rows of a group at a time against CHUNK keys at a
 * time, of which each BLOCK of rows takes KEYS at a time, the softmax as it comes. Products are those of
 * pairs of bf16 (amx_pairs.h), which hold every number that fp16 has; keys and values that are kept more
 * precisely are left to others.
 *
 * All products are turned: scores are keys x queries, results d_v x queries. So vectors are of 16 queries,
 * maxima and sums stay in their lanes, and weights are right operands as they come. What belongs to a block
 * of rows stays in the first cache while keys and values, made operands once for all rows, come from the
 * second. */
#include "kernels/amx_pairs.h"
#include "kernels/lanes_avx512.h"
/* the words of */
#include "kernels/body_exp.h"
#include "kernels/ops.h"
#include "kernels/overlay.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define BLOCK 32
#define KEYS  64
#define STEPS (KEYS / 32)
#define ROWS  512       /* at most */
#define PART  (1 << 19) /* bytes of operands that rows may have, and keys: they share the second cache */

/* How many rows, or keys, of d and d_v elements there are at a time. */
static int64_t at_a_time(int64_t d, int64_t d_v) {
    int64_t n = PART / 4 / (d + d_v) / KEYS * KEYS;
    return n < KEYS ? KEYS : n > ROWS ? ROWS : n;
}

#define STREAM (1 << 18) /* results of a call */
#define LOG2E  1.44269504088896341

/* In scratch, 64-byte aligned. */
typedef struct {
    int64_t rows, chunk; /* at a time: of queries, of keys */
    int64_t wanted, end; /* rows at hand; keys that one of them sees */
    char *q;             /* right operands: 16 rows, inner d */
    char *k, *v;         /* left: 16 keys, inner d; of KEYS keys: 16 of d_v, inner KEYS */
    char *turn;          /* a tile, or 16 rows of d, before it is turned */
    char *p;             /* weights of a block: right, 16 rows, inner KEYS */
    float *score, *y;    /* [KEYS][BLOCK]; for each block [d_v][BLOCK] */
    float top[ROWS], sum[ROWS];
    const float *mask[ROWS]; /* at key 0, or NULL: it hides nothing that is seen */
    int32_t token[ROWS], head[ROWS];
    int32_t seen[ROWS];         /* keys */
    int64_t most[ROWS / BLOCK]; /* that a row of the block sees */
    int64_t least[ROWS / 16];   /* that each of 16 rows sees */
    bool masked[ROWS / 16];     /* one of 16 rows has a mask */
} work;

size_t kern_amx_attention_scratch(int64_t d, int64_t d_v) {
    int64_t n = 2 * at_a_time(d, d_v) * (d + d_v) + 16 * d + 2 * BLOCK * KEYS;
    return (size_t)n * 4 + (sizeof(work) + 63) / 64 * 64 + 64;
}

static work *work_in(const kern_attention *job) {
    char *p = (char *)job->scratch + (-(uintptr_t)job->scratch & 63);
    work *w = (work *)(void *)p;
    p += (sizeof(work) + 63) / 64 * 64;
    w->rows = w->chunk = at_a_time(job->d, job->d_v);
    w->q = p, p += w->rows * job->d * 4;
    w->y = (float *)(void *)p, p += w->rows * job->d_v * 4;
    w->k = p, p += w->chunk * job->d * 4;
    w->v = p, p += w->chunk * job->d_v * 4;
    w->turn = p, p += 16 * job->d * 4;
    w->p = p, p += BLOCK * KEYS * 4;
    w->score = (float *)(void *)p;
    return w;
}

/* ---- operands ---- */

/* 16 numbers from element `at` on. */
INLINE __m512 load16(const kern_memory *m, int64_t at) {
    return v_half((const uint16_t *)m->value + at);
}

/* Keys from .. to of a chunk as left operands; zeros up to a multiple of KEYS. */
static void load_keys(const kern_attention *job, const work *w, int64_t group, int64_t from, int64_t to) {
    int64_t steps = job->d / 32, at = group * job->k_step.outer + from * job->k_step.inner;
    int64_t n = to - from, all = (n + KEYS - 1) / KEYS * KEYS;
    for (int64_t i = 0; i < all; i++, at += job->k_step.inner)
        for (int64_t s = 0; s < steps; s++) {
            __m512 a = i < n ? load16(&job->k, at + 32 * s) : _mm512_setzero_ps();
            __m512 b = i < n ? load16(&job->k, at + 32 * s + 16) : _mm512_setzero_ps();
            pair_put_row(w->k + (i / 16 * steps + s) * PAIR_TILE, i % 16, a, b);
        }
}

/* Their values, turned. */
static void load_values(const kern_attention *job, const work *w, int64_t group, int64_t from, int64_t to) {
    int64_t step = job->v_step.inner, first = group * job->v_step.outer + from * step;
    int64_t n = to - from, all = (n + KEYS - 1) / KEYS * KEYS, tiles = job->d_v / 16;
    for (int64_t j = 0; j < all; j += 32)
        for (int64_t c = 0; c < tiles; c++) {
            for (int64_t i = j; i < j + 32; i += 2) {
                int64_t at = first + i * step + 16 * c;
                __m512 a = i < n ? load16(&job->v, at) : _mm512_setzero_ps();
                __m512 b = i + 1 < n ? load16(&job->v, at + step) : _mm512_setzero_ps();
                pair_put(w->turn, i % 32 / 2, a, b);
            }
            pair_turn(w->v + ((j / KEYS * tiles + c) * STEPS + j % KEYS / 32) * PAIR_TILE, w->turn);
        }
}

/* Keys that query t sees. */
static int64_t seen_by(const kern_attention *job, int64_t t) {
    int64_t n = job->visible ? job->visible[t] : job->mask ? job->keys : job->first + t + 1;
    return n > job->keys ? job->keys : n < 0 ? 0 : n;
}

INLINE const float *query_at(const kern_attention *job, const work *w, int64_t i) {
    return job->q + w->head[i] * job->q_step.outer + w->token[i] * job->q_step.inner;
}

/* BLOCK query rows from i on as right operands. Scores are logarithms to base 2. */
static void load_queries(const kern_attention *job, const work *w, int64_t i, char *to) {
    int64_t steps = job->d / 32;
    __m512 scale = _mm512_set1_ps((float)(job->scale * LOG2E));
    for (int64_t r = 0; r < BLOCK; r++) {
        const float *q = query_at(job, w, i + r);
        for (int64_t s = 0; s < steps; s++)
            pair_put_row(w->turn + s * PAIR_TILE, r % 16, _mm512_mul_ps(_mm512_loadu_ps(q + 32 * s), scale),
                         _mm512_mul_ps(_mm512_loadu_ps(q + 32 * s + 16), scale));
        for (int64_t s = 0; r % 16 == 15 && s < steps; s++)
            pair_turn(to + (r / 16 * steps + s) * PAIR_TILE, w->turn + s * PAIR_TILE);
    }
}

/* Query rows first .. first + rows of a group, token by token, and what they see; behind them, up to `all`,
 * the last one again, which sees nothing. Returns the most keys. */
static int64_t start_rows(const kern_attention *job, work *w, int64_t group, int64_t first, int64_t rows,
                          int64_t all) {
    int64_t end = 0, shared = job->heads / job->groups;
    for (int64_t i = 0; i < all; i++) {
        int64_t row = first + (i < rows ? i : rows - 1), t = row / shared,
                seen = i < rows ? seen_by(job, t) : 0;
        int64_t *most = &w->most[i / BLOCK], *least = &w->least[i / 16];
        bool clear = !job->mask || i >= rows || (job->clear && job->clear[t] >= seen);
        if (i % BLOCK == 0) *most = 0;
        if (i % 16 == 0) *least = seen, w->masked[i / 16] = false;
        if (*most < seen) *most = seen;
        if (*least > seen) *least = seen;
        w->token[i] = (int32_t)t, w->head[i] = (int32_t)(group * shared + row % shared);
        w->seen[i] = (int32_t)seen;
        w->mask[i] = clear ? NULL : job->mask + t * job->ldm;
        w->masked[i / 16] |= !clear;
        w->top[i] = -INFINITY, w->sum[i] = 0;
        if (seen > end) end = seen;
    }
    return end;
}

/* ---- products of a block of rows and KEYS keys ---- */

/* k: keys' operands; units: times 32 keys. */
static void multiply_keys(const kern_attention *job, const work *w, const char *q, const char *k,
                          int64_t units) {
    int64_t steps = job->d / 32;
    for (int64_t u = 0; u < units; u++)
        pair_result(w->score + 32 * u * BLOCK, BLOCK, k + 2 * u * steps * PAIR_TILE, q, steps, steps, false,
                    true, true, true);
}

/* add: to y, else in its place. */
INLINE void multiply_values(const kern_attention *job, const work *w, float *y, const char *v, int64_t units,
                            bool add) {
    int64_t tiles = job->d_v / 16, c = 0;
    for (; c + 1 < tiles; c += 2)
        pair_result(y + 16 * c * BLOCK, BLOCK, v + c * STEPS * PAIR_TILE, w->p, units, STEPS, add, true, true,
                    true);
    if (c < tiles)
        pair_result(y + 16 * c * BLOCK, BLOCK, v + c * STEPS * PAIR_TILE, w->p, units, STEPS, add, false,
                    true, true);
}

/* ---- weights ---- */

/* Weights may be as large as 2 to the power of this: what is subtracted from scores, the maximum once, need
 * not follow each new one, and sums need not be rescaled for it. */
#define SLACK 15.0f
/* Smaller weights than 2 to the power of this are 0, far below what sums of fp32 keep: numbers that small
 * take the processor a hundred cycles where they have no exponent left. */
#define LEAST -87.0f

/* Adds the masks of 16 rows to their scores of n keys, a multiple of 16. */
static void add_masks(const work *w, int64_t i, int64_t key, int64_t n, float *s) {
    for (int64_t j = 0; j < n; j += 16) {
        __m512i v[16];
        for (int64_t r = 0; r < 16; r++) {
            int64_t left = w->mask[i + r] ? w->seen[i + r] - key - j : 0;
            v[r] = left > 0 ? (__m512i)_mm512_maskz_loadu_ps(first16(left), w->mask[i + r] + key + j)
                            : _mm512_setzero_si512();
        }
        transpose16(v);
        for (int64_t r = 0; r < 16; r++) {
            float *to = s + (j + r) * BLOCK;
            _mm512_store_ps(to,
                            _mm512_fmadd_ps((__m512)v[r], _mm512_set1_ps((float)LOG2E), _mm512_load_ps(to)));
        }
    }
}

/* Scores that 16 rows don't see become -inf. */
static void hide(const work *w, int64_t i, int64_t key, int64_t n, float *s) {
    __m512i seen = _mm512_loadu_si512(w->seen + i);
    for (int64_t j = 0; j < n; j++) {
        __mmask16 hidden = _mm512_cmple_epi32_mask(seen, _mm512_set1_epi32((int32_t)(key + j)));
        _mm512_mask_store_ps(s + j * BLOCK, hidden, _mm512_set1_ps(-INFINITY));
    }
}

/* 2 to the power of score - less, 0 below LEAST; a relative error of 2e-7. What lies next to a whole number n
 * by at most 1/2 is a polynomial; n is added to its exponent. */
INLINE __m512 weight(__m512 score, __m512 less) {
    const __m512 magic = _mm512_set1_ps(0x1.8p23f); /* n is in the last bits of a sum with it */
    __m512 x = _mm512_sub_ps(score, less), n = _mm512_add_ps(x, magic);
    __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(LEAST), _CMP_NLT_UQ);
    __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(n, magic));
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.5bba14p-10f), r, _mm512_set1_ps(0x1.3cea88p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6b752p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebf9bcp-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e42ap-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(counts, _mm512_castps_si512(p), power));
}

/* What is to be subtracted from scores of 16 rows, the largest of which are `most`. Sums so far, also y
 * [d_v][BLOCK], follow. */
INLINE __m512 follow(work *w, int64_t i, __m512 most, float *y, int64_t d_v) {
    __m512 less = _mm512_loadu_ps(w->top + i);
    __mmask16 rises = _mm512_cmp_ps_mask(most, _mm512_add_ps(less, _mm512_set1_ps(SLACK)), _CMP_GT_OQ);
    if (rises) {
        __m512 top = _mm512_mask_mov_ps(less, rises, most);
        __m512 by = _mm512_mask_mov_ps(_mm512_set1_ps(1), rises, weight(less, top));
        bool any = _mm512_mask_cmp_ps_mask(rises, less, _mm512_set1_ps(-INFINITY), _CMP_NEQ_OQ);
        for (int64_t c = 0; any && c < d_v; c++, y += BLOCK)
            _mm512_store_ps(y, _mm512_mul_ps(_mm512_load_ps(y), by));
        _mm512_storeu_ps(w->sum + i, _mm512_mul_ps(_mm512_loadu_ps(w->sum + i), by));
        _mm512_storeu_ps(w->top + i, top);
        less = top;
    }
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(less, _mm512_set1_ps(-FLT_MAX), _CMP_NLT_UQ), less);
}

/* Scores of 16 rows from i on and n keys to weights 2^(score - about the maximum so far), as operands. y:
 * sums so far of these rows. */
static void weigh(work *w, int64_t i, int64_t key, int64_t n, float *y, int64_t d_v) {
    float *s = w->score + i % BLOCK;
    char *to = w->p + i % BLOCK / 16 * STEPS * PAIR_TILE;
    if (w->masked[i / 16]) add_masks(w, i, key, n, s);
    if (w->least[i / 16] < key + n) hide(w, i, key, n, s);
    __m512 most[2] = {_mm512_set1_ps(-INFINITY), _mm512_set1_ps(-INFINITY)};
    for (int64_t j = 0; j < n; j += 2)
        EACH (u, 2) most[u] = _mm512_max_ps(_mm512_load_ps(s + (j + u) * BLOCK), most[u]);
    __m512 less = follow(w, i, _mm512_max_ps(most[0], most[1]), y, d_v);
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t j = 0; j < n; j += 2) {
        __m512 v[2];
        EACH (u, 2) {
            v[u] = weight(_mm512_load_ps(s + (j + u) * BLOCK), less);
            sum[u] = _mm512_add_ps(sum[u], v[u]);
        }
        pair_put(to + j / 32 * PAIR_TILE, j % 32 / 2, v[0], v[1]);
    }
    sum[0] = _mm512_add_ps(sum[0], sum[1]);
    _mm512_storeu_ps(w->sum + i, _mm512_add_ps(_mm512_loadu_ps(w->sum + i), sum[0]));
}

/* ---- results ---- */

/* Results that outgrow the second cache needn't be fetched before they are written. */
static bool streams(const kern_attention *job) {
    return job->heads * job->tokens * job->d_v > STREAM && job->y_step.outer % 16 == 0 &&
           job->y_step.inner % 16 == 0 && (uintptr_t)job->y % 64 == 0;
}

/* Rows i .. i + n of y [d_v][BLOCK], n up to 16. */
static void finish_rows(const kern_attention *job, const work *w, int64_t i, int64_t n, const float *y) {
    __m512 factor = _mm512_div_ps(_mm512_set1_ps(1), _mm512_loadu_ps(w->sum + i));
    bool stream = streams(job);
    float *to[16];
    const float *gate[16];
    for (int64_t k = 0; k < n; k++) {
        int64_t h = w->head[i + k], t = w->token[i + k];
        to[k] = job->y + h * job->y_step.outer + t * job->y_step.inner;
        if (job->gate) gate[k] = job->gate + h * job->gate_step.outer + t * job->gate_step.inner;
    }
    for (int64_t c = 0; c < job->d_v; c += 16) {
        __m512i v[16];
        EACH (k, 16) v[k] = (__m512i)_mm512_mul_ps(_mm512_load_ps(y + (c + k) * BLOCK), factor);
        transpose16(v);
        for (int64_t k = 0; k < n; k++) {
            __m512 r = (__m512)v[k];
            if (job->gate) r = _mm512_mul_ps(r, v_sigmoid(_mm512_loadu_ps(gate[k] + c)));
            if (stream)
                _mm512_stream_ps(to[k] + c, r);
            else
                _mm512_storeu_ps(to[k] + c, r);
        }
    }
}

/* ---- all of it ---- */

/* Brings the queries of the next block, a part of them at a time, to the second cache. */
INLINE void fetch_queries(const kern_attention *job, const work *w, int64_t i, int64_t part, int64_t parts) {
    for (int64_t r = i + part * BLOCK / parts; r < i + (part + 1) * BLOCK / parts && r < w->wanted; r++) {
        const float *q = query_at(job, w, r);
        for (int64_t c = 0; c < job->d; c += 16) v_fetch(q + c);
    }
}

/* A block of rows from i on against keys from .. to of a chunk. */
static void block(const kern_attention *job, work *w, int64_t i, int64_t from, int64_t to) {
    int64_t at = w->end > w->chunk ? i : 0; /* only what goes on with another chunk is kept */
    int64_t most = w->most[i / BLOCK], last = most < to ? most : to, parts = (last - from + KEYS - 1) / KEYS;
    char *q = w->q + at * job->d * 4, *k = w->k, *v = w->v;
    float *y = w->y + at * job->d_v;
    if (!from) load_queries(job, w, i, q);
    if (!most) memset(y, 0, (size_t)(BLOCK * job->d_v) * 4);
    for (int64_t key = from; key < last; key += KEYS, k += KEYS * job->d * 4, v += KEYS * job->d_v * 4) {
        int64_t units = last - key < KEYS ? (last - key + 31) / 32 : STEPS;
        if (!from) fetch_queries(job, w, i + BLOCK, (key - from) / KEYS, parts);
        multiply_keys(job, w, q, k, units);
        EACH (u, 2) weigh(w, i + 16 * u, key, 32 * units, y + 16 * u, job->d_v);
        if (key)
            multiply_values(job, w, y, v, units, true);
        else
            multiply_values(job, w, y, v, units, false);
    }
    for (int64_t r = i; r < i + BLOCK && r < w->wanted && most <= to; r += 16)
        finish_rows(job, w, r, w->wanted - r < 16 ? w->wanted - r : 16, y + r - i);
}

/* Rows first .. first + rows of a group. */
static void attend_rows(const kern_attention *job, work *w, int64_t group, int64_t first, int64_t rows) {
    int64_t all = (rows + BLOCK - 1) / BLOCK * BLOCK, end = start_rows(job, w, group, first, rows, all);
    w->wanted = rows, w->end = end;
    for (int64_t from = 0; !from || from < end; from += w->chunk) {
        int64_t to = end - from < w->chunk ? end : from + w->chunk;
        load_keys(job, w, group, from, to);
        load_values(job, w, group, from, to);
        for (int64_t i = 0; i < all; i += BLOCK)
            if (!from || w->most[i / BLOCK] > from) block(job, w, i, from, to);
    }
}

void kern_amx_attend(const kern_attention *job, int64_t lo, int64_t hi) {
    int64_t rows = job->heads / job->groups * job->tokens;
    bool half = job->k.type == KERN_F16 && !job->k.rest && job->v.type == KERN_F16 && !job->v.rest;
    if (job->tokens < KERN_MANY || rows < 32 || job->d % 32 || job->d_v % 16 || !half) {
        kern_ops others;
        kern_ops_avx512(&others);
        others.attend(job, lo, hi);
        return;
    }
    work *w = work_in(job);
    int64_t blocks = (rows + w->rows - 1) / w->rows, n = blocks * job->groups;
    tiles_on();
    for (int64_t i = n * lo / job->units; i < n * hi / job->units; i++) {
        /* long and short ones by turns, so that neighbouring shares have equal work */
        int64_t b = i % blocks, first = (b % 2 ? blocks - 1 - b / 2 : b / 2) * w->rows;
        attend_rows(job, w, i / blocks, first, rows - first < w->rows ? rows - first : w->rows);
    }
    _tile_release();
}
