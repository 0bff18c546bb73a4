/* The gated delta rule, its convolution and its gates. */
#ifndef KERNELS_BODY_DELTA_H
#define KERNELS_BODY_DELTA_H
#include "kernels/body_attention.h"

/* ---- convolution ---- */

#define TAPS 8

/* Up to LANES numbers that lie `step` apart. */
INLINE vec halves_apart(const uint16_t *p, int64_t step, int64_t n) {
    uint16_t part[LANES] = {0};
    for (int64_t i = 0; i < n; i++) part[i] = p[i * step];
    return v_half(part);
}

INLINE void put_halves_apart(uint16_t *p, int64_t step, vec v, int64_t n) {
    uint16_t part[LANES];
    v_put_half(part, v);
    for (int64_t i = 0; i < n; i++) p[i * step] = part[i];
}

INLINE vec floats_apart(const float *p, int64_t step, int64_t n) {
    float part[LANES] = {0};
    for (int64_t i = 0; i < n; i++) part[i] = p[i * step];
    return v_load(part);
}

/* Column j of the state for n <= LANES channels from c on. */
INLINE vec conv_old(const kern_conv *job, kept as, int64_t c, int64_t n, int64_t j) {
    int64_t at = c * job->ld_state + j, step = job->ld_state;
    if (as == KEPT_F32) return floats_apart((const float *)job->state.value + at, step, n);
    vec v = halves_apart((const uint16_t *)job->state.value + at, step, n);
    if (as == KEPT_PAIR) v += halves_apart(job->state.rest + at, step, n);
    return v;
}

INLINE void conv_keep(const kern_conv *job, kept as, int64_t c, int64_t n, int64_t j, vec v) {
    int64_t at = c * job->ld_state + j, step = job->ld_state;
    if (as == KEPT_F32) {
        float part[LANES];
        v_store(part, v);
        for (int64_t i = 0; i < n; i++) ((float *)job->state.value)[at + i * step] = part[i];
        return;
    }
    put_halves_apart((uint16_t *)job->state.value + at, step, v, n);
    if (as == KEPT_PAIR) put_halves_apart(job->state.rest + at, step, v - v_round_half(v), n);
}

INLINE void conv_weights(const kern_conv *job, int taps, int64_t c, int64_t n, vec w[TAPS]) {
    const float *p = job->w + c * job->w_channel;
    if (taps == 4 && n >= LANES && job->w_tap == 1 && job->w_channel == 4) {
        v_load4(w, p);
        return;
    }
    for (int j = 0; j < taps; j++, p += job->w_tap)
        w[j] = job->w_channel == 1 ? load_up_to(p, n) : floats_apart(p, job->w_channel, n);
}

/* Every token through n <= LANES channels. x: the old columns of the state; then the new ones. */
INLINE void conv_tokens(const kern_conv *job, int taps, int64_t c, int64_t n, vec x[TAPS]) {
    vec w[TAPS], old[TAPS];
    conv_weights(job, taps, c, n, w);
    for (int j = 0; j + 1 < taps; j++) old[j] = x[j];
    for (int64_t t = 0; t < job->tokens; t++) {
        x[taps - 1] = load_up_to(job->u + t * job->ldu + c, n);
        vec s = w[0] * x[0];
        for (int j = 1; j < taps; j++) s = v_fma(w[j], x[j], s);
        if (job->silu) s = v_silu(s);
        store_up_to(job->y + t * job->ldy + c, s, n);
        for (int j = 0; j + 1 < taps; j++) x[j] = x[j + 1];
    }
    for (int j = 0; j + 1 < taps && job->valid < job->tokens; j++) {
        int64_t column = job->valid + j - (taps - 1);
        x[j] = column < 0 ? old[column + taps - 1] : load_up_to(job->u + column * job->ldu + c, n);
    }
}

INLINE void conv_channels(const kern_conv *job, kept as, int64_t c, int64_t n) {
    int taps = (int)job->taps;
    vec x[TAPS];
    for (int j = 0; j + 1 < taps; j++) x[j] = conv_old(job, as, c, n, j);
    conv_tokens(job, taps, c, n, x);
    for (int j = 0; j + 1 < taps; j++) conv_keep(job, as, c, n, j, x[j]);
}

/* Many tokens: row by row through so many channels. Rows are often a multiple of a page apart, and those that
 * one vector of channels needs would all want the same few lines of the first cache. */
#define CONV_CHANNELS (16 * LANES)
#define CONV_MANY     8 /* tokens from which on that pays */

typedef struct {
    float w[TAPS][CONV_CHANNELS], old[TAPS][CONV_CHANNELS];
} conv_block;

/* Column t of u, or of the state in front of it. */
INLINE const float *conv_column(const kern_conv *job, const conv_block *b, int64_t c, int64_t t) {
    return t < 0 ? b->old[t + job->taps - 1] : job->u + t * job->ldu + c;
}

INLINE void conv_row(const kern_conv *job, const conv_block *b, int taps, int64_t c, int64_t n, int64_t t) {
    const float *x[TAPS];
    float *y = job->y + t * job->ldy + c;
    for (int j = 0; j < taps; j++) x[j] = conv_column(job, b, c, t + j - (taps - 1));
    for (int64_t i = 0; i < n; i += LANES) {
        vec s = v_load(b->w[0] + i) * load_up_to(x[0] + i, n - i);
        for (int j = 1; j < taps; j++) s = v_fma(v_load(b->w[j] + i), load_up_to(x[j] + i, n - i), s);
        if (job->silu) s = v_silu(s);
        store_up_to(y + i, s, n - i);
    }
}

static void conv_many(const kern_conv *job, kept as, int64_t c, int64_t n) {
    int taps = (int)job->taps;
    conv_block b;
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t m = n - i < LANES ? n - i : LANES;
        vec w[TAPS];
        conv_weights(job, taps, c + i, m, w);
        for (int j = 0; j < taps; j++) v_store(b.w[j] + i, w[j]);
        for (int j = 0; j + 1 < taps; j++) v_store(b.old[j] + i, conv_old(job, as, c + i, m, j));
    }
    for (int64_t t = 0; t < job->tokens; t++)
        if (taps == 4)
            conv_row(job, &b, 4, c, n, t);
        else
            conv_row(job, &b, taps, c, n, t);
    for (int j = 0; j + 1 < taps; j++) {
        const float *x = conv_column(job, &b, c, job->valid + j - (taps - 1));
        for (int64_t i = 0; i < n; i += LANES) {
            int64_t m = n - i < LANES ? n - i : LANES;
            conv_keep(job, as, c + i, m, j, load_up_to(x + i, m));
        }
    }
}

static void conv(const kern_conv *job, int64_t lo, int64_t hi) {
    kept as = kept_as(&job->state);
    if (job->tokens >= CONV_MANY) {
        for (int64_t n; lo < hi; lo += n) {
            n = hi - lo < CONV_CHANNELS ? hi - lo : CONV_CHANNELS;
            conv_many(job, as, lo, n);
        }
        return;
    }
    if (as == KEPT_F16 && job->taps == 4 && job->ld_state == 3)
        for (; lo + LANES <= hi; lo += LANES) {
            uint16_t *state = (uint16_t *)job->state.value + 3 * lo;
            vec x[TAPS];
            v_half3(x, state);
            conv_tokens(job, 4, lo, LANES, x);
            v_put_half3(state, x);
        }
    for (; lo < hi; lo += LANES) conv_channels(job, as, lo, hi - lo < LANES ? hi - lo : LANES);
}

/* ---- gates ---- */

static void gates(const kern_gates *job, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; i++) {
        int64_t t = i / job->heads, h = i % job->heads;
        float x = job->a[t * job->lda + h] + job->bias[h];
        float soft = (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
        job->log_decay[i] = t < job->valid ? job->rate[h] * soft : 0;
        job->beta[i] = t < job->valid ? 1 / (1 + expf(-job->b[t * job->ldb + h])) : 0;
    }
}

/* ---- recurrence ---- */

/* A head's state is worked on in blocks of columns that stay in the first cache: columns don't depend on each
 * other. A block has up to DELTA_VECS vectors in a row. Tokens go through in runs, whose q and k are made
 * ready first. */
#define DELTA_VECS    4
#define DELTA_COLUMNS (DELTA_VECS * LANES)
#define DELTA_RUN     32

typedef struct {
    float *state;             /* blocks of columns [dk][DELTA_COLUMNS], one after another */
    float *q, *k;             /* [DELTA_RUN][dk] */
    float *alpha, *beta, *kq; /* [DELTA_RUN]; kq: k . q */
} delta_scratch;

INLINE delta_scratch delta_scratch_of(const kern_delta *job) {
    int64_t blocks = (job->dv + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    float *p = job->scratch;
    delta_scratch s;
    s.state = p, p += blocks * DELTA_COLUMNS * job->dk;
    s.q = p, p += DELTA_RUN * job->dk;
    s.k = p, p += DELTA_RUN * job->dk;
    s.alpha = p, s.beta = p + DELTA_RUN, s.kq = p + 2 * DELTA_RUN;
    return s;
}

/* to = x * scale, of unit length first when wanted */
INLINE void delta_vector(float *to, const float *x, int64_t n, const kern_delta *job, float scale) {
    if (job->unit) scale *= 1 / sqrtf(row_sum(x, n, 0, true) + job->unit_eps);
    for (int64_t i = 0; i < n; i += LANES) store_up_to(to + i, load_up_to(x + i, n - i) * scale, n - i);
}

static void delta_ready(const kern_delta *job, const delta_scratch *s, int64_t head, int64_t t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t kh = head / job->repeat, gate = head * job->gate_step.outer + (t + i) * job->gate_step.inner;
        float *q = s->q + i * job->dk, *k = s->k + i * job->dk;
        delta_vector(q, job->q + kh * job->q_step.outer + (t + i) * job->q_step.inner, job->dk, job,
                     job->q_scale);
        delta_vector(k, job->k + kh * job->k_step.outer + (t + i) * job->k_step.inner, job->dk, job, 1);
        s->alpha[i] = job->decayed ? job->log_decay[gate] : expf(job->log_decay[gate]);
        s->beta[i] = job->beta[gate];
        vec sum = v_all(0);
        for (int64_t c = 0; c < job->dk; c += LANES)
            sum = v_fma(load_up_to(q + c, job->dk - c), load_up_to(k + c, job->dk - c), sum);
        s->kq[i] = v_sum(sum);
    }
}

/* One token's part in a sweep. */
typedef struct {
    float alpha;
    const float *k, *q;
    vec u[DELTA_VECS]; /* beta (v - S^T k) */
} delta_token;

typedef enum { IN_BLOCK, IN_STATE } delta_side;

/* The next block of columns, or the first one of the next head, on its way to the second cache: rows of a
 * block lie so far apart that the processor doesn't fetch ahead by itself. */
INLINE void delta_fetch(const kern_delta *job, int64_t at, int64_t ahead, int vecs) {
    int64_t size = job->state.type == KERN_F32 ? 4 : 2;
    for (int64_t i = 0; i < vecs * LANES * size; i += 64) {
        __builtin_prefetch((const char *)job->state.value + (at + ahead) * size + i, 0, 2);
        if (job->state.rest) __builtin_prefetch((const char *)(job->state.rest + at + ahead) + i, 0, 2);
    }
}

/* Goes once over a block of `vecs` vectors of columns: takes in token `old` (if any), multiplies by k and q
 * of token `next` (if any). from, to: whether rows are read and written in the block, or in the state from
 * element `at` on. */
INLINE void delta_sweep(const kern_delta *job, float *block, int64_t at, kept as, int vecs, delta_side from,
                        delta_side to, const delta_token *old, const delta_token *next, vec *kS, vec *qS) {
    vec ks[DELTA_VECS], qs[DELTA_VECS];
    int64_t columns = vecs * LANES, column = at % job->dv + columns;
    int64_t ahead = column < job->dv ? columns : job->dk * job->dv + columns - column;
    for (int c = 0; c < vecs; c++) ks[c] = qs[c] = v_all(0);
    for (int64_t i = 0; i < job->dk; i++, at += job->dv, block += columns) {
        vec s[DELTA_VECS];
        if (from == IN_STATE) delta_fetch(job, at, ahead, vecs);
        for (int c = 0; c < vecs; c++)
            s[c] = from == IN_STATE ? kept_load(&job->state, as, at + c * LANES) : v_load(block + c * LANES);
        if (old) {
            vec k = v_all(old->k[i]);
            for (int c = 0; c < vecs; c++) s[c] = v_fma(k, old->u[c], s[c] * old->alpha);
        }
        for (int c = 0; c < vecs; c++)
            if (to == IN_STATE)
                kept_store(&job->state, as, at + c * LANES, s[c]);
            else if (old || from == IN_STATE)
                v_store(block + c * LANES, s[c]);
        if (next) {
            vec k = v_all(next->k[i]), q = v_all(next->q[i]);
            for (int c = 0; c < vecs; c++) ks[c] = v_fma(k, s[c], ks[c]);
            for (int c = 0; c < vecs; c++) qs[c] = v_fma(q, s[c], qs[c]);
        }
    }
    if (next)
        for (int c = 0; c < vecs; c++) kS[c] = ks[c], qS[c] = qs[c];
}

INLINE delta_token delta_token_of(const kern_delta *job, const delta_scratch *s, int64_t i) {
    return (delta_token){.alpha = s->alpha[i], .k = s->k + i * job->dk, .q = s->q + i * job->dk};
}

/* What token t, the i-th of its run, adds to the columns from c on, and its results there. */
INLINE void delta_token_end(const kern_delta *job, const delta_scratch *s, int64_t head, int64_t t, int64_t i,
                            int64_t c, int vecs, const vec *ks, const vec *qs, delta_token *token) {
    const float *v = job->v + head * job->v_step.outer + t * job->v_step.inner + c;
    float *o = job->y + head * job->y_step.outer + t * job->y_step.inner + c;
    for (int u = 0; u < vecs; u++) {
        int64_t left = at_least(job->dv - c - u * LANES, 0);
        token->u[u] = (load_up_to(v + u * LANES, left) - ks[u] * token->alpha) * s->beta[i];
        store_up_to(o + u * LANES, v_fma(token->u[u], v_all(s->kq[i]), qs[u] * token->alpha), left);
    }
}

/* Tokens t .. t + n through the columns from c on. whole: the state is read and written on the way, which it
 * keeps `as`; else the columns are already in the block, and stay there. */
INLINE void delta_columns(const kern_delta *job, const delta_scratch *s, int64_t head, int64_t t, int64_t n,
                          int64_t c, kept as, int vecs, bool whole) {
    float *block = s->state + c * job->dk;
    int64_t at = head * job->dk * job->dv + c;
    delta_side side = whole ? IN_STATE : IN_BLOCK;
    vec ks[DELTA_VECS], qs[DELTA_VECS];
    delta_token old = delta_token_of(job, s, 0);
    delta_sweep(job, block, at, as, vecs, side, IN_BLOCK, NULL, &old, ks, qs);
    delta_token_end(job, s, head, t, 0, c, vecs, ks, qs, &old);
    for (int64_t i = 1; i < n; i++) {
        delta_token next = delta_token_of(job, s, i);
        delta_sweep(job, block, at, as, vecs, IN_BLOCK, IN_BLOCK, &old, &next, ks, qs);
        delta_token_end(job, s, head, t + i, i, c, vecs, ks, qs, &next);
        old = next;
    }
    delta_sweep(job, block, at, as, vecs, IN_BLOCK, side, &old, NULL, NULL, NULL);
}

/* delta_columns() of whole blocks, as many vectors wide as divide a row. */
INLINE void delta_whole(const kern_delta *job, const delta_scratch *s, int64_t head, int64_t n, kept as) {
    for (int64_t c = 0; c < job->dv && job->dv % (4 * LANES) == 0; c += 4 * LANES)
        delta_columns(job, s, head, 0, n, c, as, 4, true);
    for (int64_t c = 0; c < job->dv && job->dv % (4 * LANES) == 2 * LANES; c += 2 * LANES)
        delta_columns(job, s, head, 0, n, c, as, 2, true);
    for (int64_t c = 0; c < job->dv && job->dv % (2 * LANES) == LANES; c += LANES)
        delta_columns(job, s, head, 0, n, c, as, 1, true);
}

static void delta_at_once(const kern_delta *job, const delta_scratch *s, int64_t head) {
    switch (kept_as(&job->state)) {
    case KEPT_F16: delta_whole(job, s, head, job->tokens, KEPT_F16); break;
    case KEPT_PAIR: delta_whole(job, s, head, job->tokens, KEPT_PAIR); break;
    case KEPT_F32: delta_whole(job, s, head, job->tokens, KEPT_F32); break;
    }
}

/* A head's state to the blocks in scratch, zeros behind the last column, or back. */
static void delta_copy(const kern_delta *job, const delta_scratch *s, int64_t head, bool back) {
    kept as = kept_as(&job->state);
    int64_t blocks = (job->dv + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    for (int64_t c = 0; c < blocks * DELTA_COLUMNS; c += LANES)
        for (int64_t i = 0; i < job->dk; i++) {
            float *x = s->state + c / DELTA_COLUMNS * DELTA_COLUMNS * job->dk + i * DELTA_COLUMNS +
                       c % DELTA_COLUMNS;
            int64_t at = (head * job->dk + i) * job->dv + c, n = job->dv - c < LANES ? job->dv - c : LANES;
            if (n <= 0) {
                if (!back) v_store(x, v_all(0));
            } else if (back && n == LANES)
                kept_store(&job->state, as, at, v_load(x));
            else if (back)
                kept_store_n(&job->state, as, at, v_load(x), n);
            else
                v_store(x, n == LANES ? kept_load(&job->state, as, at) : kept_load_n(&job->state, as, at, n));
        }
}

/* A row of a state [dv][dk], from there or back. */
INLINE void delta_row(const kern_delta *job, kept as, float *row, int64_t at, bool back) {
    for (int64_t i = 0; i < job->dk; i += LANES) {
        int64_t n = job->dk - i;
        if (back && n >= LANES)
            kept_store(&job->state, as, at + i, v_load(row + i));
        else if (back)
            kept_store_n(&job->state, as, at + i, load_up_to(row + i, n), n);
        else
            store_up_to(
                row + i,
                n >= LANES ? kept_load(&job->state, as, at + i) : kept_load_n(&job->state, as, at + i, n), n);
    }
}

/* One token through row c. */
INLINE void delta_row_token(const kern_delta *job, const delta_scratch *s, float *row, int64_t head,
                            int64_t c, int64_t t, int64_t j) {
    int64_t dk = job->dk;
    const float *k = s->k + j * dk, *q = s->q + j * dk;
    vec ks = v_all(0), qs = v_all(0);
    for (int64_t i = 0; i < dk; i += LANES) {
        vec x = load_up_to(row + i, dk - i);
        ks = v_fma(load_up_to(k + i, dk - i), x, ks);
        qs = v_fma(load_up_to(q + i, dk - i), x, qs);
    }
    float v = job->v[head * job->v_step.outer + (t + j) * job->v_step.inner + c],
          u = (v - v_sum(ks) * s->alpha[j]) * s->beta[j];
    job->y[head * job->y_step.outer + (t + j) * job->y_step.inner + c] =
        v_sum(qs) * s->alpha[j] + u * s->kq[j];
    for (int64_t i = 0; i < dk; i += LANES) {
        vec old = load_up_to(row + i, dk - i) * s->alpha[j];
        store_up_to(row + i, v_fma(load_up_to(k + i, dk - i), v_all(u), old), dk - i);
    }
}

/* Tokens t .. t + n through a state [dv][dk], of which no row depends on another. With more tokens than that
 * the rows wait in scratch. */
INLINE void delta_rows(const kern_delta *job, const delta_scratch *s, kept as, int64_t head, int64_t t,
                       int64_t n) {
    bool alone = n == job->tokens;
    for (int64_t c = 0; c < job->dv; c++) {
        float *row = s->state + (alone ? 0 : c * job->dk);
        int64_t at = (head * job->dv + c) * job->dk;
        if (t == 0) delta_row(job, as, row, at, false);
        for (int64_t j = 0; j < n; j++) delta_row_token(job, s, row, head, c, t, j);
        if (t + n == job->tokens) delta_row(job, as, row, at, true);
    }
}

static void delta_turned(const kern_delta *job, const delta_scratch *s, int64_t head, int64_t t, int64_t n) {
    switch (kept_as(&job->state)) {
    case KEPT_F16: delta_rows(job, s, KEPT_F16, head, t, n); break;
    case KEPT_PAIR: delta_rows(job, s, KEPT_PAIR, head, t, n); break;
    case KEPT_F32: delta_rows(job, s, KEPT_F32, head, t, n); break;
    }
}

static void delta_output(const kern_delta *job, int64_t head) {
    if (!job->weight) return;
    kern_norm gated = {.n = job->dv,
                       .inner = 1,
                       .kind = KERN_NORM_MEAN,
                       .eps = job->eps,
                       .scale = 1,
                       .x = job->y + head * job->y_step.outer,
                       .weight = job->weight,
                       .z = job->z ? job->z + head * job->z_step.outer : NULL,
                       .x_step = {job->y_step.inner, 0},
                       .y_step = {job->y_step.inner, 0},
                       .z_step = {job->z_step.inner, 0},
                       .y = job->y + head * job->y_step.outer};
    norm(&gated, 0, job->tokens);
}

static void delta(const kern_delta *job, int64_t lo, int64_t hi) {
    delta_scratch s = delta_scratch_of(job);
    /* one run of tokens: a block is read, worked on and written while it is in the first cache */
    bool whole = job->tokens <= DELTA_RUN && job->dv % LANES == 0 && !job->transposed,
         copies = !whole && !job->transposed;
    for (int64_t head = lo; head < hi; head++) {
        if (copies) delta_copy(job, &s, head, false);
        for (int64_t t = 0; t < job->tokens; t += DELTA_RUN) {
            int64_t n = job->tokens - t < DELTA_RUN ? job->tokens - t : DELTA_RUN;
            delta_ready(job, &s, head, t, n);
            if (job->transposed) delta_turned(job, &s, head, t, n);
            if (whole) delta_at_once(job, &s, head);
            for (int64_t c = 0; c < job->dv && copies; c += DELTA_COLUMNS)
                delta_columns(job, &s, head, t, n, c, KEPT_F32, DELTA_VECS, false);
        }
        if (copies) delta_copy(job, &s, head, true);
        delta_output(job, head);
    }
}
#endif
