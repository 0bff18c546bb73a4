/* Convolutions: x [N,Cin,*spatial], spatial rank 1..3. */
#include "ir/infer_rules.h"
#include <string.h>

typedef struct {
    ir_type x, w;
    int rank; /* spatial */
    int64_t stride[3], dilation[3], pad[6], groups;
    const char *pad_type;
} conv_form;

static bool spatial_list(infer *in, ir_operand name, size_t n, int64_t fallback, int64_t least, int64_t *v) {
    inf_list l;
    if (!inf_known_ints(in, name, &l)) return false;
    if (l.present && l.n != n) return inf_bad(in, name, "expected %zu entries", n);
    for (size_t i = 0; i < n; i++) {
        v[i] = l.present ? l.v[i] : fallback;
        if (v[i] < least || v[i] > INT32_MAX) return inf_bad(in, name, "it holds %lld", (long long)v[i]);
    }
    return true;
}

static bool read_form(infer *in, conv_form *c) {
    c->x = inf_type(in, A_x), c->w = inf_type(in, A_weight);
    c->rank = c->x.rank - 2;
    if (c->rank < 1 || c->rank > 3) return inf_bad(in, A_x, "expected rank 3 to 5");
    if (c->w.rank != c->x.rank) return inf_bad(in, A_weight, "expected the rank of x, %d", c->x.rank);
    size_t n = (size_t)c->rank;
    if (!spatial_list(in, A_strides, n, 1, 1, c->stride) ||
        !spatial_list(in, A_dilations, n, 1, 1, c->dilation) ||
        !spatial_list(in, A_pad, 2 * n, 0, 0, c->pad) || !inf_int(in, A_groups, 1, &c->groups))
        return false;
    if (c->groups < 1) return inf_fail(in, "operand groups is %lld", (long long)c->groups);
    c->pad_type = ir_env_text(in->op, A_pad_type, "valid");
    static const char *const types[] = {"valid", "custom", "same", "same_lower", NULL};
    if (!inf_text_among(in, A_pad_type, c->pad_type, types)) return false;
    bool custom = !strcmp(c->pad_type, "custom");
    if (custom && !inf_has(in, A_pad)) return inf_fail(in, "pad_type custom needs operand pad");
    if (!custom) memset(c->pad, 0, sizeof c->pad); /* pad counts only for custom */
    return true;
}

static bool check_bias(infer *in, int64_t channels) {
    ir_type b = inf_type(in, A_bias);
    int64_t unused;
    if (!inf_has(in, A_bias) || (b.rank == 1 && inf_unify(b.dim[0], channels, &unused))) return true;
    return inf_bad(in, A_bias, "expected %lld entries, one an output channel", (long long)channels);
}

bool rule_conv(infer *in) {
    conv_form c;
    if (!read_form(in, &c)) return false;
    int64_t channels = c.x.dim[1], out = c.w.dim[0], per_group;
    if (!inf_mul(in, c.w.dim[1], c.groups, &per_group)) return false;
    if (!inf_unify(channels, per_group, &channels))
        return inf_bad(in, A_weight, "it must have x's %lld channels / %lld groups", (long long)channels,
                       (long long)c.groups);
    if (out != IR_DIM_UNKNOWN && out % c.groups)
        return inf_bad(in, A_weight, "output channels do not divide in %lld groups", (long long)c.groups);
    if (!check_bias(in, out)) return false;
    in->out[0] = ir_tensor((ir_dtype)c.x.dtype, 2, (const int64_t[]){c.x.dim[0], out});
    bool same = !strncmp(c.pad_type, "same", 4);
    for (int i = 0; i < c.rank; i++) {
        int64_t x = c.x.dim[2 + i], k = c.w.dim[2 + i], d = IR_DIM_UNKNOWN;
        if (x != IR_DIM_UNKNOWN && same) {
            d = (x + c.stride[i] - 1) / c.stride[i];
        } else if (x != IR_DIM_UNKNOWN && k != IR_DIM_UNKNOWN) {
            int64_t reach;
            if (!inf_mul(in, k - 1, c.dilation[i], &reach)) return false;
            int64_t room = x + c.pad[2 * i] + c.pad[2 * i + 1] - 1;
            if (k < 1 || reach > room)
                return inf_bad(in, A_weight, "its reach of %lld passes x's padded size %lld",
                               (long long)reach + 1, (long long)room + 1);
            d = (room - reach) / c.stride[i] + 1;
        }
        if (!inf_push(in, in->out, d)) return false;
    }
    return true;
}

/* weight [Cin,Cout/groups,*k]; every size grows by the stride. */
bool rule_conv_transpose(infer *in) {
    conv_form c;
    int64_t out, unused;
    if (!read_form(in, &c) || !inf_mul(in, c.w.dim[1], c.groups, &out)) return false;
    if (!inf_unify(c.x.dim[1], c.w.dim[0], &unused))
        return inf_bad(in, A_weight, "its first size must be x's channels");
    if (!check_bias(in, out)) return false;
    ir_type r = ir_tensor((ir_dtype)c.x.dtype, 2, (const int64_t[]){c.x.dim[0], out});
    inf_list given;
    if (!inf_known_ints(in, A_output_shape, &given)) return false;
    if (given.present && given.n != (size_t)c.rank + 2)
        return inf_bad(in, A_output_shape, "expected %d sizes", c.rank + 2);
    for (int i = 0; i < c.rank; i++) {
        int64_t x = c.x.dim[2 + i], k = c.w.dim[2 + i], d = IR_DIM_UNKNOWN, reach;
        if (!inf_mul(in, x, c.stride[i], &d) ||
            !inf_mul(in, k == IR_DIM_UNKNOWN ? k : k - 1, c.dilation[i], &reach))
            return false;
        if (strncmp(c.pad_type, "same", 4) && d != IR_DIM_UNKNOWN)
            d = k == IR_DIM_UNKNOWN ? k : d - c.stride[i] + reach + 1 - c.pad[2 * i] - c.pad[2 * i + 1];
        if (given.present) d = given.v[2 + i];
        if (d < 0 && d != IR_DIM_UNKNOWN)
            return inf_fail(in, "output size %lld at dimension %d", (long long)d, 2 + i);
        if (!inf_push(in, &r, d)) return false;
    }
    if (given.present &&
        (!inf_unify(r.dim[0], given.v[0], &r.dim[0]) || !inf_unify(out, given.v[1], &r.dim[1])))
        return inf_fail(in, "operand output_shape disagrees with batch or channels, %s",
                        ir_type_text(in->a, &r));
    in->out[0] = r;
    return true;
}
