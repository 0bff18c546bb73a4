/* The gated delta rule over many tokens on AMX tiles, in chunks (Yang et al. 2024, "Gated Delta Networks").
 * With S the state in front of a chunk, g_i the product of the decays up to token i, D_ij what is left at
 * token i of what token j <= i wrote:
 *
 *   w_i = beta_i (v_i - g_i S^T k_i - sum over j < i of (k_i . k_j) D_ij w_j)
 *   o_i = g_i S^T q_i + sum over j <= i of (q_i . k_j) D_ij w_j
 *   S  <- g_last S + sum over i of D_last,i k_i w_i^T
 *
 * Products with S and among tokens are tile products of pairs of bf16 (amx_pairs.h). */
#include "kernels/amx_pairs.h"
#include "kernels/lanes_avx512.h"
/* the words of */
#include "kernels/body_exp.h"
#include "kernels/ops.h"
#include "kernels/overlay.h"
#include <math.h>
#include <string.h>

#define CHUNK 64
#define GONE  1e-30f /* less is left of what decays: nothing; slow are numbers that have no exponent left */

/* Fields are in scratch, 64-byte aligned; sizes in numbers of fp32 or in pairs of bf16 (4 bytes as well). n
 * is CHUNK, operands as amx_pairs.h has them. */
typedef struct {
    float *S;        /* [dk][dv] */
    char *state;     /* S, right */
    char *rows;      /* k of n tokens, then q: left, inner dk */
    char *columns;   /* k: right, inner dk */
    char *turned;    /* D_last k, transposed: left [dk], inner n */
    float *products; /* k k^T, then q k^T [2n][n] */
    float *recalled; /* k S, then q S [2n][dv]; rows of q become results */
    float *w;        /* [n][dv] */
    char *written;   /* w: right, inner n */
    char *seen;      /* (q k^T) D: left, inner n */
    float *D;        /* [n][n], 0 above the diagonal */
    float *row[2];   /* [dk] */
    float *g, *beta; /* [n] */
    char *overlap;   /* (k k^T) D below the diagonal: left, inner n */
    float *fresh;    /* [16][dv] */
    float *factor;   /* [16][16] */
    float *query;    /* [dk] */
} chunk;

static int64_t padded(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

size_t kern_amx_delta_scratch(int64_t dk, int64_t dv) {
    int64_t n = CHUNK;
    return (size_t)(2 * dk * dv + 2 * n * dk + 2 * n * dk + 2 * n * n + 2 * n * dv + 2 * n * dv + 3 * n * n +
                    2 * dk + 2 * n + 16 * dv + 256 + dk) *
               4 +
           64;
}

static chunk chunk_in(void *scratch, int64_t dk, int64_t dv) {
    float *p = scratch;
    int64_t n = CHUNK;
    chunk c;
    p += (-(uintptr_t)scratch & 63) / 4;
    c.S = p, p += dk * dv;
    c.state = (char *)p, p += dk * dv;
    c.rows = (char *)p, p += 2 * n * dk;
    c.columns = (char *)p, p += n * dk;
    c.turned = (char *)p, p += n * dk;
    c.products = p, p += 2 * n * n;
    c.recalled = p, p += 2 * n * dv;
    c.w = p, p += n * dv;
    c.written = (char *)p, p += n * dv;
    c.seen = (char *)p, p += n * n;
    c.D = p, p += n * n;
    c.row[0] = p, c.row[1] = p + dk, p += 2 * dk;
    c.g = p, c.beta = p + n, p += 2 * n;
    c.overlap = (char *)p, p += n * n;
    c.fresh = p, p += 16 * dv;
    c.factor = p, p += 256;
    c.query = p;
    return c;
}

/* ---- the state ---- */

static void load_state(const kern_delta *job, const chunk *c, int64_t head) {
    int64_t n = job->dk * job->dv, at = head * n;
    const uint16_t *half = (const uint16_t *)job->state.value + at;
    if (job->state.type == KERN_F32) {
        memcpy(c->S, (const float *)job->state.value + at, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i += 16) {
        __m512 v = v_half(half + i);
        if (job->state.rest) v = _mm512_add_ps(v, v_half(job->state.rest + at + i));
        _mm512_store_ps(c->S + i, v);
    }
}

static void store_state(const kern_delta *job, const chunk *c, int64_t head) {
    int64_t n = job->dk * job->dv, at = head * n;
    if (job->state.type == KERN_F32) {
        memcpy((float *)job->state.value + at, c->S, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_load_ps(c->S + i);
        v_put_half((uint16_t *)job->state.value + at + i, v);
        if (job->state.rest) v_put_half(job->state.rest + at + i, _mm512_sub_ps(v, v_round_half(v)));
    }
}

/* S as a right operand; S itself decays by what a chunk takes away. */
static void state_operand(const chunk *c, int64_t dk, int64_t dv, float decay) {
    __m512 by = _mm512_set1_ps(decay);
    for (int64_t j = 0; j < dv; j += 16)
        for (int64_t i = 0; i < dk; i += 2) {
            float *s = c->S + i * dv + j;
            __m512 a = _mm512_load_ps(s), b = _mm512_load_ps(s + dv);
            pair_put(c->state + (j / 16 * (dk / 32) + i / 32) * PAIR_TILE, i % 32 / 2, a, b);
            _mm512_store_ps(s, _mm512_mul_ps(a, by));
            _mm512_store_ps(s + dv, _mm512_mul_ps(b, by));
        }
}

/* ---- tokens ---- */

/* g, beta and D of tokens t .. t + n; behind them nothing decays and nothing is written. */
static void decays(const kern_delta *job, const chunk *c, int64_t head, int64_t t, int64_t n, int64_t all) {
    __m512 d[CHUNK / 16];
    EACH (k, CHUNK / 16) d[k] = _mm512_setzero_ps();
    float g = 1;
    for (int64_t i = 0; i < all; i++) {
        int64_t at = head * job->gate_step.outer + (t + i) * job->gate_step.inner;
        float alpha = i >= n ? 1 : job->decayed ? job->log_decay[at] : expf(job->log_decay[at]);
        g *= alpha;
        c->g[i] = g = g < GONE ? 0 : g;
        c->beta[i] = i < n ? job->beta[at] : 0;
        EACH (k, CHUNK / 16) {
            __mmask16 self = (__mmask16)(i / 16 == k ? 1u << i % 16 : 0);
            d[k] = _mm512_mul_ps(d[k], _mm512_set1_ps(alpha));
            d[k] = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(d[k], _mm512_set1_ps(GONE), _CMP_NLT_UQ), d[k]);
            d[k] = _mm512_mask_mov_ps(d[k], self, _mm512_set1_ps(1));
            _mm512_store_ps(c->D + i * CHUNK + 16 * k, d[k]);
        }
    }
}

/* to = x * scale, of unit length first when wanted; 0 behind the last token. */
static void vector(float *to, const float *x, const kern_delta *job, float scale, bool there) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < job->dk && there && job->unit; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    if (job->unit) scale *= 1 / sqrtf(tree(sum) + job->unit_eps);
    for (int64_t i = 0; i < job->dk; i += 16)
        _mm512_store_ps(to + i, there ? _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(scale))
                                      : _mm512_setzero_ps());
}

static void put_row(char *to, const float *x, int64_t i, int64_t dk) {
    for (int64_t k = 0; k < dk; k += 32)
        pair_put_row(to + (i / 16 * (dk / 32) + k / 32) * PAIR_TILE, i % 16, _mm512_load_ps(x + k),
                     _mm512_load_ps(x + k + 16));
}

INLINE void fetch(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) _mm_prefetch((const char *)(x + i), _MM_HINT_T1);
}

#define TOKENS_AHEAD 12

/* Rows of tokens lie far apart: what is needed soon of one is fetched, and values and gates of this chunk. */
static void fetch_token(const kern_delta *job, int64_t head, int64_t t) {
    int64_t kh = head / job->repeat, ahead = t + TOKENS_AHEAD;
    if (ahead < job->tokens) {
        fetch(job->q + kh * job->q_step.outer + ahead * job->q_step.inner, job->dk);
        fetch(job->k + kh * job->k_step.outer + ahead * job->k_step.inner, job->dk);
    }
    fetch(job->v + head * job->v_step.outer + t * job->v_step.inner, job->dv);
    if (job->z) fetch(job->z + head * job->z_step.outer + t * job->z_step.inner, job->dv);
}

/* Queries and keys as operands, `all` of them, a multiple of 32. */
static void token_operands(const kern_delta *job, const chunk *c, int64_t head, int64_t t, int64_t n,
                           int64_t all) {
    int64_t dk = job->dk, kh = head / job->repeat, steps = dk / 32;
    char *queries = c->rows + all * dk * 4;
    for (int64_t i = 0; i < all; i++) {
        const float *q = job->q + kh * job->q_step.outer + (t + i) * job->q_step.inner;
        const float *k = job->k + kh * job->k_step.outer + (t + i) * job->k_step.inner;
        float *x = c->row[i % 2];
        if (i < n) fetch_token(job, head, t + i);
        vector(c->query, q, job, job->q_scale, i < n);
        put_row(queries, c->query, i, dk);
        vector(x, k, job, 1, i < n);
        put_row(c->rows, x, i, dk);
        if (i % 2 == 0) continue;
        const float *left = c->D + (all - 1) * CHUNK + i - 1;
        __m512 a = _mm512_set1_ps(left[0]), b = _mm512_set1_ps(left[1]);
        for (int64_t r = 0; r < dk; r += 16)
            pair_put(c->turned + (r / 16 * (all / 32) + i / 32) * PAIR_TILE, i % 32 / 2,
                     _mm512_mul_ps(_mm512_load_ps(c->row[0] + r), a),
                     _mm512_mul_ps(_mm512_load_ps(c->row[1] + r), b));
    }
    for (int64_t i = 0; i < all / 16 * steps * PAIR_TILE; i += PAIR_TILE)
        pair_turn(c->columns + i, c->rows + i);
    for (int64_t i = 0; i < dk / 16 * (all / 32) * PAIR_TILE; i += PAIR_TILE)
        pair_turn(c->turned + i, c->turned + i);
}

/* ---- a chunk ---- */

/* (products) D as a left operand, up to the diagonal (or below it). */
static void among_operand(char *to, const float *products, const float *D, int64_t all, int64_t diagonal) {
    for (int64_t i = 0; i < all; i++)
        for (int64_t j = 0; j < all; j += 32) {
            __m512 v[2];
            EACH (u, 2) {
                __mmask16 past = first16(i + diagonal - j - 16 * u);
                __m512 x = _mm512_maskz_load_ps(past, products + i * CHUNK + j + 16 * u);
                v[u] = _mm512_mul_ps(x, _mm512_load_ps(D + i * CHUNK + j + 16 * u));
            }
            pair_put_row(to + (i / 16 * (all / 32) + j / 32) * PAIR_TILE, i % 16, v[0], v[1]);
        }
}

/* What 16 tokens from `from` on write, given what the ones before them overwrite (in `fresh`, but for the
 * first 16): elements x .. x + 64 or less. */
static void solve_columns(const kern_delta *job, const chunk *c, const float *v, int64_t from, int64_t x) {
    int64_t dv = job->dv;
    __mmask16 m[4];
    EACH (u, 4) m[u] = first16(dv - x - 16 * u);
    for (int64_t i = 0; i < 16; i++) {
        __m512 sum[4], more[4], g = _mm512_set1_ps(c->g[from + i]), beta = _mm512_set1_ps(c->beta[from + i]);
        const float *factor = c->factor + i * 16, *known = c->recalled + (from + i) * dv + x;
        EACH (u, 4) {
            __m512 given = _mm512_setzero_ps();
            if (c->beta[from + i] != 0)
                given = _mm512_maskz_loadu_ps(m[u], v + i * job->v_step.inner + x + 16 * u);
            if (from)
                given = _mm512_sub_ps(given, _mm512_maskz_loadu_ps(m[u], c->fresh + i * dv + x + 16 * u));
            sum[u] = _mm512_fnmadd_ps(g, _mm512_maskz_loadu_ps(m[u], known + 16 * u), given);
            more[u] = _mm512_setzero_ps();
        }
        for (int64_t j = 0; j < i; j += 2) { /* factors from i on are 0 */
            const float *w = c->w + (from + j) * dv + x;
            __m512 f = _mm512_set1_ps(factor[j]), f1 = _mm512_set1_ps(factor[j + 1]);
            EACH (u, 4) sum[u] = _mm512_fnmadd_ps(f, _mm512_maskz_loadu_ps(m[u], w + 16 * u), sum[u]);
            EACH (u, 4) more[u] = _mm512_fnmadd_ps(f1, _mm512_maskz_loadu_ps(m[u], w + dv + 16 * u), more[u]);
        }
        EACH (u, 4)
            _mm512_mask_storeu_ps(c->w + (from + i) * dv + x + 16 * u, m[u],
                                  _mm512_mul_ps(_mm512_add_ps(sum[u], more[u]), beta));
    }
}

/* What each token writes, as fp32 and as an operand: 16 tokens at a time. */
static void solve(const kern_delta *job, const chunk *c, int64_t head, int64_t t, int64_t all) {
    int64_t dv = job->dv, steps = all / 32;
    among_operand(c->overlap, c->products, c->D, all, 0);
    memset(c->w, 0, (size_t)(all * dv) * 4);
    for (int64_t j = 0; j < dv / 16 * steps; j++) /* behind the tokens that are solved: numbers */
        memset(c->written + j * PAIR_TILE, 0, PAIR_TILE);
    for (int64_t from = 0; from < all; from += 16) {
        const float *v = job->v + head * job->v_step.outer + (t + from) * job->v_step.inner;
        pair_product p = {c->fresh,
                          dv,
                          c->overlap + from / 16 * steps * PAIR_TILE,
                          c->written,
                          1,
                          dv / 16,
                          (from + 31) / 32,
                          steps,
                          false,
                          false};
        if (from) pair_multiply(&p);
        for (int64_t i = 0; i < 16; i++) {
            __m512 f = _mm512_maskz_load_ps(first16(i), c->products + (from + i) * CHUNK + from);
            _mm512_store_ps(c->factor + i * 16,
                            _mm512_mul_ps(f, _mm512_load_ps(c->D + (from + i) * CHUNK + from)));
        }
        for (int64_t x = 0; x < dv; x += 64) solve_columns(job, c, v, from, x);
        for (int64_t j = 0; j < dv; j += 16)
            for (int64_t i = from; i < from + 16; i += 2) {
                const float *w = c->w + i * dv + j;
                pair_put(c->written + (j / 16 * steps + i / 32) * PAIR_TILE, i % 32 / 2, _mm512_load_ps(w),
                         _mm512_load_ps(w + dv));
            }
    }
}

/* A token's result, normalised and gated as wanted. */
static void result(const kern_delta *job, const float *old, const float *fresh, float g, const float *z,
                   float *o) {
    int64_t dv = job->dv;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t x = 0; x < dv; x += 16) {
        __m512 v = _mm512_fmadd_ps(_mm512_set1_ps(g), _mm512_load_ps(old + x), _mm512_load_ps(fresh + x));
        _mm512_storeu_ps(o + x, v);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    if (!job->weight) return;
    __m512 factor = _mm512_set1_ps(1 / sqrtf(tree(sum) / (float)dv + job->eps));
    for (int64_t x = 0; x < dv; x += 16) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(o + x), factor);
        v = _mm512_mul_ps(v, _mm512_loadu_ps(job->weight + x));
        if (z) v = _mm512_mul_ps(v, v_silu(_mm512_loadu_ps(z + x)));
        _mm512_storeu_ps(o + x, v);
    }
}

static void results(const kern_delta *job, const chunk *c, int64_t head, int64_t t, int64_t n, int64_t all) {
    int64_t dv = job->dv, steps = all / 32;
    float *fresh = c->recalled; /* what keys recalled is not needed any more */
    among_operand(c->seen, c->products + all * CHUNK, c->D, all, 1);
    pair_multiply(
        &(pair_product){fresh, dv, c->seen, c->written, all / 16, dv / 16, steps, steps, false, false});
    for (int64_t i = 0; i < n; i++)
        result(job, c->recalled + (all + i) * dv, fresh + i * dv, c->g[i],
               job->z ? job->z + head * job->z_step.outer + (t + i) * job->z_step.inner : NULL,
               job->y + head * job->y_step.outer + (t + i) * job->y_step.inner);
}

/* Tokens t .. t + n of a head, n <= CHUNK. */
static void delta_chunk(const kern_delta *job, const chunk *c, int64_t head, int64_t t, int64_t n) {
    int64_t dk = job->dk, dv = job->dv, all = padded(n, 32), tiles = all / 16;
    decays(job, c, head, t, n, all);
    token_operands(job, c, head, t, n, all);
    state_operand(c, dk, dv, c->g[all - 1]);
    pair_product p = {c->recalled, dv, c->rows, c->state, 2 * tiles, dv / 16, dk / 32, dk / 32, false, false};
    pair_multiply(&p);
    p = (pair_product){c->products, CHUNK, c->rows, c->columns, tiles, tiles, dk / 32, dk / 32, false, true};
    pair_multiply(&p);
    p.c += all * CHUNK, p.a += all * dk * 4;
    pair_multiply(&p);
    solve(job, c, head, t, all);
    results(job, c, head, t, n, all);
    p = (pair_product){c->S, dv, c->turned, c->written, dk / 16, dv / 16, all / 32, all / 32, true, false};
    pair_multiply(&p);
}

void kern_amx_delta(const kern_delta *job, int64_t lo, int64_t hi) {
    kern_ops others;
    kern_ops_avx512(&others);
    if (job->exact || job->tokens < KERN_DELTA_MANY || job->dk % 32 || job->dv % 16 || job->transposed) {
        others.delta(job, lo, hi);
        return;
    }
    chunk c = chunk_in(job->scratch, job->dk, job->dv);
    for (int64_t head = lo; head < hi; head++) {
        load_state(job, &c, head);
        tiles_on();
        for (int64_t t = 0; t < job->tokens; t += CHUNK)
            delta_chunk(job, &c, head, t, job->tokens - t < CHUNK ? job->tokens - t : CHUNK);
        _tile_release();
        store_state(job, &c, head);
    }
}
