#include "check/verify.h"
#include "coreml/files.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

coreml_package *verify_open(verify *v, const char *name) {
    err e = {0};
    coreml_package *p = coreml_open(arena_printf(v->a, "%s/%s", v->dir, name), &e);
    v->r->packages++;
    if (p && coreml_verify(p->model, NULL, NULL, &e)) return p;
    coreml_close(p);
    verify_fail(v, name, "package", "a package that keeps every rule", e.msg);
    return NULL;
}

uint64_t verify_weight_bytes(const coreml_package *p) {
    uint64_t n = 0;
    for (size_t i = 0; i < p->files->n_file; i++) n += p->files->file[i].map.size;
    return n;
}

static bool is_constexpr(const ir_op *op) {
    return ir_info(op->code)->flags & OPF_CONSTEXPR;
}

uint64_t verify_parameters(const coreml_model *m) {
    uint64_t n = 0;
    const ir_function *f = m->program && m->program->n_func ? m->program->func[0] : NULL;
    for (size_t i = 0; f && i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        const ir_value *x = op->n_out ? op->out[0] : NULL;
        if (x && (is_constexpr(op) || (x->konst && x->konst->in_blob)))
            n += (uint64_t)ir_type_count(&x->type);
    }
    return n;
}

/* --- schemes --- */

/* The embedding and the head's pieces. */
static bool is_vocab(const char *name) {
    return !strncmp(name, "lm_head_weight", 14) || !strncmp(name, "embed_tokens_weight", 19);
}

/* How a weight is stored, by the names of quantize/scheme.h; others get names of the same making. group: lut:
 * channels a table. */
static const char *scheme_of(arena *a, const ir_value *w, int64_t *group) {
    const ir_op *op = w->def;
    *group = 0;
    if (!op || !is_constexpr(op)) return dtype_name(w->type.dtype);
    int64_t rows = w->type.dim[0], cols = w->type.dim[1];
    if (op->code == OP_constexpr_lut_to_dense) {
        const ir_type *codes = &ir_in(op, A_indices)->type, *tables = &ir_in(op, A_lut)->type;
        *group = tables->dim[0] > 0 ? rows / tables->dim[0] : 0;
        return arena_printf(a, "lut%u", dtype_bits(codes->dtype));
    }
    if (op->code != OP_constexpr_blockwise_shift_scale) return ir_info(op->code)->name;
    unsigned bits = dtype_bits(ir_in(op, A_data)->type.dtype);
    int64_t blocks = ir_in(op, A_scale)->type.dim[1], block = blocks > 0 ? cols / blocks : 0;
    if (blocks == 1 && bits == 8) return "w8";
    if (block == 32 && bits == 4) return "w4";
    return arena_printf(a, "w%ub%" PRId64, bits, block);
}

/* Small matrices, and those whose rows are no multiple of 32, may stay as they are. */
static bool may_stay(const ir_type *t) {
    return t->dtype != DT_FP16 || t->dim[0] * t->dim[1] < 2048 || t->dim[1] % 32 || t->dim[1] > 1 << 18;
}

static void verify_weight(verify *v, const char *package, const ir_value *w, const stated_scheme *s) {
    int64_t group;
    const char *is = scheme_of(v->a, w, &group);
    const char *want = strcmp(s->vocab, "same") && is_vocab(w->name) ? s->vocab : s->weights;
    bool plain = !w->def || !is_constexpr(w->def);
    v->r->statements++;
    if (plain && may_stay(&w->type)) return;
    if (!strcmp(want, "keep") && (plain || !strcmp(is, "w8b32") || !strcmp(is, "w4"))) return;
    if (strcmp(is, want))
        verify_fail(v, package, arena_printf(v->a, "scheme of %s", w->name), want, is);
    else if (group && group != s->group && (!s->group || !(w->type.dim[0] % s->group)))
        verify_fail(v, package, arena_printf(v->a, "group size of %s", w->name),
                    arena_printf(v->a, "%" PRId64, s->group), arena_printf(v->a, "%" PRId64, group));
}

stated_scheme verify_stated(verify *v, const json *o, const char *weights) {
    const json *vocab = verify_member(v, o, "vocab", JSON_STRING), *group = json_get(o, "group_size");
    stated_scheme s = {.weights = weights, .vocab = vocab ? vocab->s : "same"};
    bool lut = !strncmp(weights, "lut", 3) || !strncmp(s.vocab, "lut", 3);
    if (lut) group = verify_member(v, o, "group_size", JSON_INT);
    if (group && group->kind == JSON_INT) s.group = group->i;
    return s;
}

/* A value of the package's user-defined metadata; NULL: it has none. */
static const char *user(const coreml_model *m, const char *key) {
    for (size_t i = 0; i < m->n_user; i++)
        if (!strcmp(m->user[i].key, key)) return m->user[i].value;
    return NULL;
}

void verify_described(verify *v, const char *name, const coreml_model *m, const json *graph) {
    const json *model = json_get(v->j, "model");
    verify_text(v, name, graph, "preset", user(m, "preset"));
    verify_text(v, name, graph, "precision", user(m, "precision"));
    verify_text(v, name, model, "family", user(m, "family"));
    verify_text(v, name, model, "model_type", user(m, "model_type"));
    if (json_get(v->j, "lm_head_strategy"))
        verify_text(v, name, v->j, "lm_head_strategy", user(m, "lm_head_strategy"));
}

void verify_weights(verify *v, const char *name, const coreml_model *m, const stated_scheme *s) {
    if (s->free || !m->program) return;
    for (size_t i = 0; i < m->program->n_func; i++) {
        const ir_block *b = &m->program->func[i]->body;
        for (size_t k = 0; k < b->n_op; k++) {
            const ir_op *op = b->op[k];
            const ir_value *w = op->code == OP_linear   ? ir_in(op, A_weight)
                                : op->code == OP_gather ? ir_in(op, A_x)
                                                        : NULL;
            bool stored = w && w->type.rank == 2 && dtype_is_float(w->type.dtype) &&
                          ((w->def && is_constexpr(w->def)) || (w->konst && w->konst->in_blob));
            if (stored) verify_weight(v, name, w, s);
        }
    }
}
