/* Fused ops to the kernels of kernels/ops.h, outside of strict mode. */
#include "plan/lower.h"
#include "plan/steps.h"

/* The stride between all heads, where the groups of heads follow each other like the heads of a group. */
static bool head_stride(const kern_rounded_attention *j, int64_t group, int64_t head, int64_t *stride) {
    *stride = j->heads == 1 ? group : head;
    return j->groups == 1 || j->heads == 1 || group == j->heads * head;
}

/* Shares of a step of attention: enough for many threads, whatever the length of the cache. */
#define SHARES 256

bool lower_fast_attention(lower *l, const kern_rounded_attention *j, int mask, int visible, const place *o,
                          const place *in, uint32_t n) {
    step_fast_attention *s = ARENA_NEW(l->a, step_fast_attention);
    kern_type type = j->half_k ? KERN_F16 : KERN_F32;
    s->job = (kern_attention){.heads = j->groups * j->heads,
                              .groups = j->groups,
                              .tokens = j->tokens,
                              .d = j->depth,
                              .d_v = j->value_depth,
                              .keys = j->keys,
                              .first = j->keys, /* all of them, where no mask hides some */
                              .units = SHARES,
                              .scale = j->scale,
                              .ldm = j->mask_token,
                              .k = {.type = type},
                              .v = {.type = type},
                              .k_step = {j->k_group, j->k_row},
                              .v_step = {j->v_group, j->v_row}};
    s->job.q_step.inner = j->q_token, s->job.y_step.inner = j->o_token;
    s->mask = mask, s->visible = visible;
    if (j->half_k != j->half_v || (visible && j->visible_step != 1) ||
        !head_stride(j, j->q_group, j->q_head, &s->job.q_step.outer) ||
        !head_stride(j, j->o_group, j->o_head, &s->job.y_step.outer))
        return false;
    s->job.k.rest = s->job.v.rest = NULL;
    lower_need_scratch(l, kern_attention_scratch(&s->job));
    const char *name = j->half_k ? "attention fp16" : "attention";
    if (j->tokens >= KERN_MANY) {
        lower_emit(l, run_fast_attention, s, name, SHARES, 1, o, 1, in, n);
        return true;
    }
    ir_type size = IR_TYPE(DT_FP32, kern_partial_size(&s->job));
    place partial[2] = {lower_fresh(l, &size)};
    lower_emit(l, run_fast_attention, s, name, SHARES, 1, partial, 1, in, n)->even =
        true; /* shares are equal */
    step_fast_attention *join = ARENA_NEW(l->a, step_fast_attention);
    *join = *s;
    if (visible) partial[1] = in[visible - 1];
    lower_emit(l, run_fast_join, join, "attention join", s->job.heads * s->job.tokens, 1, o, 1, partial,
               visible ? 2 : 1);
    return true;
}

bool lower_fast_delta(lower *l, const step_delta *d, int64_t heads, const place *out, uint32_t n_out,
                      const place *in) {
    if (d->q_share != d->k_share || d->round) return false;
    step_fast_delta *s = ARENA_NEW(l->a, step_fast_delta);
    s->low = d->low;
    s->job = (kern_delta){.repeat = d->q_share,
                          .dk = d->dk,
                          .dv = d->dv,
                          .tokens = 1,
                          .q_step = {d->dk, 0},
                          .k_step = {d->dk, 0},
                          .v_step = {d->dv, 0},
                          .y_step = {d->dv, 0},
                          .gate_step = {1, 0},
                          .decayed = true,
                          .q_scale = 1,
                          .transposed = d->turned,
                          .state = {.type = d->cells ? KERN_F32 : KERN_F16}};
    lower_need_scratch(l, kern_delta_scratch(&s->job));
    int64_t each = d->q_share;
    plan_step *step =
        lower_updates(lower_emit(l, run_fast_delta, s, "delta rule", heads, each, out, n_out, in, 5));
    const int64_t unit[] = {d->dk * (each == d->k_share), d->dk * (each == d->k_share), d->dv * each};
    for (int i = 0; i < 3; i++) step->arg[n_out + (uint32_t)i].part = unit[i];
    step->arg[0].part = d->dv * each;
    for (uint32_t i = 1; i < n_out; i++) step->arg[i].part = d->dk * d->dv * each;
    step->even = true; /* heads are where their vectors were made */
    return true;
}

/* Channels [first, first + n) of a place of `each` elements a channel. */
static place channels(const place *p, int64_t first, int64_t n, int64_t each) {
    place q = *p;
    q.first += first * each;
    q.type = IR_TYPE((ir_dtype)p->type.dtype, n * each);
    q.stride[0] = 1;
    q.konst = NULL;
    return q;
}

static void emit_conv(lower *l, const step_fast_conv *s, const place *out, const place *in, int64_t first,
                      int64_t n, int64_t chunk) {
    int64_t width = s->job.ld_state;
    place o[2] = {channels(&out[0], first, n, 1), channels(&out[1], first, n, width)};
    place i[2] = {channels(&in[0], first, n, 1), channels(&in[1], first, n, s->job.taps)};
    plan_step *step = lower_updates(lower_emit(l, run_fast_conv, s, "conv step", n, chunk, o, 2, i, 2));
    step->arg[0].part = step->arg[2].part = chunk;
    step->arg[1].part = chunk * width;
    step->even = true;
}

/* The delta rule that comes next: its query, key and value heads are what the channels are. */
static const ir_op *next_delta(const lower *l) {
    for (size_t i = l->index + 1; i < l->f->body.n_op && i < l->index + 64; i++)
        if (l->f->body.op[i]->code == OP_fused_delta) return l->f->body.op[i];
    return NULL;
}

void lower_fast_conv_step(lower *l, const step_conv_step *c, const place *out, const place *in) {
    step_fast_conv *s = ARENA_NEW(l->a, step_fast_conv);
    s->job = (kern_conv){.channels = c->channels,
                         .taps = c->kept + 1,
                         .tokens = 1,
                         .valid = 1,
                         .ldu = c->channels,
                         .ldy = c->channels,
                         .ld_state = c->width,
                         .w_tap = 1,
                         .w_channel = c->kept + 1,
                         .state = {.type = out[1].store ? KERN_F16 : KERN_F32}};
    const ir_op *delta = next_delta(l);
    int64_t part[3] = {0}, heads = 0, sum = 0;
    static const ir_operand names[] = {A_query, A_key, A_value};
    for (int i = 0; delta && i < 3; i++) sum += part[i] = ir_type_count(&ir_in(delta, names[i])->type);
    if (delta) heads = part[0] / ir_in(delta, A_memory)->type.dim[lower_int(l, delta, A_turned, 0) ? 3 : 2];
    if (sum != c->channels || heads < 1 || part[1] % heads || part[2] % heads) {
        emit_conv(l, s, out, in, 0, c->channels, 512);
        return;
    }
    for (int64_t i = 0, first = 0; i < 3; first += part[i++])
        emit_conv(l, s, out, in, first, part[i], part[i] / heads);
}

bool lower_conv_silu(lower *l, const ir_op *op) {
    const ir_value *x = ir_in(op, A_x);
    const place *at = lower_at(l, x);
    size_t first = l->p->n_step;
    if (l->strict || !lower_alone(l, x) || at->space != SPACE_ACT || at->store || at->first) return false;
    while (first && l->p->step[first - 1].fn == run_fast_conv &&
           l->p->step[first - 1].arg[0].buffer == at->buffer)
        first--;
    if (first == l->p->n_step || ((const step_fast_conv *)l->p->step[first].param)->job.silu) return false;
    for (size_t i = first; i < l->p->n_step; i++)
        ((step_fast_conv *)(uintptr_t)l->p->step[i].param)->job.silu = true;
    lower_set(l, op->out[0], *at);
    return true;
}
