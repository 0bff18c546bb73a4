/* GGUF tensors under the names of a Hugging Face checkpoint, in its order of rows and columns. */
#include "checkpoint/gguf_set.h"
#include <stdlib.h>
#include <string.h>

/* What has been put in another order. */
typedef enum {
    PLAIN,
    QUERY_ROWS, /* of families that turn neighbours: rows of a head side by side in pairs */
    KEY_ROWS,
    VALUE_ROWS, /* value heads of linear attention: all of them, */
    MIXED_ROWS, /* or those behind queries and keys, */
    VALUE_COLS, /* or as columns, */
    VALUE_EACH  /* or one element each */
} role;

/* Below the layer: "blk.3.attn_q.weight" is "layers.3.self_attn.q_proj.weight". */
static const struct {
    const char *from, *to;
    role role;
} names[] = {
    {"attn_norm.", "input_layernorm.", PLAIN},
    {"ffn_norm.", "post_attention_layernorm.", PLAIN},
    {"post_attention_norm.", "post_attention_layernorm.", PLAIN},
    {"attn_q.", "self_attn.q_proj.", QUERY_ROWS},
    {"attn_k.", "self_attn.k_proj.", KEY_ROWS},
    {"attn_v.", "self_attn.v_proj.", PLAIN},
    {"attn_output.", "self_attn.o_proj.", PLAIN},
    {"attn_q_norm.", "self_attn.q_norm.", PLAIN},
    {"attn_k_norm.", "self_attn.k_norm.", PLAIN},
    {"ffn_gate.", "mlp.gate_proj.", PLAIN},
    {"ffn_up.", "mlp.up_proj.", PLAIN},
    {"ffn_down.", "mlp.down_proj.", PLAIN},
    {"attn_qkv.", "linear_attn.in_proj_qkv.", MIXED_ROWS},
    {"attn_gate.", "linear_attn.in_proj_z.", VALUE_ROWS},
    {"ssm_alpha.", "linear_attn.in_proj_a.", VALUE_EACH},
    {"ssm_beta.", "linear_attn.in_proj_b.", VALUE_EACH},
    {"ssm_conv1d.", "linear_attn.conv1d.", MIXED_ROWS},
    {"ssm_norm.", "linear_attn.norm.", PLAIN},
    {"ssm_out.", "linear_attn.out_proj.", VALUE_COLS},
    {"ssm_dt.bias", "linear_attn.dt_bias", VALUE_EACH},
    {"ssm_a", "linear_attn.A_log", VALUE_EACH},
};

static const char *name_in_layer(arena *a, const char *name, int64_t layer, role *r) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].from);
        if (strncmp(name, names[i].from, n) != 0 || (names[i].from[n - 1] != '.' && name[n])) continue;
        *r = names[i].role;
        return arena_printf(a, "model.layers.%lld.%s%s", (long long)layer, names[i].to, name + n);
    }
    return NULL;
}

/* Tensors that have no place in a checkpoint keep their name: the graph builder tells that they are not used.
 */
static const char *name_of(arena *a, const char *name, const ckpt_config *c, role *r) {
    *r = PLAIN;
    if (!strcmp(name, "token_embd.weight")) return "model.embed_tokens.weight";
    if (!strcmp(name, "output_norm.weight")) return "model.norm.weight";
    if (!strcmp(name, "output.weight")) return "lm_head.weight";
    if (!strcmp(name, "rope_freqs.weight"))
        return "model.rotary_emb.inv_freq"; /* part of the configuration */
    if (strncmp(name, "blk.", 4) != 0) return name;
    char *end;
    long long layer = strtoll(name + 4, &end, 10);
    if (end == name + 4 || *end != '.' || layer < 0) return name;
    if (layer >= c->layers) return arena_printf(a, "mtp.%s", name);
    const char *known = name_in_layer(a, end + 1, layer, r);
    return known ? known : name;
}

/* Heads of linear attention as they are stored; the same where each key head has one value head. */
static tensor_order tiled(const ckpt_config *c, int64_t first, int64_t unit) {
    if (c->linear_v_heads == c->linear_k_heads) return (tensor_order){.kind = ORDER_SAME};
    return (tensor_order){ORDER_TILED, first, unit, c->linear_k_heads, c->linear_v_heads / c->linear_k_heads};
}

/* Sets the orders; n: how many rows (columns) there must be for it. What has another shape is refused later.
 */
static void put_in_order(tensor_view *v, const ckpt_config *c, role r) {
    int64_t values = c->linear_v_heads * c->linear_v_dim, keys = c->linear_k_heads * c->linear_k_dim;
    bool pairs = c->family->gguf_pairs && c->head_dim % 2 == 0;
    tensor_order turned = {ORDER_PAIRS, 0, c->head_dim, 0, 0};
    if (r == QUERY_ROWS && pairs && v->rows == c->heads * c->head_dim) v->row = turned;
    if (r == KEY_ROWS && pairs && v->rows == c->kv_heads * c->head_dim) v->row = turned;
    if (!values) return;
    if (r == VALUE_ROWS && v->rows == values) v->row = tiled(c, 0, c->linear_v_dim);
    if (r == MIXED_ROWS && v->rows == 2 * keys + values) v->row = tiled(c, 2 * keys, c->linear_v_dim);
    if (r == VALUE_COLS && v->cols == values) v->col = tiled(c, 0, c->linear_v_dim);
    if (r == VALUE_EACH && v->rows == c->linear_v_heads) v->row = tiled(c, 0, 1);
}

/* A vector's elements are rows of one column, so that they can be in another order; of blocks there are none.
 */
static tensor_view view_of(const gguf_tensor *t, const ckpt_config *c, role r) {
    int64_t count = ir_type_count(&t->type), cols = t->type.rank > 1 ? t->type.dim[t->type.rank - 1] : 1;
    tensor_view v = {.form = t->form, .data = t->data, .bytes = t->bytes, .rows = count / cols, .cols = cols};
    if (t->type.rank > 1 || t->form->values == 1) put_in_order(&v, c, r);
    v.keeps =
        t->form->keep && t->type.rank == 2 && (v.col.kind == ORDER_SAME || v.col.unit % GGUF_KEPT_BLOCK == 0);
    return v;
}

static st_tensor tensor_of(arena *a, const gguf *g, const gguf_tensor *t, const ckpt_config *c) {
    role r;
    st_tensor s = {.name = name_of(a, t->name, c, &r), .type = t->type, .file = gguf_path(g), .folded = true};
    tensor_view v = view_of(t, c, r);
    bool moved = v.row.kind != ORDER_SAME || v.col.kind != ORDER_SAME;
    if (t->form->plain == DT_NONE) s.type.dtype = DT_FP32;
    if (t->form->plain == DT_NONE || moved)
        s.view = arena_copy(a, &v, sizeof v);
    else
        s.data = t->data;
    if (r == MIXED_ROWS && s.type.rank == 2 && strstr(s.name, "conv1d")) /* [channels, 1, taps] */
        s.type.dim[2] = s.type.dim[1], s.type.dim[1] = 1, s.type.rank = 3;
    return s;
}

const st_tensor *gguf_tensors(arena *a, const gguf_set *s, const ckpt_config *c) {
    st_tensor *all = ARENA_ARRAY(a, st_tensor, s->n_tensor);
    size_t n = 0;
    for (size_t i = 0; i < s->n_part; i++)
        for (size_t k = 0; k < gguf_count(s->part[i]); k++)
            all[n++] = tensor_of(a, s->part[i], gguf_at(s->part[i], k), c);
    return all;
}
