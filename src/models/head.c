#include "models/blocks.h"
#include <string.h>

bool head_choose(graph *g) {
    const ckpt_config *c = g->c;
    head_weights *w = &g->head;
    const char *embedding = arena_printf(g->a, "%sembed_tokens.weight", g->prefix);
    const st_tensor *table = graph_tensor(g, "embed_tokens.weight", 2, (int64_t[]){c->vocab, c->hidden});
    const st_tensor *own = checkpoint_find(g->ckpt, "lm_head.weight");
    if (!table) return false;
    if (!own && !c->tie_embeddings)
        return err_set(g->b.e, ERR_FORMAT,
                       "%s: tensor lm_head.weight is missing, and tie_word_embeddings is false",
                       checkpoint_dir(g->ckpt));
    if (own && !ir_type_equal(&own->type, &table->type) &&
        (own->type.rank != 2 || own->type.dim[0] != c->vocab || own->type.dim[1] != c->hidden ||
         !weight_readable(own->type.dtype)))
        return err_set(g->b.e, ERR_FORMAT,
                       "%s: tensor lm_head.weight is %s, expected [%lld,%lld] of F32, F16 or BF16", own->file,
                       ir_type_text(g->a, &own->type), (long long)c->vocab, (long long)c->hidden);
    if (own) map_add(g->used, own->name, strlen(own->name), 0);
    if (c->tie_conflict)
        graph_note(g, NOTE_WARNING, "config.json", 1,
                   "text_config and the top level disagree about tie_word_embeddings: text_config counts");
    w->tied = c->tie_embeddings && (!own || weight_equal(own, table));
    w->tensor = w->tied ? table : own;
    w->rows = pipelined(g) ? c->vocab : MODELS_HEAD_ROWS;
    w->n_part = (c->vocab + w->rows - 1) / w->rows;
    if (w->tied && g->o->untied_head) w->tied = false, w->apart = true;
    if (c->tie_embeddings && !w->tied && !w->apart)
        graph_note(g, NOTE_WARNING, "lm_head.weight", 1,
                   arena_printf(g->a,
                                "differs from %s although tie_word_embeddings is true: used as the head",
                                embedding));
    return true;
}

static int64_t pieces(const graph *g) {
    return g->part.end_piece - g->part.piece;
}

/* The constants of the part's pieces, once. */
static void make_parts(graph *g) {
    const ckpt_config *c = g->c;
    head_weights *w = &g->head;
    if (w->part) return;
    ir_dtype d = graph_weight_dtype(g, w->tensor, FOLD_NONE, g->type.weight);
    w->part = ARENA_ARRAY(g->a, ir_value *, (size_t)pieces(g));
    for (int64_t i = g->part.piece; i < g->part.end_piece; i++) {
        int64_t first = i * w->rows, rows = c->vocab - first < w->rows ? c->vocab - first : w->rows;
        const char *name =
            w->n_part == 1 ? "lm_head_weight" : arena_printf(g->a, "lm_head_weight_%lld", (long long)i);
        ir_type t = IR_TYPE(d, rows, c->hidden);
        const ir_const *k = w->apart ? weight_const(g->a, w->tensor, FOLD_NONE, first, t)
                                     : graph_const(g, w->tensor, FOLD_NONE, first, t);
        w->part[i - g->part.piece] = b_const(&g->b, name, k);
    }
}

static ir_value *gather_rows(graph *g, const char *name, ir_value *table, ir_value *ids) {
    return b_op(&g->b, OP_gather, name, A_x, table, A_indices, ids, A_axis, b_i32(&g->b, 0), A_NONE);
}

/* A tied table lies in the weight file once, in the head's pieces: each row is taken from the piece that has
 * it. */
static ir_value *embed_tied(graph *g, ir_value *ids) {
    const head_weights *w = &g->head;
    ir_builder *b = &g->b;
    ir_value *x = NULL;
    for (int64_t i = 0; i < w->n_part; i++) {
        int32_t first = (int32_t)(i * MODELS_HEAD_ROWS), rows = (int32_t)b_type(b, w->part[i]).dim[0];
        ir_value *local = i ? binary(g, OP_sub, "embed_local_id", ids, b_i32(b, first)) : ids;
        local = binary(g, OP_minimum, "embed_below_end", local, b_i32(b, rows - 1));
        local = binary(g, OP_maximum, "embed_row", local, b_i32(b, 0));
        ir_value *here = gather_rows(g, "embed_part", w->part[i], local);
        if (!x) {
            x = here;
            continue;
        }
        ir_value *mine = binary(g, OP_greater_equal, "embed_is_here", ids, b_i32(b, first));
        mine = b_op(b, OP_expand_dims, "embed_choice", A_x, mine, A_axes, B_INTS(b, -1), A_NONE);
        x = b_op(b, OP_select, "embed_so_far", A_cond, mine, A_a, here, A_b, x, A_NONE);
    }
    return x;
}

ir_value *embed(graph *g, ir_value *ids) {
    const ckpt_config *c = g->c;
    const head_weights *w = &g->head;
    ir_value *x;
    if (w->tied) {
        make_parts(g);
        x = w->n_part == 1 ? gather_rows(g, "embedding", w->part[0], ids) : embed_tied(g, ids);
    } else {
        x = gather_rows(g, "embedding",
                        PARAMETER(g, "embed_tokens.weight", FOLD_NONE, g->type.weight, c->vocab, c->hidden),
                        ids);
    }
    return cast(g, x, g->type.stream);
}

/* fp32 logits of the part's piece i. */
static ir_value *piece(graph *g, int64_t i, ir_value *x, const char *name) {
    ir_value *weight = g->head.part[i];
    ir_dtype d = b_type(&g->b, weight).dtype;
    if (d == DT_FP32) x = cast(g, x, d);
    bool wide = b_type(&g->b, x).dtype == DT_FP32;
    ir_value *y = b_op(&g->b, OP_linear, wide ? name : arena_printf(g->a, "%s_fp16", name), A_x, x, A_weight,
                       weight, A_NONE);
    return wide ? y : cast_named(g, name, y, DT_FP32);
}

static ir_value *join(graph *g, const char *name, ir_value *const *v, int64_t n) {
    return b_opv(&g->b, OP_concat, name, A_values, v, (uint32_t)n, A_axis, b_i32(&g->b, -1), A_interleave,
                 b_bool(&g->b, false), A_NONE);
}

void head_logits(graph *g, ir_value *x) {
    int64_t n = pieces(g);
    make_parts(g);
    if (pipelined(g)) { /* the engine wants fp16, whatever the product was made in */
        bool wide = b_type(&g->b, x).dtype != g->type.linear;
        ir_value *y = b_op(&g->b, OP_linear, wide ? "logits_wide" : "logits", A_x, x, A_weight,
                           g->head.part[0], A_NONE);
        b_output(&g->b, wide ? cast_named(g, "logits", y, g->type.linear) : y);
        return;
    }
    ir_value **y = ARENA_ARRAY(g->a, ir_value *, (size_t)n);
    for (int64_t i = 0; i < n; i++) y[i] = piece(g, i, x, n == 1 ? "logits" : "logits_part");
    b_output(&g->b, n == 1 ? y[0] : join(g, "logits", y, n));
}

static void top_k(graph *g, const char *name, ir_value *x, int64_t k, ir_value **out) {
    b_op_multi(&g->b, OP_topk, name, out, 2, A_x, x, A_k, b_i32(&g->b, (int32_t)k), A_axis, b_i32(&g->b, -1),
               A_ascending, b_bool(&g->b, false), A_NONE);
}

void head_top_k(graph *g, ir_value *x, int64_t k) {
    const head_weights *w = &g->head;
    make_parts(g);
    if (k > g->c->vocab) k = g->c->vocab;
    ir_value **values = ARENA_ARRAY(g->a, ir_value *, (size_t)w->n_part);
    ir_value **ids = ARENA_ARRAY(g->a, ir_value *, (size_t)w->n_part);
    for (int64_t i = 0; i < w->n_part; i++) {
        int64_t rows = b_type(&g->b, w->part[i]).dim[0];
        ir_value *best[2];
        top_k(g, "part_best", piece(g, i, x, "logits_part"), k < rows ? k : rows, best);
        values[i] = best[0];
        ids[i] = binary(g, OP_add, "part_ids", cast(g, best[1], DT_FP32),
                        b_f32(&g->b, (float)(i * MODELS_HEAD_ROWS)));
    }
    ir_value *best[2];
    top_k(g, "best", join(g, "all_best", values, w->n_part), k, best);
    ir_value *id = b_op(&g->b, OP_gather_along_axis, "best_ids", A_x, join(g, "all_ids", ids, w->n_part),
                        A_indices, best[1], A_axis, b_i32(&g->b, -1), A_NONE);
    b_output(&g->b, b_op(&g->b, OP_identity, "topk_values", A_x, best[0], A_NONE));
    b_output(&g->b, cast_named(g, "topk_ids", id, DT_INT32));
}
