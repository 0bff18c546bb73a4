/* Ops that src/optimize makes. Their operands come from ops that were inferred; sizes are checked all the
 * same. */
#include "ir/infer_rules.h"
#include <string.h>

static bool output_dtype(infer *in) {
    const char *name = ir_env_text(in->op, A_output_dtype, "");
    ir_dtype d = dtype_by_name(name);
    in->out[0].dtype = (uint8_t)d;
    return d == DT_FP16 || d == DT_FP32 || inf_fail(in, "output_dtype is \"%.40s\"", name);
}

/* As x or gate. */
bool rule_fused_rows(infer *in) {
    ir_operand name = inf_has(in, A_x) ? A_x : A_gate;
    in->out[0] = inf_type(in, name);
    if (in->out[0].rank < 1) return inf_bad(in, name, "expected rank 1 or more");
    if (inf_has(in, A_up)) {
        ir_type up = inf_type(in, A_up);
        bool same = up.rank == in->out[0].rank;
        for (int d = 0; d < up.rank && same; d++) same = up.dim[d] == in->out[0].dim[d];
        if (!same) return inf_bad(in, A_up, "expected the shape of gate");
    }
    if (inf_has(in, A_cos)) {
        ir_type c = inf_type(in, A_cos), s = inf_type(in, A_sin);
        bool ok = c.rank >= 1 && c.rank <= in->out[0].rank && s.rank == c.rank;
        for (int d = 0; d < c.rank && ok; d++) ok = c.dim[d] == s.dim[d];
        int64_t n = ok ? c.dim[c.rank - 1] : 0, whole = in->out[0].dim[in->out[0].rank - 1];
        if (!ok || n < 2 || n % 2 || n > whole) return inf_bad(in, A_cos, "doesn't fit x and sin");
        for (int d = 1; d < c.rank; d++) {
            int64_t have = c.dim[c.rank - 1 - d];
            if (have != 1 && have != in->out[0].dim[in->out[0].rank - 1 - d])
                return inf_bad(in, A_cos, "doesn't fit x");
        }
    }
    if (inf_has(in, A_gamma)) {
        ir_type g = inf_type(in, A_gamma);
        if (g.rank != 1 || g.dim[0] != in->out[0].dim[in->out[0].rank - 1])
            return inf_bad(in, A_gamma, "expected one entry an element of a row");
    }
    return output_dtype(in);
}

bool rule_fused_linear(infer *in) {
    ir_type add = inf_type(in, A_add);
    if (!rule_linear(in)) return false;
    bool same = add.rank == in->out[0].rank;
    for (int d = 0; d < add.rank && same; d++) same = add.dim[d] == in->out[0].dim[d];
    return same ? output_dtype(in) : inf_bad(in, A_add, "expected the shape of the result");
}

bool rule_fused_attention(infer *in) {
    ir_type q = inf_type(in, A_query), k = inf_type(in, A_key), v = inf_type(in, A_value), bq = q, bk = k,
            bv = v, b;
    int64_t unused;
    if (q.rank < 2 || k.rank < 2 || v.rank < 2) return inf_bad(in, A_query, "expected rank 2 or more");
    bq.rank -= 2, bk.rank -= 2, bv.rank -= 2;
    if (!inf_unify(q.dim[q.rank - 1], k.dim[k.rank - 1], &unused) ||
        !inf_unify(k.dim[k.rank - 2], v.dim[v.rank - 2], &unused))
        return inf_fail(in, "query, key and value don't fit");
    if (!ir_broadcast(&bq, &bk, &b) || !ir_broadcast(&b, &bv, &b))
        return inf_fail(in, "batch sizes don't broadcast");
    in->out[0] = b;
    return inf_push(in, in->out, q.dim[q.rank - 2]) && inf_push(in, in->out, v.dim[v.rank - 1]) &&
           output_dtype(in);
}

bool rule_fused_delta(infer *in) {
    ir_type s = inf_type(in, A_memory), v = inf_type(in, A_value);
    if (s.rank != 4 || v.rank < 1 || in->op->n_out != (inf_has(in, A_low) ? 3u : 2u))
        return inf_bad(in, A_memory, "expected rank 4");
    for (uint32_t i = 1; i < in->op->n_out; i++) in->out[i] = s;
    in->out[0] = v;
    return output_dtype(in);
}

bool rule_fused_conv_step(infer *in) {
    ir_type s = inf_type(in, A_memory), w = inf_type(in, A_weight);
    if (s.rank != 3 || w.rank != 3) return inf_bad(in, A_memory, "expected rank 3");
    in->out[0] = in->out[1] = s;
    in->out[0].dim[2] = 1;
    return output_dtype(in);
}

bool rule_fused_conv(infer *in) {
    ir_type s = inf_type(in, A_memory), x = inf_type(in, A_x), w = inf_type(in, A_weight);
    if (s.rank != 3 || x.rank != 3 || w.rank != 3) return inf_bad(in, A_memory, "expected rank 3");
    in->out[0] = x;
    in->out[1] = s;
    return output_dtype(in);
}

bool rule_fused_delta_rule(infer *in) {
    ir_type s = inf_type(in, A_memory), v = inf_type(in, A_value);
    if (s.rank != 4 || v.rank != 4 || in->op->n_out != (inf_has(in, A_low) ? 3u : 2u))
        return inf_bad(in, A_memory, "expected rank 4");
    for (uint32_t i = 1; i < in->op->n_out; i++) in->out[i] = s;
    in->out[0] = v;
    if (inf_has(in, A_gamma)) { /* by token */
        const int64_t dim[] = {v.dim[2], v.dim[0], v.dim[1]};
        memcpy(in->out[0].dim, dim, sizeof dim);
    }
    return output_dtype(in);
}

bool rule_fused_blend(infer *in) {
    ir_type s = inf_type(in, A_memory), row = inf_type(in, A_row), mask = inf_type(in, A_mask);
    if (row.rank != s.rank || mask.rank != s.rank) return inf_bad(in, A_row, "expected the rank of memory");
    in->out[0] = s;
    return output_dtype(in);
}
