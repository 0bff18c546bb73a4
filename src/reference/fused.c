/* The fused ops of src/optimize, as the ops that they stand for would compute them one by one. */
#include "base/num.h"
#include "reference/ops.h"
#include "reference/walk.h"
#include <math.h>
#include <string.h>

static float rounded(bool round, float x) {
    return round ? num_round_f16(x) : x;
}

bool ev_fused_norm(ref_eval *v) {
    const ref_tensor *tx = ev_in(v, A_x), *tg = ev_in(v, A_gamma);
    const float *x = ev_floats(v, tx), *gamma = tg ? ev_floats(v, tg) : NULL;
    float eps = ev_float(v, A_epsilon, 0), scale = ev_float(v, A_scale, 1);
    bool sum = ev_bool(v, A_sum, false);
    int64_t bits = ev_int(v, A_rounding, 0), n = tx->type.dim[tx->type.rank - 1];
    if (!x || (tg && !gamma) || !ev_new(v, 0)) return false;
    float *y = ref_floats(&v->out[0]);
    for (int64_t i = 0, count = ref_count(tx); i < count; i += n) {
        float square = 0;
        for (int64_t k = 0; k < n; k++) square += x[i + k] * x[i + k];
        float factor = 1 / sqrtf((sum ? square : square / (float)n) + eps);
        for (int64_t k = 0; k < n; k++) {
            float a = rounded(bits & 1, x[i + k] * factor);
            if (scale != 1) a = rounded(bits & 2, a * scale);
            y[i + k] = gamma ? rounded(bits & 4, a * gamma[k]) : a;
        }
    }
    return true;
}

bool ev_fused_linear(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_add);
    const float *add = ev_floats(v, t);
    if (!add || !ev_linear(v)) return false;
    float *y = ref_floats(&v->out[0]);
    for (int64_t i = 0, n = ref_count(t); i < n; i++) y[i] += add[i];
    return true;
}

bool ev_fused_swiglu(ref_eval *v) {
    const ref_tensor *tg = ev_in(v, A_gate), *tu = ev_in(v, A_up);
    const float *g = ev_floats(v, tg), *u = ev_floats(v, tu);
    bool round = ev_int(v, A_rounding, 0) & 1;
    if (!g || !u || !ev_new(v, 0)) return false;
    float *y = ref_floats(&v->out[0]);
    for (int64_t i = 0, n = ref_count(tg); i < n; i++) y[i] = rounded(round, g[i] / (1 + expf(-g[i]))) * u[i];
    return true;
}

bool ev_fused_rope(ref_eval *v) {
    const ref_tensor *tx = ev_in(v, A_x), *tc = ev_in(v, A_cos), *ts = ev_in(v, A_sin);
    const float *x = ev_floats(v, tx), *c = ev_floats(v, tc), *s = ev_floats(v, ts);
    bool round = ev_int(v, A_rounding, 0) & 1;
    if (!x || !c || !s || !ev_new(v, 0)) return false;
    int rank = tx->type.rank;
    int64_t whole = tx->type.dim[rank - 1], n = tc->type.dim[tc->type.rank - 1], half = n / 2;
    ir_type rows = tx->type, table = tc->type;
    rows.rank--, table.rank--;
    int64_t st[IR_MAX_RANK];
    ref_broadcast_strides(&table, &rows, st);
    float *y = ref_floats(&v->out[0]);
    for (int64_t r = 0, count = ref_count(tx) / (whole ? whole : 1); r < count; r++, x += whole, y += whole) {
        int64_t at = 0, rest = r;
        for (int d = rows.rank - 1; d >= 0; d--) {
            at += rest % rows.dim[d] * st[d];
            rest /= rows.dim[d];
        }
        for (int64_t i = 0; i < n; i++) {
            float other = i < half ? -x[i + half] : x[i - half];
            y[i] = rounded(round, x[i] * c[at * n + i]) + rounded(round, other * s[at * n + i]);
        }
        memcpy(y + n, x + n, (size_t)(whole - n) * 4);
    }
    return true;
}

/* ---- attention ---- */

static void weigh(float *s, int64_t keys, const float *mask, int64_t step, float scale, int64_t bits) {
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        s[j] = rounded(bits & 1, s[j]);
        if (scale != 1) s[j] = rounded(bits & 2, s[j] * scale);
        if (mask) s[j] = rounded(bits & 4, s[j] + mask[j * step]);
        top = s[j] > top ? s[j] : top;
    }
    for (int64_t j = 0; j < keys; j++) sum += s[j] = expf(s[j] - top);
    for (int64_t j = 0; j < keys; j++) s[j] = rounded(bits & 8, s[j] / sum);
}

bool ev_fused_attention(ref_eval *v) {
    const ref_tensor *tq = ev_in(v, A_query), *tk = ev_in(v, A_key), *tv = ev_in(v, A_value),
                     *tm = ev_in(v, A_mask);
    const float *q = ev_floats(v, tq), *k = ev_floats(v, tk), *val = ev_floats(v, tv),
                *m = tm ? ev_floats(v, tm) : NULL;
    if (!q || !k || !val || (tm && !m) || !ev_new(v, 0)) return false;
    ir_type out = v->out[0].type, batch = out, scores = out;
    batch.rank -= 2;
    int64_t t = out.dim[out.rank - 2], width = out.dim[out.rank - 1], depth = tq->type.dim[tq->type.rank - 1];
    int64_t all = tk->type.dim[tk->type.rank - 2], keys = ev_int(v, A_length, all);
    bool causal = v->op->code == OP_causal_attention || ev_bool(v, A_causal, false);
    if (causal && keys < t) return ev_fail(v, "%lld keys for %lld tokens", (long long)keys, (long long)t);
    if (keys < 1 || keys > all) return ev_fail(v, "%lld keys of %lld", (long long)keys, (long long)all);
    scores.dim[out.rank - 1] = keys;
    ir_type bq = tq->type, bk = tk->type, bv = tv->type, fit;
    bq.rank -= 2, bk.rank -= 2, bv.rank -= 2;
    int64_t sq[IR_MAX_RANK], sk[IR_MAX_RANK], sv[IR_MAX_RANK], sm[IR_MAX_RANK];
    ref_broadcast_strides(&bq, &batch, sq);
    ref_broadcast_strides(&bk, &batch, sk);
    ref_broadcast_strides(&bv, &batch, sv);
    if (tm && (!ir_broadcast(&scores, &tm->type, &fit) || fit.rank != scores.rank))
        return ev_fail(v, "mask doesn't fit");
    if (tm) ref_broadcast_strides(&tm->type, &scores, sm);
    float *s = ev_temp(v, keys + 1), *o = ref_floats(&v->out[0]), scale = ev_float(v, A_scale, 1);
    int64_t bits = ev_int(v, A_rounding, 0), n = ir_type_count(&batch);
    if (!s) return false;
    for (int64_t b = 0; b < n; b++) {
        int64_t at[4] = {0}, rest = b;
        for (int d = batch.rank - 1; d >= 0; d--) {
            int64_t i = rest % batch.dim[d];
            rest /= batch.dim[d];
            at[0] += i * sq[d], at[1] += i * sk[d], at[2] += i * sv[d], at[3] += tm ? i * sm[d] : 0;
        }
        for (int64_t i = 0; i < t; i++, o += width) {
            int64_t seen = causal ? keys - t + i + 1 : keys;
            for (int64_t j = 0; j < seen; j++) {
                const float *a = q + (at[0] * t + i) * depth, *c = k + (at[1] * all + j) * depth;
                s[j] = 0;
                for (int64_t d = 0; d < depth; d++) s[j] += a[d] * c[d];
            }
            weigh(s, seen, tm ? m + at[3] + i * sm[out.rank - 2] : NULL, tm ? sm[out.rank - 1] : 0, scale,
                  bits);
            memset(o, 0, (size_t)width * 4);
            for (int64_t j = 0; j < seen; j++)
                for (int64_t d = 0; d < width; d++) o[d] += s[j] * val[(at[2] * all + j) * width + d];
        }
    }
    return true;
}

/* ---- the gated delta rule, one token ---- */

typedef struct {
    int64_t dk, dv;
    const float *q, *k, *v;
    float decay, beta;
    bool round;
} token;

static void delta_head(const token *t, float *S, float *recall, float *o) {
    int64_t dk = t->dk, dv = t->dv;
    memset(recall, 0, (size_t)dv * 4);
    memset(o, 0, (size_t)dv * 4);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t c = 0; c < dv; c++) {
            S[i * dv + c] = rounded(t->round, S[i * dv + c] * t->decay);
            recall[c] += t->k[i] * S[i * dv + c];
        }
    for (int64_t c = 0; c < dv; c++) recall[c] = rounded(t->round, t->v[c] - rounded(t->round, recall[c]));
    for (int64_t i = 0; i < dk; i++) {
        float write = rounded(t->round, t->k[i] * t->beta);
        for (int64_t c = 0; c < dv; c++) {
            S[i * dv + c] = rounded(t->round, S[i * dv + c] + rounded(t->round, write * recall[c]));
            o[c] += t->q[i] * S[i * dv + c];
        }
    }
}

float ev_kept(const ref_eval *v, float x) {
    return rounded(v->op->out[1]->type.dtype == DT_FP16, x);
}

/* memory [1,N,dk,dv]; query and key: dk numbers for each head or for groups of them; value: dv, decay, beta:
 * 1 for each. */
bool ev_fused_delta(ref_eval *v) {
    const ref_tensor *ts = ev_in(v, A_memory), *tl = ev_in(v, A_low), *tq = ev_in(v, A_query),
                     *tk = ev_in(v, A_key);
    const float *s = ev_floats(v, ts), *low = tl ? ev_floats(v, tl) : NULL, *q = ev_floats(v, tq),
                *k = ev_floats(v, tk), *val = ev_floats(v, ev_in(v, A_value)),
                *decay = ev_floats(v, ev_in(v, A_decay)), *beta = ev_floats(v, ev_in(v, A_beta));
    bool turned = ev_bool(v, A_turned, false); /* memory is [1,N,dv,dk] */
    int64_t heads = ts->type.dim[0] * ts->type.dim[1], dk = ts->type.dim[turned ? 3 : 2],
            dv = ts->type.dim[turned ? 2 : 3];
    int64_t nq = ref_count(tq) / (dk ? dk : 1), nk = ref_count(tk) / (dk ? dk : 1);
    if (!s || (tl && !low) || !q || !k || !val || !decay || !beta) return false;
    if (!heads || !nq || heads % nq || heads % nk || ref_count(ev_in(v, A_value)) != heads * dv ||
        ref_count(ev_in(v, A_decay)) != heads || ref_count(ev_in(v, A_beta)) != heads)
        return ev_fail(v, "operands don't fit the memory");
    float *S = ev_temp(v, dk * dv + dv);
    if (!S || !ev_new(v, 0) || !ev_new(v, 1) || (tl && !ev_new(v, 2))) return false;
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t i = 0; i < dk * dv; i++) {
            int64_t at = h * dk * dv + (turned ? i % dv * dk + i / dv : i);
            S[i] = s[at] + (low ? low[at] : 0);
        }
        token t = {dk,       dv,      q + h / (heads / nq) * dk,   k + h / (heads / nk) * dk, val + h * dv,
                   decay[h], beta[h], ev_int(v, A_rounding, 0) & 1};
        delta_head(&t, S, S + dk * dv, ref_floats(&v->out[0]) + h * dv);
        for (int64_t i = 0; i < dk * dv; i++) {
            int64_t at = h * dk * dv + (turned ? i % dv * dk + i / dv : i);
            float hi = ev_kept(v, S[i]);
            ref_floats(&v->out[1])[at] = hi;
            if (tl) ref_floats(&v->out[2])[at] = num_round_f16(S[i] - hi);
        }
    }
    return true;
}

/* memory [1,C,m], x [1,C,1], weight [C,1,n + 1], n <= m columns are kept. */
bool ev_fused_conv_step(ref_eval *v) {
    const ref_tensor *ts = ev_in(v, A_memory), *tx = ev_in(v, A_x), *tw = ev_in(v, A_weight);
    const float *s = ev_floats(v, ts), *x = ev_floats(v, tx), *w = ev_floats(v, tw);
    int64_t channels = ts->type.dim[1], m = ts->type.dim[2], n = ev_int(v, A_kept, m);
    if (!s || !x || !w) return false;
    if (ts->type.dim[0] != 1 || n < 0 || n > m || ref_count(tx) != channels ||
        ref_count(tw) != channels * (n + 1))
        return ev_fail(v, "operands don't fit the memory");
    if (!ev_new(v, 0) || !ev_new(v, 1)) return false;
    memcpy(ref_floats(&v->out[1]), s, (size_t)ref_count(ts) * 4);
    for (int64_t c = 0; c < channels; c++) {
        float sum = 0, *kept = ref_floats(&v->out[1]) + c * m;
        for (int64_t i = 0; i <= n; i++) {
            float a = i < n ? s[c * m + i] : x[c];
            sum += a * w[c * (n + 1) + i];
            if (i) kept[i - 1] = ev_kept(v, a);
        }
        ref_floats(&v->out[0])[c] = sum;
    }
    return true;
}

/* Element by element; region: where the blend is, NULL for everywhere. */
bool ev_fused_blend(ref_eval *v) {
    const ref_tensor *ts = ev_in(v, A_memory), *tr = ev_in(v, A_row), *tm = ev_in(v, A_mask);
    const float *s = ev_floats(v, ts), *row = ev_floats(v, tr), *mask = ev_floats(v, tm);
    int64_t bits = ev_int(v, A_rounding, 0), rank = ts->type.rank, at_s[IR_MAX_RANK], at_r[IR_MAX_RANK],
            at_m[IR_MAX_RANK], first = 0;
    if (!s || !row || !mask || !ev_new(v, 0)) return false;
    size_t n_begin = 0, n_size = 0;
    const int64_t *begin = ev_list(v, A_begin, &n_begin), *size = ev_list(v, A_size, &n_size);
    ir_type region = ts->type;
    ref_strides(&ts->type, at_s);
    for (int d = 0; d < rank; d++) {
        if (n_size) region.dim[d] = size[d];
        if (n_begin) first += begin[d] * at_s[d];
        if ((tr->type.dim[d] != 1 && tr->type.dim[d] != region.dim[d]) ||
            (tm->type.dim[d] != 1 && tm->type.dim[d] != region.dim[d]))
            return ev_fail(v, "row or mask doesn't fit the memory");
    }
    ref_broadcast_strides(&tr->type, &region, at_r);
    ref_broadcast_strides(&tm->type, &region, at_m);
    float *y = ref_floats(&v->out[0]);
    memcpy(y, s, (size_t)ref_count(ts) * 4);
    const int64_t *const strides[] = {at_s, at_r, at_m};
    for (ref_walk w = ref_walk_start(region.rank, region.dim, 3, strides); !w.done; ref_walk_next(&w))
        for (int64_t i = 0; i < w.run; i++) {
            float m = mask[w.pos[2] + i * w.step[2]], *o = y + first + w.pos[0] + i * w.step[0];
            if (m == 0) continue;
            *o = rounded(bits & 2, *o * rounded(bits & 1, 1 - m)) +
                 rounded(bits & 4, row[w.pos[1] + i * w.step[1]] * m);
        }
    return true;
}
