/* Products: linear, matmul, einsum, attention. */
#include "ir/infer_rules.h"
#include <string.h>

bool rule_linear(infer *in) {
    ir_type x = inf_type(in, A_x), w = inf_type(in, A_weight);
    int64_t unused;
    if (x.rank < 1) return inf_bad(in, A_x, "expected rank 1 to 3");
    if (w.rank != 2) return inf_bad(in, A_weight, "expected rank 2");
    if (!inf_unify(x.dim[x.rank - 1], w.dim[1], &unused))
        return inf_bad(in, A_x, "its last size must be that of weight, %s", ir_type_text(in->a, &w));
    if (inf_has(in, A_bias)) {
        ir_type b = inf_type(in, A_bias);
        if (b.rank != 1 || !inf_unify(b.dim[0], w.dim[0], &unused))
            return inf_bad(in, A_bias, "expected one entry a row of weight, %s", ir_type_text(in->a, &w));
    }
    x.dim[x.rank - 1] = w.dim[0];
    in->out[0] = x;
    return true;
}

static void swap_last(ir_type *t) {
    int64_t d = t->dim[t->rank - 1];
    t->dim[t->rank - 1] = t->dim[t->rank - 2];
    t->dim[t->rank - 2] = d;
}

/* From CoreML7 on a constant operand may have another dtype; the other one decides. */
static bool matmul_dtype(infer *in, ir_dtype x, ir_dtype y, ir_dtype *d) {
    bool cx = ir_in(in->op, A_x)->konst, cy = ir_in(in->op, A_y)->konst;
    *d = cx && !cy ? y : x;
    return x == y || (in->spec >= 8 && cx != cy) ||
           inf_fail(in, "operands x (%s) and y (%s) must have the same dtype", dtype_name(x), dtype_name(y));
}

bool rule_matmul(infer *in) {
    ir_type x = inf_type(in, A_x), y = inf_type(in, A_y), batch;
    ir_dtype dtype;
    bool tx, ty;
    if (!inf_bool(in, A_transpose_x, false, &tx) || !inf_bool(in, A_transpose_y, false, &ty)) return false;
    if (!matmul_dtype(in, (ir_dtype)x.dtype, (ir_dtype)y.dtype, &dtype)) return false;
    if (!x.rank) return inf_bad(in, A_x, "expected rank 1 or more");
    if (!y.rank) return inf_bad(in, A_y, "expected rank 1 or more");
    bool vector_x = x.rank == 1, vector_y = y.rank == 1; /* as in NumPy: a row, a column; then dropped */
    if (vector_x)
        x = ir_tensor((ir_dtype)x.dtype, 2, (const int64_t[]){1, x.dim[0]});
    else if (tx)
        swap_last(&x);
    if (vector_y)
        y = ir_tensor((ir_dtype)y.dtype, 2, (const int64_t[]){y.dim[0], 1});
    else if (ty)
        swap_last(&y);
    int64_t inner, rows = x.dim[x.rank - 2], columns = y.dim[y.rank - 1];
    if (!inf_unify(x.dim[x.rank - 1], y.dim[y.rank - 2], &inner))
        return inf_fail(in, "operands x %s and y %s (after transposition) do not multiply",
                        ir_type_text(in->a, &x), ir_type_text(in->a, &y));
    ir_type bx = x, by = y;
    bx.rank -= 2, by.rank -= 2;
    if (!ir_broadcast(&bx, &by, &batch))
        return inf_fail(in, "batch sizes of x %s and y %s do not broadcast", ir_type_text(in->a, &x),
                        ir_type_text(in->a, &y));
    batch.dtype = (uint8_t)dtype;
    in->out[0] = batch;
    return (vector_x || inf_push(in, in->out, rows)) && (vector_y || inf_push(in, in->out, columns));
}

/* Sizes of the letters of one operand's term; size[] starts as 0 = not seen. */
static bool einsum_term(infer *in, const char *term, size_t n, const ir_type *t, int64_t *size, bool *seen) {
    if (n != (size_t)t->rank)
        return inf_fail(in, "equation gives %zu letters to an operand of rank %d", n, t->rank);
    bool here[128] = {false};
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)term[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) || here[c])
            return inf_fail(in, "equation: a term must be made of different letters");
        here[c] = true;
        int64_t d = t->dim[i];
        if (!seen[c] || size[c] == 1)
            size[c] = d;
        else if (d != 1 && !inf_unify(size[c], d, &size[c]))
            return inf_fail(in, "equation: letter %c has sizes %lld and %lld", c, (long long)size[c],
                            (long long)d);
        seen[c] = true;
    }
    return true;
}

bool rule_einsum(infer *in) {
    const ir_arg *values = ir_args(in->op, A_values);
    const char *s = ir_env_text(in->op, A_equation, ""), *arrow = strstr(s, "->");
    if (!arrow) return inf_fail(in, "equation \"%.40s\" has no ->", s);
    int64_t size[128] = {0};
    bool seen[128] = {false};
    ir_type out = {.kind = IR_TENSOR};
    for (uint32_t i = 0; i < values->n; i++) {
        ir_type t = in->env->type(in->env->ctx, values->v[i]);
        if (i && t.dtype != out.dtype) return inf_fail(in, "operand values mixes dtypes");
        out.dtype = t.dtype;
        size_t n = 0;
        while (s + n < arrow && s[n] != ',') n++;
        if (!einsum_term(in, s, n, &t, size, seen)) return false;
        s += n;
        if (i + 1 < values->n && s++ >= arrow)
            return inf_fail(in, "equation has fewer terms than there are operands");
    }
    if (s != arrow) return inf_fail(in, "equation has more terms than there are operands");
    bool used[128] = {false};
    for (const char *c = arrow + 2; *c; c++) {
        unsigned char letter = (unsigned char)*c;
        if (letter >= 128 || !seen[letter] || used[letter])
            return inf_fail(in, "equation: bad letter in the result");
        used[letter] = true;
        if (!inf_push(in, &out, size[letter])) return false;
    }
    in->out[0] = out;
    return true;
}

static bool sdpa_mask(infer *in, const ir_type *q, int64_t keys) {
    ir_type mask = inf_type(in, A_attn_mask), scores = *q, both;
    int64_t unused;
    scores.dim[q->rank - 1] = keys;
    if (mask.rank < 1 || mask.rank > q->rank || !inf_unify(mask.dim[mask.rank - 1], keys, &unused) ||
        !ir_broadcast(&scores, &mask, &both) || !ir_type_compatible(&scores, &both))
        return inf_bad(in, A_attn_mask, "expected to broadcast to the scores, %s",
                       ir_type_text(in->a, &scores));
    return true;
}

bool rule_sdpa(infer *in) {
    ir_type q = inf_type(in, A_query), k = inf_type(in, A_key), v = inf_type(in, A_value);
    int r = q.rank;
    if (r < 3) return inf_bad(in, A_query, "expected rank 3 or more");
    if (k.rank != r) return inf_bad(in, A_key, "expected the rank of query, %d", r);
    if (v.rank != r) return inf_bad(in, A_value, "expected the rank of query, %d", r);
    int64_t unused, keys;
    for (int i = 0; i < r - 2; i++)
        if (!inf_unify(q.dim[i], k.dim[i], &q.dim[i]) || !inf_unify(q.dim[i], v.dim[i], &q.dim[i]))
            return inf_fail(in, "query, key and value differ in batch dimension %d", i);
    if (!inf_unify(q.dim[r - 1], k.dim[r - 1], &unused))
        return inf_bad(in, A_key, "its last size must be that of query");
    if (!inf_unify(k.dim[r - 2], v.dim[r - 2], &keys))
        return inf_bad(in, A_value, "it must have as many rows as key");
    if (inf_has(in, A_attn_mask) && !sdpa_mask(in, &q, keys)) return false;
    in->out[0] = q;
    in->out[0].dim[r - 1] = v.dim[r - 1];
    return true;
}
