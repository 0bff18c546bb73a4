/* Attention over a cache. */
#ifndef KERNELS_BODY_ATTENTION_H
#define KERNELS_BODY_ATTENTION_H
#include "kernels/body_product.h"
#include <float.h>

/* Keys that query t sees. */
INLINE int64_t seen_by(const kern_attention *job, int64_t t) {
    int64_t n = job->visible ? job->visible[t] : job->mask ? job->keys : job->first + t + 1;
    return at_least(n < job->keys ? n : job->keys, 0);
}

/* The most that one of the tokens [from, to) sees. */
INLINE int64_t seen_by_any(const kern_attention *job, int64_t from, int64_t to) {
    int64_t n = 0;
    for (int64_t t = from; t < to; t++) n = at_least(n, seen_by(job, t));
    return n;
}

/* Query rows of one group of heads, token by token: where row i is. */
typedef struct {
    int64_t token, head;
} query_row;

INLINE query_row row_of(const kern_attention *job, int64_t group, int64_t i) {
    int64_t share = job->heads / job->groups;
    return (query_row){i / share, group * share + i % share};
}

INLINE const float *query_at(const kern_attention *job, query_row r) {
    return job->q + r.head * job->q_step.outer + r.token * job->q_step.inner;
}

INLINE float *result_at(const kern_attention *job, query_row r) {
    return job->y + r.head * job->y_step.outer + r.token * job->y_step.inner;
}

/* y *= factor * sigmoid(gate) */
INLINE void finish_row(const kern_attention *job, query_row r, float *y, float factor) {
    const float *g = NULL;
    if (job->gate) g = job->gate + r.head * job->gate_step.outer + r.token * job->gate_step.inner;
    for (int64_t i = 0; i < job->d_v; i += LANES) {
        int64_t n = job->d_v - i;
        vec v = load_up_to(y + i, n) * factor;
        if (g) v *= v_sigmoid(load_up_to(g + i, n));
        store_up_to(y + i, v, n);
    }
}

/* The maximum to subtract: a row of nothing but -inf must give exp(-inf), not NaN. */
INLINE float finite_top(float top) {
    return top == -INFINITY ? 0 : top;
}

/* Keys or values [n][d] as fp32. */
INLINE void keys_widen_as(float *to, const kern_memory *m, kept as, int64_t at, int64_t step, int64_t n,
                          int64_t d) {
    for (int64_t j = 0; j < n; j++, to += d, at += step) {
        int64_t c = 0;
        for (; c + LANES <= d; c += LANES) v_store(to + c, kept_load(m, as, at + c));
        if (c < d) v_store_n(to + c, kept_load_n(m, as, at + c, d - c), d - c);
    }
}

static void keys_widen(float *to, const kern_memory *m, int64_t at, int64_t step, int64_t n, int64_t d) {
    switch (kept_as(m)) {
    case KEPT_F16: keys_widen_as(to, m, KEPT_F16, at, step, n, d); break;
    case KEPT_PAIR: keys_widen_as(to, m, KEPT_PAIR, at, step, n, d); break;
    case KEPT_F32: keys_widen_as(to, m, KEPT_F32, at, step, n, d); break;
    }
}

/* ---- few queries: one block of keys, up to Q_ROWS rows that share its loads ---- */

#define Q_ROWS 4
/* Keys at a time and vectors of a value at a time: with the rows' sums they fill the registers. */
#define Q_TILE(rows) (REGISTERS == 32 || (rows) < 4 ? 4 : 2)

/* Keys or values of one group: fp16, or fp32. */
typedef struct {
    const char *data;
    int64_t step;  /* between keys */
    int64_t ahead; /* keys that are fetched before their turn */
} key_rows;

INLINE vec key_load(const key_rows *k, bool half, int64_t at) {
    const void *p = k->data;
    return half ? v_half((const uint16_t *)p + at) : v_load((const float *)p + at);
}

INLINE vec key_load_n(const key_rows *k, bool half, int64_t at, int64_t n) {
    const void *p = k->data;
    return half ? v_half_n((const uint16_t *)p + at, n) : v_load_n((const float *)p + at, n);
}

/* Keys are fetched this many bytes before their turn: the hardware's own prefetching ends with a page. */
#define KEYS_AHEAD 8192

/* Fetches the cache line of element c of key j. */
INLINE void key_fetch(const key_rows *k, bool half, int64_t j, int64_t c) {
    v_fetch(k->data + ((j + k->ahead) * k->step + c) * (half ? 2 : 4));
}

/* Sums of `rows` x tile vectors to score[r][j + u]. */
INLINE void store_scores(vec s[Q_ROWS][4], float score[][KERN_KEYS], int64_t j, int rows, int tile) {
    float sum[4];
    if (rows == 1) {
        v_sum4(score[0] + j, s[0][0], s[0][1], s[0][2], s[0][3]);
        return;
    }
    for (int u = 0; u < tile; u += 4 / rows) {
        int v = 4 / rows - 1; /* two rows: two keys */
        v_sum4(sum, s[0][u], s[1][u], s[rows - 2][u + v], s[rows - 1][u + v]);
        for (int i = 0; i < 4; i++) score[i % rows][j + u + i / rows] = sum[i];
    }
}

/* score[r][j] = q[r] . key j, j < n. q: rows ldq apart, zeros from d up to a multiple of LANES. */
INLINE void block_scores(const key_rows *k, bool half, int64_t n, int64_t d, const float *q, int64_t ldq,
                         float score[][KERN_KEYS], int rows) {
    const int tile = Q_TILE(rows);
    for (int64_t j = 0; j < n; j += tile) {
        int64_t at[4], c = 0;
        for (int u = 0; u < tile; u++) at[u] = (j + u < n ? j + u : n - 1) * k->step;
        vec s[Q_ROWS][4];
        for (int r = 0; r < rows; r++)
            for (int u = 0; u < tile; u++) s[r][u] = v_all(0);
        for (; c + LANES <= d; c += LANES) {
            vec x[4];
            const int line = half ? 32 : 16, some = tile * LANES / line; /* lines of a key; lines to fetch */
            int first = (int)(c % line / LANES) * some;
            for (int u = 0; u < some; u++) key_fetch(k, half, j + first + u, c);
            for (int u = 0; u < tile; u++) x[u] = key_load(k, half, at[u] + c);
            for (int r = 0; r < rows; r++)
                for (int u = 0; u < tile; u++) s[r][u] = v_fma(v_load(q + r * ldq + c), x[u], s[r][u]);
        }
        if (c < d)
            for (int u = 0; u < tile; u++) {
                vec x = key_load_n(k, half, at[u] + c, d - c);
                for (int r = 0; r < rows; r++) s[r][u] = v_fma(v_load(q + r * ldq + c), x, s[r][u]);
            }
        store_scores(s, score, j, rows, tile);
    }
}

/* Adds the mask and hides what this row doesn't see, and what is not there up to a multiple of LANES; the
 * maximum. n: keys in the block, seen: of them by this row. */
INLINE float block_top(float *score, const float *mask, int64_t n, int64_t seen) {
    vec most = v_all(-INFINITY);
    int64_t end = (n + LANES - 1) / LANES * LANES;
    for (int64_t j = 0; mask && j < n; j++) score[j] += mask[j];
    for (int64_t j = at_least(seen < n ? seen : n, 0); j < end; j++) score[j] = -INFINITY;
    for (int64_t j = 0; j < end; j += LANES) most = v_max(v_load(score + j), most);
    return v_top(most);
}

/* Scores [from, to) to exp(score - less), and on to a multiple of LANES; adds them to `total`. */
INLINE vec block_weights(float *score, int64_t from, int64_t to, float less, vec total) {
    for (int64_t j = from; j < to; j += LANES) {
        vec p = v_exp(v_load(score + j) - less);
        v_store(score + j, p);
        total += p;
    }
    return total;
}

#define VALUE_KEYS 32 /* weights that are made at a time: between reads, so that these don't pause */
#define V_STEP     (REGISTERS == 32 ? 2 : 1) /* vectors of a value at a time */

/* y[r] += sum over j of p[r][j] * value j, elements [0, d): some values side by side, so that the sums wait
 * in the first cache and each value is read from its begin to its end. d is a multiple of V_STEP * LANES. */
INLINE void block_wide(const key_rows *v, bool half, int64_t from, int64_t to, int64_t d,
                       float p[][KERN_KEYS], float *const *y, int rows) {
    const int tile = Q_TILE(rows), line = half ? 32 : 16;
    for (int64_t j = from; j < to; j += tile) {
        vec x[Q_ROWS][4];
        int64_t at[4];
        for (int u = 0; u < tile; u++) {
            at[u] = (j + u < to ? j + u : to - 1) * v->step;
            for (int r = 0; r < rows; r++) x[r][u] = v_all(j + u < to ? p[r][j + u] : 0);
        }
        for (int64_t c = 0; c < d; c += V_STEP * LANES) {
            vec s[Q_ROWS][V_STEP];
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < V_STEP; i++) s[r][i] = v_load(y[r] + c + i * LANES);
            for (int u = 0; u < tile; u++) {
                if (c % line == 0) key_fetch(v, half, j + u, c);
                for (int i = 0; i < V_STEP; i++) {
                    vec w = key_load(v, half, at[u] + c + i * LANES);
                    for (int r = 0; r < rows; r++) s[r][i] = v_fma(x[r][u], w, s[r][i]);
                }
            }
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < V_STEP; i++) v_store(y[r] + c + i * LANES, s[r][i]);
        }
    }
}

/* The same for the n <= LANES elements from c on. */
INLINE void block_narrow(const key_rows *v, bool half, int64_t from, int64_t to, int64_t c, int64_t n,
                         float p[][KERN_KEYS], float *const *y, int rows) {
    vec s[Q_ROWS];
    for (int r = 0; r < rows; r++) s[r] = load_up_to(y[r] + c, n);
    for (int64_t j = from; j < to; j++) {
        vec w = n >= LANES ? key_load(v, half, j * v->step + c) : key_load_n(v, half, j * v->step + c, n);
        for (int r = 0; r < rows; r++) s[r] = v_fma(v_all(p[r][j]), w, s[r]);
    }
    for (int r = 0; r < rows; r++) store_up_to(y[r] + c, s[r], n);
}

/* part[r]: the maximum is there; the sum of the weights, and behind 14 more, of the weighted values. */
INLINE void block_sums(const key_rows *v, bool half, int64_t n, int64_t d, float score[][KERN_KEYS],
                       float *const *part, int rows) {
    const int64_t wide = d - d % (V_STEP * LANES);
    vec total[Q_ROWS];
    float *y[Q_ROWS];
    for (int r = 0; r < rows; r++) {
        total[r] = v_all(0);
        y[r] = part[r] + 16;
        memset(y[r], 0, (size_t)d * sizeof *y[r]);
    }
    for (int64_t j = 0; j < n; j += VALUE_KEYS) {
        int64_t to = n - j < VALUE_KEYS ? n : j + VALUE_KEYS;
        for (int r = 0; r < rows; r++)
            total[r] = block_weights(score[r], j, to, finite_top(part[r][0]), total[r]);
        block_wide(v, half, j, to, wide, score, y, rows);
        for (int64_t c = wide; c < d; c += LANES) block_narrow(v, half, j, to, c, d - c, score, y, rows);
    }
    for (int r = 0; r < rows; r++) part[r][1] = v_sum(total[r]);
}

/* Where the partial result of a row and block lies: maximum, sum, 14 unused, d_v sums. */
INLINE float *partial_at(const kern_attention *job, query_row r, int64_t block) {
    int64_t blocks = (job->keys + KERN_KEYS - 1) / KERN_KEYS;
    return job->partial + ((r.token * job->heads + r.head) * blocks + block) * (job->d_v + 16);
}

/* A block of keys and values, for the query rows of its group. */
typedef struct {
    const kern_attention *job;
    key_rows k, v;
    int64_t group, block;
} few_block;

INLINE void few_rows(const few_block *b, bool half, int64_t first, int rows) {
    const kern_attention *job = b->job;
    float score[Q_ROWS][KERN_KEYS], *q = job->scratch, *part[Q_ROWS];
    int64_t ldq = (job->d + LANES - 1) / LANES * LANES, key = b->block * KERN_KEYS, seen[Q_ROWS], n = 0;
    query_row row[Q_ROWS];
    for (int r = 0; r < rows; r++) {
        row[r] = row_of(job, b->group, first + r);
        seen[r] = seen_by(job, row[r].token) - key;
        n = at_least(n, seen[r] < KERN_KEYS ? seen[r] : KERN_KEYS);
        const float *from = query_at(job, row[r]);
        for (int64_t c = 0; c < job->d; c += LANES)
            v_store(q + r * ldq + c, load_up_to(from + c, job->d - c) * job->scale);
    }
    if (n == 0) return;
    block_scores(&b->k, half, n, job->d, q, ldq, score, rows);
    for (int r = 0; r < rows; r++) {
        part[r] = partial_at(job, row[r], b->block);
        const float *mask = job->mask ? job->mask + row[r].token * job->ldm + key : NULL;
        part[r][0] = block_top(score[r], mask, n, seen[r]);
    }
    block_sums(&b->v, half, n, job->d_v, score, part, rows);
}

static void few_four(const few_block *b, int64_t first, bool half) {
    if (half)
        few_rows(b, true, first, 4);
    else
        few_rows(b, false, first, 4);
}

static void few_two(const few_block *b, int64_t first, bool half) {
    if (half)
        few_rows(b, true, first, 2);
    else
        few_rows(b, false, first, 2);
}

static void few_one(const few_block *b, int64_t first, bool half) {
    if (half)
        few_rows(b, true, first, 1);
    else
        few_rows(b, false, first, 1);
}

/* Keys and values of a block that are kept as pairs, in fp32 behind the queries in scratch. */
static void few_widen(const kern_attention *job, int64_t k, int64_t v, int64_t n, key_rows *keys,
                      key_rows *values) {
    float *to = (float *)job->scratch + Q_ROWS * (job->d + 16);
    keys_widen(to, &job->k, k, job->k_step.inner, n, job->d);
    *keys = (key_rows){.data = (char *)to, .step = job->d};
    to += KERN_KEYS * job->d;
    keys_widen(to, &job->v, v, job->v_step.inner, n, job->d_v);
    *values = (key_rows){.data = (char *)to, .step = job->d_v};
}

static void few_item(const kern_attention *job, int64_t group, int64_t block) {
    int64_t rows = job->heads / job->groups * job->tokens, i = 0, key = block * KERN_KEYS;
    int64_t k = group * job->k_step.outer + key * job->k_step.inner;
    int64_t v = group * job->v_step.outer + key * job->v_step.inner;
    kept as = kept_as(&job->k);
    int64_t size = as == KEPT_F32 ? 4 : 2;
    few_block b = {.job = job, .group = group, .block = block};
    b.k = (key_rows){(const char *)job->k.value + k * size, job->k_step.inner,
                     KEYS_AHEAD / (job->d * size) + 1};
    b.v = (key_rows){(const char *)job->v.value + v * size, job->v_step.inner,
                     KEYS_AHEAD / (job->d_v * size) + 1};
    if (as == KEPT_PAIR) {
        int64_t n = seen_by_any(job, 0, job->tokens) - key;
        few_widen(job, k, v, n < KERN_KEYS ? n : KERN_KEYS, &b.k, &b.v);
    }
    for (; i + 4 <= rows; i += 4) few_four(&b, i, as == KEPT_F16);
    if (i + 2 <= rows) few_two(&b, i, as == KEPT_F16), i += 2;
    if (i < rows) few_one(&b, i, as == KEPT_F16);
}

/* Items [n lo / units, n hi / units) of n: the same ones whatever the shares are cut into. */
INLINE int64_t share(int64_t n, int64_t at, int64_t units) {
    return n * at / units;
}

static void attend_few(const kern_attention *job, int64_t lo, int64_t hi) {
    int64_t blocks = (seen_by_any(job, 0, job->tokens) + KERN_KEYS - 1) / KERN_KEYS;
    int64_t n = blocks * job->groups;
    int64_t end = share(n, hi, job->units);
    for (int64_t i = share(n, lo, job->units); i < end; i++) few_item(job, i / blocks, i % blocks);
}

static void attend_join(const kern_attention *job, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; i++) {
        query_row r = {i / job->heads, i % job->heads};
        int64_t blocks = (seen_by(job, r.token) + KERN_KEYS - 1) / KERN_KEYS;
        float *y = result_at(job, r), top = -INFINITY, sum = 0;
        for (int64_t b = 0; b < blocks; b++) {
            const float *p = partial_at(job, r, b);
            top = p[0] > top ? p[0] : top;
        }
        memset(y, 0, (size_t)job->d_v * sizeof *y);
        for (int64_t b = 0; b < blocks; b++) {
            const float *p = partial_at(job, r, b);
            float f = expf(p[0] - finite_top(top));
            sum += p[1] * f;
            for (int64_t c = 0; c < job->d_v; c += LANES) {
                int64_t n = job->d_v - c;
                vec v = v_fma(load_up_to(p + 16 + c, n), v_all(f), load_up_to(y + c, n));
                store_up_to(y + c, v, n);
            }
        }
        finish_row(job, r, y, 1 / sum);
    }
}

/* ---- many queries: 64 rows at a time, a lane for each ---- */

/* Weights below exp of this are 0, far below what sums of fp32 keep: exponentials that end in subnormal
 * numbers take a hundred cycles. */
#define LEAST     -60.0f
#define MANY_ROWS 64
#define MANY_KEYS 64

typedef struct {
    float *q, *k, *v, *y, *score;    /* [d][64], [64][d], [64][d_v], [d_v][64], [64][64] */
    float *seen, *top, *sum, *scale; /* [64] */
} many;

INLINE many many_scratch(const kern_attention *job) {
    float *p = job->scratch;
    many m;
    m.q = p, p += job->d * MANY_ROWS;
    m.k = p, p += job->d * MANY_KEYS;
    m.v = p, p += job->d_v * MANY_KEYS;
    m.y = p, p += job->d_v * MANY_ROWS;
    m.score = p, p += MANY_KEYS * MANY_ROWS;
    m.seen = p, m.top = p + MANY_ROWS, m.sum = p + 2 * MANY_ROWS, m.scale = p + 3 * MANY_ROWS;
    return m;
}

static void many_load(const kern_attention *job, const many *m, int64_t group, int64_t key, int64_t n) {
    int64_t k = group * job->k_step.outer + key * job->k_step.inner;
    int64_t v = group * job->v_step.outer + key * job->v_step.inner;
    keys_widen(m->k, &job->k, k, job->k_step.inner, n, job->d);
    keys_widen(m->v, &job->v, v, job->v_step.inner, n, job->d_v);
}

static void many_mask(const kern_attention *job, const many *m, int64_t group, int64_t first, int64_t rows,
                      int64_t key, int64_t n) {
    for (int64_t i = 0; job->mask && i < rows; i++) {
        const float *mask = job->mask + row_of(job, group, first + i).token * job->ldm + key;
        for (int64_t j = 0; j < n; j++) m->score[j * MANY_ROWS + i] += mask[j];
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < MANY_ROWS; i += LANES) {
            float *s = m->score + j * MANY_ROWS + i;
            v_store(s, v_below(v_all((float)(key + j)), v_load(m->seen + i), v_load(s), v_all(-INFINITY)));
        }
}

/* Scores to exp(score - maximum so far); what the sums so far are to be multiplied by. */
static void many_exp(const many *m, int64_t n) {
    for (int64_t i = 0; i < MANY_ROWS; i += LANES) {
        vec old = v_load(m->top + i), top = old, sum = v_all(0);
        for (int64_t j = 0; j < n; j++) top = v_max(v_load(m->score + j * MANY_ROWS + i), top);
        vec less = v_below(top, v_all(-FLT_MAX), v_all(0), top);
        for (int64_t j = 0; j < n; j++) {
            float *s = m->score + j * MANY_ROWS + i;
            vec x = v_load(s) - less, p = v_exp(v_max(v_all(LEAST), x));
            p = v_below(x, v_all(LEAST), v_all(0), p);
            v_store(s, p);
            sum += p;
        }
        vec scale = v_exp(old - less);
        v_store(m->top + i, top);
        v_store(m->scale + i, scale);
        v_store(m->sum + i, v_fma(v_load(m->sum + i), scale, sum));
    }
}

static void many_start(const kern_attention *job, const many *m, int64_t group, int64_t first, int64_t rows) {
    for (int64_t i = 0; i < MANY_ROWS; i++) {
        query_row r = row_of(job, group, first + (i < rows ? i : 0));
        const float *q = query_at(job, r);
        for (int64_t c = 0; c < job->d; c++) m->q[c * MANY_ROWS + i] = q[c] * job->scale;
        m->seen[i] = i < rows ? (float)seen_by(job, r.token) : 0;
        m->top[i] = -INFINITY;
        m->sum[i] = 0;
    }
    memset(m->y, 0, (size_t)(job->d_v * MANY_ROWS) * sizeof *m->y);
}

static void many_item(const kern_attention *job, int64_t group, int64_t first, int64_t rows) {
    many m = many_scratch(job);
    many_start(job, &m, group, first, rows);
    int64_t last = row_of(job, group, first + rows - 1).token;
    int64_t end = seen_by_any(job, row_of(job, group, first).token, last + 1);
    for (int64_t key = 0; key < end; key += MANY_KEYS) {
        int64_t n = end - key < MANY_KEYS ? end - key : MANY_KEYS;
        many_load(job, &m, group, key, n);
        product_all(m.score, MANY_ROWS, NULL, m.k, job->d, 1, m.q, MANY_ROWS, n, MANY_ROWS, job->d);
        many_mask(job, &m, group, first, rows, key, n);
        many_exp(&m, n);
        product_all(m.y, MANY_ROWS, m.scale, m.v, 1, job->d_v, m.score, MANY_ROWS, job->d_v, MANY_ROWS, n);
    }
    for (int64_t i = 0; i < rows; i++) {
        query_row r = row_of(job, group, first + i);
        float *y = result_at(job, r);
        for (int64_t c = 0; c < job->d_v; c++) y[c] = m.y[c * MANY_ROWS + i];
        finish_row(job, r, y, 1 / m.sum[i]);
    }
}

static void attend(const kern_attention *job, int64_t lo, int64_t hi) {
    if (job->tokens < KERN_MANY) {
        attend_few(job, lo, hi);
        return;
    }
    int64_t rows = job->heads / job->groups * job->tokens, blocks = (rows + MANY_ROWS - 1) / MANY_ROWS;
    int64_t n = blocks * job->groups;
    for (int64_t i = share(n, lo, job->units); i < share(n, hi, job->units); i++) {
        /* long and short ones by turns, so that neighbouring shares have equal work */
        int64_t b = i % blocks, first = (b % 2 ? blocks - 1 - b / 2 : b / 2) * MANY_ROWS;
        many_item(job, i / blocks, first, rows - first < MANY_ROWS ? rows - first : MANY_ROWS);
    }
}

static int64_t visible(const float *mask, int64_t n, float hidden) {
    while (n > 0 && !(mask[n - 1] > hidden)) n--;
    return n;
}
#endif
