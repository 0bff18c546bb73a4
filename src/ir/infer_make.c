/* Ops that make tensors from sizes. */
#include "ir/infer_rules.h"
#include <math.h>

bool rule_range_1d(infer *in) {
    static const ir_operand names[] = {A_start, A_end, A_step};
    double v[3];
    bool known = true;
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        const double *d = in->env->numbers(in->env->ctx, ir_in(in->op, names[i]), &n, in->a);
        if (d && n != 1) return inf_bad(in, names[i], "expected a scalar");
        if (d)
            v[i] = d[0];
        else
            known = false;
    }
    int64_t count = IR_DIM_UNKNOWN;
    if (known) {
        double n = ceil((v[1] - v[0]) / v[2]);
        if (v[2] == 0 || !(n < (double)INF_DIM_MAX))
            return inf_fail(in, "start, end and step give no finite range");
        count = n > 0 ? (int64_t)n : 0;
    }
    in->out[0] = ir_tensor((ir_dtype)inf_type(in, A_start).dtype, 1, &count);
    return true;
}

bool rule_fill(infer *in) {
    inf_list shape = inf_ints(in, A_shape);
    if (shape.len == IR_DIM_UNKNOWN)
        return inf_bad(in, A_shape, "its length, the rank of the result, must be known");
    ir_type r = ir_scalar(inf_has(in, A_value) ? (ir_dtype)inf_type(in, A_value).dtype : DT_FP32);
    for (int64_t i = 0; i < shape.len; i++) {
        int64_t d = shape.v ? shape.v[i] : IR_DIM_UNKNOWN;
        if (shape.v && d < 0) return inf_fail(in, "operand shape holds %lld", (long long)d);
        if (!inf_push(in, &r, d)) return false;
    }
    in->out[0] = r;
    return true;
}

bool rule_fill_like(infer *in) {
    in->out[0] = inf_type(in, A_ref_tensor);
    in->out[0].dtype = (uint8_t)(inf_has(in, A_value) ? inf_type(in, A_value).dtype : DT_FP32);
    return true;
}

bool rule_one_hot(infer *in) {
    ir_type x = inf_type(in, A_indices), r = ir_scalar(DT_INT32);
    if (inf_has(in, A_on_value))
        r.dtype = inf_type(in, A_on_value).dtype;
    else if (inf_has(in, A_off_value))
        r.dtype = inf_type(in, A_off_value).dtype;
    int64_t axis;
    inf_list size = inf_ints(in, A_one_hot_vector_size);
    if (!inf_axis(in, A_axis, -1, x.rank + 1, &axis)) return false;
    if (size.len != 1 || (size.v && size.v[0] < 0))
        return inf_bad(in, A_one_hot_vector_size, "expected a scalar that is not negative");
    for (int i = 0; i <= x.rank; i++) {
        if (i == axis && !inf_push(in, &r, size.v ? size.v[0] : IR_DIM_UNKNOWN)) return false;
        if (i < x.rank && !inf_push(in, &r, x.dim[i])) return false;
    }
    in->out[0] = r;
    return true;
}

bool rule_shape(infer *in) {
    int64_t rank = inf_type(in, A_x).rank;
    in->out[0] = ir_tensor(DT_INT32, 1, &rank);
    return true;
}

/* How many elements differ from zero is never known here: the first size stays unknown. */
bool rule_non_zero(infer *in) {
    in->out[0] = ir_tensor(DT_INT32, 2, (const int64_t[]){IR_DIM_UNKNOWN, inf_type(in, A_x).rank});
    return true;
}
