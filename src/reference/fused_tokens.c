/* The fused ops over several tokens, token by token. */
#include "base/num.h"
#include "reference/ops.h"
#include <math.h>
#include <string.h>

static float silu(float x) {
    return x / (1 + expf(-x));
}

bool ev_fused_conv(ref_eval *v) {
    const ref_tensor *ts = ev_in(v, A_memory), *tx = ev_in(v, A_x), *tw = ev_in(v, A_weight);
    const float *s = ev_floats(v, ts), *x = ev_floats(v, tx), *w = ev_floats(v, tw);
    int64_t channels = ts->type.dim[1], n = ts->type.dim[2], tokens = tx->type.dim[2];
    int64_t valid = ev_int(v, A_valid, tokens);
    bool activate = ev_bool(v, A_activate, false);
    if (!s || !x || !w) return false;
    if (ts->type.dim[0] != 1 || ref_count(tx) != channels * tokens || ref_count(tw) != channels * (n + 1))
        return ev_fail(v, "operands don't fit the memory");
    if (valid < 0 || valid > tokens)
        return ev_fail(v, "%lld of %lld tokens", (long long)valid, (long long)tokens);
    float *column = ev_temp(v, n + tokens);
    if (!column || !ev_new(v, 0) || !ev_new(v, 1)) return false;
    for (int64_t c = 0; c < channels; c++) {
        float *y = ref_floats(&v->out[0]) + c * tokens, *kept = ref_floats(&v->out[1]) + c * n;
        memcpy(column, s + c * n, (size_t)n * 4);
        memcpy(column + n, x + c * tokens, (size_t)tokens * 4);
        for (int64_t t = 0; t < tokens; t++) {
            float sum = 0;
            for (int64_t i = 0; i <= n; i++) sum += column[t + i] * w[c * (n + 1) + i];
            y[t] = activate ? silu(sum) : sum;
        }
        for (int64_t i = 0; i < n; i++) kept[i] = ev_kept(v, column[valid + i]);
    }
    return true;
}

/* ---- the gated delta rule ---- */

typedef struct {
    int64_t heads, tokens, dk, dv;
    const float *q, *k, *v, *log_decay, *beta, *gamma, *gate;
    int64_t repeat; /* value heads that share a query and key head */
    float unit, scale, epsilon;
    bool normed;
} rule;

/* to = x * scale, of unit length first when wanted */
static void vector(const rule *r, float *to, const float *x, float scale) {
    float square = 0;
    for (int64_t i = 0; i < r->dk && r->normed; i++) square += x[i] * x[i];
    float factor = r->normed ? 1 / sqrtf(square + r->unit) : 1;
    for (int64_t i = 0; i < r->dk; i++) to[i] = x[i] * factor * scale;
}

/* One token of head h: S changes, o is the result. q, k, error: room for dk, dk, dv. */
static void rule_step(const rule *r, int64_t h, int64_t t, float *S, float *q, float *error, float *o) {
    int64_t dk = r->dk, dv = r->dv, from = (h / r->repeat * r->tokens + t) * dk, at = h * r->tokens + t;
    float *k = q + dk, decay = expf(r->log_decay[at]);
    vector(r, q, r->q + from, r->scale);
    vector(r, k, r->k + from, 1);
    memset(error, 0, (size_t)dv * 4);
    memset(o, 0, (size_t)dv * 4);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t c = 0; c < dv; c++) error[c] += k[i] * (S[i * dv + c] *= decay);
    for (int64_t c = 0; c < dv; c++) error[c] = (r->v[at * dv + c] - error[c]) * r->beta[at];
    for (int64_t i = 0; i < dk; i++)
        for (int64_t c = 0; c < dv; c++) o[c] += q[i] * (S[i * dv + c] += k[i] * error[c]);
}

static void rule_output(const rule *r, const float *gate, float *o) {
    float square = 0;
    for (int64_t c = 0; c < r->dv; c++) square += o[c] * o[c];
    float factor = 1 / sqrtf(square / (float)r->dv + r->epsilon);
    for (int64_t c = 0; c < r->dv; c++) {
        o[c] *= factor * r->gamma[c];
        if (gate) o[c] *= silu(gate[c]);
    }
}

static bool rule_open(ref_eval *v, rule *r) {
    const ref_tensor *ts = ev_in(v, A_memory), *tq = ev_in(v, A_query), *tv = ev_in(v, A_value),
                     *tg = ev_in(v, A_gamma), *tz = ev_in(v, A_gate);
    *r = (rule){.heads = ts->type.dim[0] * ts->type.dim[1],
                .tokens = tv->type.dim[2],
                .dk = ts->type.dim[2],
                .dv = ts->type.dim[3],
                .q = ev_floats(v, tq),
                .k = ev_floats(v, ev_in(v, A_key)),
                .v = ev_floats(v, tv),
                .log_decay = ev_floats(v, ev_in(v, A_log_decay)),
                .beta = ev_floats(v, ev_in(v, A_beta)),
                .gamma = tg ? ev_floats(v, tg) : NULL,
                .gate = tz ? ev_floats(v, tz) : NULL,
                .unit = ev_float(v, A_unit, 0),
                .normed = ev_in(v, A_unit) != NULL,
                .scale = ev_float(v, A_scale, 1),
                .epsilon = ev_float(v, A_epsilon, 0)};
    if (!r->q || !r->k || !r->v || !r->log_decay || !r->beta || (tg && !r->gamma) || (tz && !r->gate))
        return false;
    int64_t rows = r->heads * r->tokens, head = r->tokens * r->dk,
            shared = head > 0 ? ref_count(tq) / head : 0;
    if (!rows || !shared || r->heads % shared || ref_count(ev_in(v, A_key)) != ref_count(tq) ||
        ref_count(tv) != rows * r->dv || ref_count(ev_in(v, A_log_decay)) != rows ||
        ref_count(ev_in(v, A_beta)) != rows || (tz && (!tg || ref_count(tz) != rows * r->dv)))
        return ev_fail(v, "operands don't fit the memory");
    r->repeat = r->heads / shared;
    return true;
}

bool ev_fused_delta_rule(ref_eval *v) {
    const ref_tensor *tl = ev_in(v, A_low);
    const float *s = ev_floats(v, ev_in(v, A_memory)), *low = tl ? ev_floats(v, tl) : NULL;
    rule r;
    if (!s || (tl && !low) || !rule_open(v, &r)) return false;
    int64_t size = r.dk * r.dv;
    float *S = ev_temp(v, size + 2 * r.dk + r.dv);
    if (!S || !ev_new(v, 0) || !ev_new(v, 1) || (tl && !ev_new(v, 2))) return false;
    for (int64_t h = 0; h < r.heads; h++) {
        for (int64_t i = 0; i < size; i++) S[i] = s[h * size + i] + (low ? low[h * size + i] : 0);
        for (int64_t t = 0; t < r.tokens; t++) {
            int64_t by_token = t * r.heads + h, at = (r.gamma ? by_token : h * r.tokens + t) * r.dv;
            float *o = ref_floats(&v->out[0]) + at;
            rule_step(&r, h, t, S, S + size, S + size + 2 * r.dk, o);
            if (r.gamma) rule_output(&r, r.gate ? r.gate + by_token * r.dv : NULL, o);
        }
        for (int64_t i = 0; i < size; i++) {
            float hi = ev_kept(v, S[i]);
            ref_floats(&v->out[1])[h * size + i] = hi;
            if (tl) ref_floats(&v->out[2])[h * size + i] = num_round_f16(S[i] - hi);
        }
    }
    return true;
}
