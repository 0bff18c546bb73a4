#include "base/str.h"
#include "models/blocks.h"
#include <inttypes.h>
#include <string.h>

const char *graph_name(graph *g, const char *name) {
    return g->layer < 0 ? name : arena_printf(g->a, "layer_%lld_%s", (long long)g->layer, name);
}

void graph_note(graph *g, models_note_kind kind, const char *tensor, uint64_t count, const char *what) {
    g->note = arena_grow(g->a, g->note, g->n_note, &g->cap_note, g->n_note + 1, sizeof *g->note);
    g->note[g->n_note++] = (models_note){kind, arena_str(g->a, tensor), arena_str(g->a, what), count};
}

ir_value *unary(graph *g, ir_opcode code, const char *name, ir_value *x) {
    return b_op(&g->b, code, graph_name(g, name), A_x, x, A_NONE);
}

ir_value *binary(graph *g, ir_opcode code, const char *name, ir_value *x, ir_value *y) {
    return b_op(&g->b, code, graph_name(g, name), A_x, x, A_y, y, A_NONE);
}

ir_value *number(graph *g, ir_dtype d, float v) {
    return d == DT_FP16 ? b_f16(&g->b, v) : b_f32(&g->b, v);
}

ir_value *cast(graph *g, ir_value *x, ir_dtype d) {
    if (b_type(&g->b, x).dtype == d) return x;
    const char *name = arena_printf(g->a, "%s_%s", x->name ? x->name : "value", dtype_name(d));
    return cast_named(g, name, x, d);
}

ir_value *cast_named(graph *g, const char *name, ir_value *x, ir_dtype d) {
    return b_op(&g->b, OP_cast, name, A_x, x, A_dtype, b_text(&g->b, dtype_name(d)), A_NONE);
}

ir_value *reshape(graph *g, const char *name, ir_value *x, ir_value *shape) {
    return b_op(&g->b, OP_reshape, graph_name(g, name), A_x, x, A_shape, shape, A_NONE);
}

ir_value *transpose(graph *g, const char *name, ir_value *x, ir_value *perm) {
    return b_op(&g->b, OP_transpose, graph_name(g, name), A_x, x, A_perm, perm, A_NONE);
}

ir_value *matmul(graph *g, const char *name, ir_value *x, ir_value *y, bool transpose_x, bool transpose_y) {
    ir_builder *b = &g->b;
    return b_op(b, OP_matmul, graph_name(g, name), A_x, x, A_y, y, A_transpose_x, b_bool(b, transpose_x),
                A_transpose_y, b_bool(b, transpose_y), A_NONE);
}

ir_value *bounds(graph *g, const char *name, ir_value *const *v, uint32_t n) {
    return b_opv(&g->b, OP_concat, name, A_values, v, n, A_axis, b_i32(&g->b, 0), A_interleave,
                 b_bool(&g->b, false), A_NONE);
}

ir_value *iota(graph *g, const char *name, int64_t n) {
    ir_builder *b = &g->b;
    return b_op(b, OP_range_1d, name, A_start, b_i32(b, 0), A_end, b_i32(b, (int32_t)n), A_step, b_i32(b, 1),
                A_NONE);
}

void split_axis(graph *g, const char *name, ir_value *x, int axis, const int32_t *sizes, uint32_t n,
                ir_value **out) {
    b_op_multi(&g->b, OP_split, graph_name(g, name), out, n, A_x, x, A_split_sizes, b_ints(&g->b, sizes, n),
               A_axis, b_i32(&g->b, axis), A_NONE);
}

/* --- constants from the checkpoint --- */

static const char *tensor_name(graph *g, const char *name) {
    if (g->layer < 0) return arena_printf(g->a, "%s%s", g->prefix, name);
    return arena_printf(g->a, "%slayers.%lld.%s", g->prefix, (long long)g->layer, name);
}

const st_tensor *graph_tensor(graph *g, const char *name, int rank, const int64_t *dim) {
    const char *full = tensor_name(g, name);
    const st_tensor *t = checkpoint_find(g->ckpt, full);
    ir_type want = ir_tensor(t ? t->type.dtype : DT_FP32, rank, dim);
    if (!t) {
        const char *shape = ir_type_text(g->a, &want);
        err_set(g->b.e, ERR_FORMAT, "%s: tensor %s is missing (expected shape %s)", checkpoint_dir(g->ckpt),
                full, strchr(shape, '['));
        return NULL;
    }
    if (!weight_readable(t->type.dtype)) {
        err_set(g->b.e, ERR_UNSUPPORTED, "%s: tensor %s is of type %s, expected F32, F16 or BF16", t->file,
                full, dtype_name(t->type.dtype));
        return NULL;
    }
    if (!ir_type_equal(&want, &t->type)) {
        const char *expected = ir_type_text(g->a, &want), *found = ir_type_text(g->a, &t->type);
        err_set(g->b.e, ERR_FORMAT, "%s: tensor %s has shape %s, expected %s", t->file, full,
                strchr(found, '['), strchr(expected, '['));
        return NULL;
    }
    map_add(g->used, t->name, strlen(t->name), 0);
    return t;
}

ir_dtype graph_weight_dtype(graph *g, const st_tensor *t, weight_fold fold, ir_dtype d) {
    if (d != DT_FP16 || (t->type.dtype == DT_FP16 && fold == FOLD_NONE)) return d;
    uint32_t known = map_get(g->scanned, t->name, strlen(t->name)); /* a tied head is the embedding again */
    if (known != MAP_NONE) return known ? DT_FP32 : d;
    if (g->o->progress && !g->o->progress(g->o->ctx, t->name)) {
        err_set(g->b.e, ERR_CANCELLED, "cancelled");
        return d;
    }
    weight_range r = weight_scan(t, fold);
    map_add(g->scanned, t->name, strlen(t->name), r.overflow > 0);
    if (r.overflow)
        graph_note(g, NOTE_OVERFLOW, t->name, r.overflow, "");
    else if (r.vanish)
        graph_note(g, NOTE_VANISH, t->name, r.vanish, "");
    if (r.not_finite)
        graph_note(g, NOTE_WARNING, t->name, r.not_finite,
                   arena_printf(g->a, "%" PRIu64 " values are infinite or not a number", r.not_finite));
    return r.overflow ? DT_FP32 : d;
}

const ir_const *graph_const(graph *g, const st_tensor *t, weight_fold fold, int64_t row, ir_type shape) {
    const char *key =
        arena_printf(g->a, "%p %d %" PRId64 " %d", (const void *)t, (int)fold, row, (int)shape.dtype);
    uint32_t at = map_get(g->weights, key, strlen(key));
    if (at != MAP_NONE) return g->weight[at];
    size_t n = map_count(g->weights);
    g->weight = arena_grow(g->a, g->weight, n, &g->cap_weight, n + 1, sizeof *g->weight);
    map_add(g->weights, key, strlen(key), (uint32_t)n);
    return g->weight[n] = weight_const(g->a, t, fold, row, shape);
}

/* "layers.0.mlp.up_proj.weight" -> "layers_0_mlp_up_proj_weight": names are identifiers. */
static const char *identifier(graph *g, const char *name) {
    char *s = arena_str(g->a, graph_name(g, name));
    for (char *p = s; *p; p++)
        if (*p == '.') *p = '_';
    return s;
}

ir_value *parameter(graph *g, const char *name, weight_fold fold, ir_dtype d, int rank, const int64_t *dim) {
    const st_tensor *t = graph_tensor(g, name, rank, dim);
    if (!t) return number(g, d, 0);
    d = graph_weight_dtype(g, t, fold, d);
    return b_const(&g->b, identifier(g, name), graph_const(g, t, fold, 0, ir_tensor(d, rank, dim)));
}

ir_value *linear(graph *g, const char *module, ir_value *x, int64_t in, int64_t out, bool bias) {
    const char *weight_name = arena_printf(g->a, "%s.weight", module),
               *bias_name = arena_printf(g->a, "%s.bias", module);
    const st_tensor *w = graph_tensor(g, weight_name, 2, (int64_t[]){out, in});
    const st_tensor *c = bias ? graph_tensor(g, bias_name, 1, &out) : NULL;
    if (!w || (bias && !c)) return x;
    ir_dtype d = graph_weight_dtype(g, w, FOLD_NONE, g->type.weight); /* weight and bias are of one dtype */
    if (c && graph_weight_dtype(g, c, FOLD_NONE, g->type.weight) != d) d = DT_FP32;
    const ir_const *wc = graph_const(g, w, FOLD_NONE, 0, IR_TYPE(d, out, in));
    ir_value *wv = b_const(&g->b, identifier(g, weight_name), wc), *cv = NULL;
    if (c) cv = b_const(&g->b, identifier(g, bias_name), graph_const(g, c, FOLD_NONE, 0, IR_TYPE(d, out)));
    if (d == DT_FP32) x = cast(g, x, d);
    return b_op(&g->b, OP_linear, identifier(g, module), A_x, x, A_weight, wv, A_bias, cv, A_NONE);
}

/* --- states --- */

state_pair state_declare(graph *g, const char *name, ir_type t, bool split) {
    state_pair s = {.name = name, .value = b_state(&g->b, name, t), .type = t};
    if (split) s.rest = b_state(&g->b, arena_printf(g->a, "%s_lo", name), t);
    return s;
}

void state_note(graph *g, const state_pair *s, bool recurrent, int64_t slice) {
    if (g->out->program->n_func > 1 || s->stack) return; /* all functions have the same states */
    g->state = arena_grow(g->a, g->state, g->n_state, &g->cap_state, g->n_state + 1, sizeof *g->state);
    g->state[g->n_state++] =
        (models_state){g->layer, s->name, s->rest ? s->rest->name : NULL, recurrent, slice};
}

static ir_value *read(graph *g, const char *name, ir_value *state) {
    return b_op(&g->b, OP_read_state, arena_printf(g->a, "%s_read", name), A_input, state, A_NONE);
}

static void write(graph *g, ir_value *state, ir_value *v) {
    b_op_multi(&g->b, OP_write_state, NULL, NULL, 0, A_input, state, A_data, v, A_NONE);
}

/* The value as the state has it and, when that is split, what rounding took away. */
static void halves(graph *g, const state_pair *s, ir_value *v, ir_value **hi, ir_value **lo) {
    *hi = cast(g, v, (ir_dtype)s->type.dtype);
    *lo = NULL;
    if (!s->rest) return;
    ir_value *rest =
        binary(g, OP_sub, arena_printf(g->a, "%s_rest", s->name), v, cast(g, *hi, b_type(&g->b, v).dtype));
    *lo = cast(g, rest, DT_FP16);
}

static ir_value *join(graph *g, const state_pair *s, ir_value *hi, ir_value *lo, ir_dtype d) {
    ir_value *v = cast(g, hi, d);
    return lo ? binary(g, OP_add, arena_printf(g->a, "%s_joined", s->name), v, cast(g, lo, d)) : v;
}

static ir_value *read_slice(graph *g, const char *name, ir_value *state, ir_value *begin, ir_value *end) {
    return b_op(&g->b, OP_slice_by_index, arena_printf(g->a, "%s_slice", name), A_x, read(g, name, state),
                A_begin, begin, A_end, end, A_NONE);
}

state_pair state_of_layer(graph *g, state_stack *stack, const char *name, ir_type t, bool split) {
    if (!stack) return state_declare(g, name, t, split);
    return (state_pair){.name = name, .stack = stack, .slice = stack->at++, .type = t};
}

/* The layer's part [1,1,...] of all, without its first axis. */
static ir_value *stack_read(graph *g, const state_pair *s, ir_dtype d) {
    int32_t begin[IR_MAX_RANK] = {s->slice}, end[IR_MAX_RANK] = {s->slice + 1}, shape[IR_MAX_RANK];
    uint32_t rank = s->type.rank;
    for (uint32_t i = 0; i < rank; i++) end[i + 1] = shape[i] = (int32_t)s->type.dim[i];
    ir_value *part =
        read_slice(g, s->name, s->stack->state, b_ints(&g->b, begin, rank + 1), b_ints(&g->b, end, rank + 1));
    return cast(g, reshape(g, arena_printf(g->a, "%s_own", s->name), part, b_ints(&g->b, shape, rank)), d);
}

static void stack_keep(graph *g, const state_pair *s, ir_value *v) {
    v = cast(g, v, (ir_dtype)b_type(&g->b, s->stack->state).dtype);
    s->stack->next[s->slice] = b_op(&g->b, OP_expand_dims, arena_printf(g->a, "%s_next", s->name), A_x, v,
                                    A_axes, B_INTS(&g->b, 0), A_NONE);
}

void stack_write(graph *g, const char *name, state_stack *s) {
    if (!s) return;
    write(g, s->state,
          s->n == 1
              ? s->next[0]
              : b_opv(&g->b, OP_concat, arena_printf(g->a, "%s_all", name), A_values, s->next, (uint32_t)s->n,
                      A_axis, b_i32(&g->b, 0), A_interleave, b_bool(&g->b, false), A_NONE));
}

ir_value *state_read(graph *g, const state_pair *s, ir_dtype d) {
    if (s->stack) return stack_read(g, s, d);
    ir_value *hi = read(g, s->name, s->value);
    return join(g, s, hi, s->rest ? read(g, s->rest->name, s->rest) : NULL, d);
}

ir_value *state_slice(graph *g, const state_pair *s, ir_value *begin, ir_value *end, ir_dtype d) {
    ir_value *hi = read_slice(g, s->name, s->value, begin, end);
    return join(g, s, hi, s->rest ? read_slice(g, s->rest->name, s->rest, begin, end) : NULL, d);
}

void state_write(graph *g, const state_pair *s, ir_value *v) {
    if (s->stack) {
        stack_keep(g, s, v);
        return;
    }
    ir_value *hi, *lo;
    halves(g, s, v, &hi, &lo);
    write(g, s->value, hi);
    if (lo) write(g, s->rest, lo);
}

static void update(graph *g, const char *name, ir_value *state, ir_value *v, ir_value *begin, ir_value *end) {
    ir_value *old = read(g, name, state);
    write(g, state,
          b_op(&g->b, OP_slice_update, arena_printf(g->a, "%s_updated", name), A_x, old, A_update, v, A_begin,
               begin, A_end, end, A_NONE));
}

void state_update(graph *g, const state_pair *s, ir_value *v, ir_value *begin, ir_value *end) {
    ir_value *hi, *lo;
    halves(g, s, v, &hi, &lo);
    update(g, s->name, s->value, hi, begin, end);
    if (lo) update(g, s->rest->name, s->rest, lo, begin, end);
}
