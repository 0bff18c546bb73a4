#include "coreai/read.h"
#include "base/str.h"
#include "coreai/package.h"
#include "coreml/files.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_OPS (UINT64_C(1) << 20) /* of all calls, read where they stand */

bool ai_fail(ai_read *r, err_code code, const char *fmt, ...) {
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (ai_ok(r)) r->placed = true;
    if (!r->op) return err_set(r->e, code, "graph %.100s: %s", r->graph->name, text);
    return err_set(r->e, code, "graph %.100s, op %.60s (byte %zu): %s", r->graph->name, r->op->name,
                   r->op->at, text);
}

ir_dtype ai_narrow(const ai_type *t) {
    if (!t->inner) return DT_NONE;
    ir_dtype d = (ir_dtype)t->inner->dtype;
    return d == DT_BF16 || d == DT_E4M3 || d == DT_E5M2 ? d : DT_NONE;
}

/* "type 12, complex fp32". */
static const char *type_text(const ai_read *r, uint32_t code) {
    const char *name = ai_type_name(code);
    return arena_printf(r->a, "type %u, %s", code, name ? name : "which is unknown here");
}

bool ai_to_ir(ai_read *r, const ai_type *t, ir_type *to) {
    if (t->code != AI_TENSOR)
        return ai_fail(r, ERR_UNSUPPORTED, "%s where a tensor is expected", type_text(r, t->code));
    if (t->rank > IR_MAX_RANK) return ai_fail(r, ERR_UNSUPPORTED, "a tensor of rank %d", t->rank);
    ir_dtype d = (ir_dtype)t->inner->dtype;
    switch (dtype_class(d)) {
    case DTC_BOOL: break;
    case DTC_FLOAT:
        if (d == DT_FP64) return ai_fail(r, ERR_UNSUPPORTED, "fp64");
        d = ai_narrow(t) ? DT_FP32 : d;
        break;
    case DTC_INT:
    case DTC_UINT: d = DT_INT32; break;
    default: return ai_fail(r, ERR_UNSUPPORTED, "elements of %s", type_text(r, t->inner->code));
    }
    *to = ir_scalar(d);
    to->rank = (int8_t)t->rank;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] > INT32_MAX) return ai_fail(r, ERR_LIMIT, "a size of %" PRId64, t->dim[i]);
        to->dim[i] = t->dim[i] == AI_DYNAMIC ? IR_DIM_UNKNOWN : t->dim[i];
    }
    return true;
}

bool ai_expect(ai_read *r, uint32_t n_in, uint32_t n_out) {
    const ai_op *op = r->op;
    if (op->n_in == n_in && op->n_out == n_out) return true;
    return ai_fail(r, ERR_FORMAT, "%u operands and %u results, expected %u and %u", op->n_in, op->n_out, n_in,
                   n_out);
}

/* ---- values ---- */

static ir_value *known_value(ai_read *r, const ai_value *v, const ai_lowered *l) {
    ir_type t;
    if (!ai_to_ir(r, v->type, &t)) return b_i32(&r->b, 0);
    if (t.rank == 0 && l->n_known == 1) {
        int64_t k = l->known[0];
        return b_i32(&r->b, k > INT32_MAX ? INT32_MAX : k < INT32_MIN ? INT32_MIN : (int32_t)k);
    }
    ir_value *flat = ai_list_of(r, l->known, l->n_known);
    if (t.rank == 1) return flat;
    int64_t n = ir_type_count(&t);
    if (n != l->n_known) {
        ai_fail(r, ERR_FORMAT, "an operand of %u elements, declared as %" PRId64, l->n_known, n);
        return flat;
    }
    return ai_reshaped_by(r, flat, ai_list_of(r, t.dim, (uint32_t)t.rank));
}

static ir_value *constant_value(ai_read *r, const ai_lowered *l) {
    const ir_const *c = ai_constant(r, l->konst, l->type);
    if (!c) return b_i32(&r->b, 0);
    ir_value *v = b_const(&r->b, NULL, c);
    if (c->type.dtype == DT_INT8 || c->type.dtype == DT_UINT8) /* codes that are used as numbers */
        return b_op(&r->b, OP_cast, NULL, A_x, v, A_dtype, b_text(&r->b, "int32"), A_NONE);
    if (dtype_bits((ir_dtype)c->type.dtype) < 8)
        ai_fail(r, ERR_UNSUPPORTED, "%s codes as numbers", dtype_name((ir_dtype)c->type.dtype));
    return v;
}

ir_value *ai_value_of(ai_read *r, const ai_value *v) {
    ai_lowered *l = &r->at[v->id];
    uint32_t n;
    if (l->v) return l->v;
    if (l->turned) {
        ir_value *x = ai_value_of(r, l->turned);
        x = b_op(&r->b, OP_transpose, NULL, A_x, x, A_perm, B_INTS(&r->b, 1, 0), A_NONE);
        return l->widened ? b_op(&r->b, OP_cast, NULL, A_x, x, A_dtype, b_text(&r->b, "fp32"), A_NONE) : x;
    }
    if (l->konst && !l->known)
        return constant_value(r, l); /* a constant op at each use: there is one constant */
    if (ai_known(r, v, &n)) return known_value(r, v, l);
    ai_fail(r, ERR_UNSUPPORTED, "a handle or token where a tensor is expected");
    return b_i32(&r->b, 0);
}

ir_value *ai_in(ai_read *r, uint32_t i) {
    return ai_value_of(r, r->op->in[i]);
}

const int64_t *ai_known_any(ai_read *r, const ai_value *v, uint32_t *n) {
    const ai_lowered *l = &r->at[v->id];
    *n = l->n_known;
    return l->known;
}

const int64_t *ai_known(ai_read *r, const ai_value *v, uint32_t *n) {
    const int64_t *k = ai_known_any(r, v, n);
    for (uint32_t i = 0; k && i < *n; i++)
        if (k[i] == AI_UNKNOWN) return NULL;
    return k;
}

const int64_t *ai_ints(ai_read *r, uint32_t i, uint32_t *n) {
    const int64_t *k = ai_known(r, r->op->in[i], n);
    if (!k) ai_fail(r, ERR_UNSUPPORTED, "operand %u is not known before the program runs", i);
    return k;
}

bool ai_int(ai_read *r, uint32_t i, int64_t *v) {
    uint32_t n;
    const int64_t *k = ai_ints(r, i, &n);
    if (!k) return false;
    if (n != 1 || k[0] > INT32_MAX || k[0] < INT32_MIN)
        return ai_fail(r, ERR_FORMAT, "operand %u is not one number", i);
    *v = k[0];
    return true;
}

ir_value *ai_list_of(ai_read *r, const int64_t *v, uint32_t n) {
    int32_t *list = ARENA_ARRAY(r->scratch, int32_t, n + 1);
    for (uint32_t i = 0; i < n; i++)
        list[i] = v[i] > INT32_MAX ? INT32_MAX : v[i] < INT32_MIN ? INT32_MIN : (int32_t)v[i];
    return b_ints(&r->b, list, n);
}

ir_value *ai_list(ai_read *r, uint32_t i) {
    uint32_t n;
    const int64_t *k = ai_known(r, r->op->in[i], &n);
    return k ? ai_list_of(r, k, n) : ai_in(r, i);
}

/* What was inferred is what the file declares, as far as both are known. */
void ai_set(ai_read *r, const ai_value *v, ir_value *to) {
    ir_type want;
    if (!ai_ok(r) || !ai_to_ir(r, v->type, &want)) return;
    if (!ir_type_compatible(&want, &to->type))
        ai_fail(r, ERR_FORMAT, "its result is declared as %s and is %s", ai_type_text(r->a, v->type),
                ir_type_text(r->a, &to->type));
    for (int d = 0; d < want.rank; d++) /* what is declared is known, too */
        if (to->def && to->type.dim[d] == IR_DIM_UNKNOWN) to->type.dim[d] = want.dim[d];
    r->at[v->id].v = to;
}

bool ai_result(ai_read *r, ir_value *v) {
    const ai_value *out = r->op->out[0];
    ir_dtype narrow = ai_narrow(out->type);
    if (narrow && ai_ok(r) && !v->konst)
        v = b_op(&r->b, OP_round_as, NULL, A_x, v, A_dtype, b_text(&r->b, dtype_name(narrow)), A_NONE);
    ai_set(r, out, v);
    return ai_ok(r);
}

/* ---- ops ---- */

static const struct {
    const char *name;
    ai_op_fn *fn;
    ir_opcode code;
} rows[] = {
#define AI_OP(name, fn, code) {name, ai_op_##fn, code},
#include "coreai/ops.def"
#undef AI_OP
};

static bool is_terminator(const char *name) {
    return !strcmp(name, "dataflow.output_v1") || !strcmp(name, "dataflow.yield_v1") ||
           !strcmp(name, "controlflow.condition_v1");
}

/* An op that nobody here knows, by what it carries with it. */
static bool decomposed(ai_read *r, const ai_op *op) {
    ai_lowered *in = ARENA_ARRAY(r->a, ai_lowered, op->n_in), *out = ARENA_ARRAY(r->a, ai_lowered, op->n_out);
    for (uint32_t i = 0; i < op->n_in; i++) in[i] = r->at[op->in[i]->id];
    if (!ai_region_read(r, op->region, in, op->n_in, out, op->n_out)) return false;
    for (uint32_t i = 0; i < op->n_out; i++) r->at[op->out[i]->id] = out[i];
    return true;
}

static const char *why_not(const char *name) {
    if (!strncmp(name, "metal.", 6)) return "a Metal kernel runs on a GPU of Apple only";
    if (!strncmp(name, "execution.", 10)) return "work for a delegate, which only Apple's runtime has";
    if (!strncmp(name, "ax.", 3)) return "a layout for one processor";
    return "an unknown op";
}

/* The program's builder knows of ops of the program alone: the file's (NULL: its graph) is put in front of
 * what it says. */
static bool place_error(ai_read *r, const ai_op *op) {
    if (!ai_ok(r) && !r->placed && op)
        err_where(r->e, "graph %.100s, op %.60s (byte %zu)", r->graph->name, op->name, op->at);
    else if (!ai_ok(r) && !r->placed)
        err_where(r->e, "graph %.100s", r->graph->name);
    r->placed = true;
    return false;
}

static bool read_op(ai_read *r, const ai_op *op) {
    r->op = op;
    if (++r->ops > MOST_OPS) return ai_fail(r, ERR_LIMIT, "more than %" PRIu64 " ops", MOST_OPS);
    for (uint32_t i = 0; i < op->n_out; i++) r->at[op->out[i]->id] = (ai_lowered){.type = op->out[i]->type};
    ai_propagate(r, op);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, op->name))
            return (rows[i].fn(r, rows[i].code) && ai_ok(r)) || place_error(r, op);
    if (op->n_region == 1 && op->region[0].isolated && op->region[0].n_op) return decomposed(r, op);
    return ai_fail(r, ERR_UNSUPPORTED, "%s", why_not(op->name));
}

bool ai_region_read(ai_read *r, const ai_region *g, const ai_lowered *in, uint32_t n_in, ai_lowered *out,
                    uint32_t n_out) {
    const ai_op *around = r->op;
    if (g->n_arg != n_in || !g->n_op)
        return ai_fail(r, ERR_FORMAT, "a body of %u arguments for %u operands", g->n_arg, n_in);
    if (r->depth >= AI_MAX_DEPTH) return ai_fail(r, ERR_LIMIT, "nested deeper than %d levels", AI_MAX_DEPTH);
    r->depth++;
    for (uint32_t i = 0; i < n_in; i++) r->at[g->arg[i]->id] = in[i];
    for (uint32_t i = 0; i + 1 < g->n_op; i++) {
        if (is_terminator(g->op[i]->name)) return ai_fail(r, ERR_FORMAT, "ops behind a terminator");
        if (!read_op(r, g->op[i])) return false;
    }
    const ai_op *end = g->op[g->n_op - 1];
    r->op = end;
    if (!is_terminator(end->name) || end->n_in != n_out)
        return ai_fail(r, ERR_FORMAT, "a body ends with %u results, expected %u", end->n_in, n_out);
    for (uint32_t i = 0; i < n_out; i++) {
        const ai_value *v = end->in[i];
        out[i] = r->at[v->id];
        out[i].type = v->type;
        if (out[i].turned || (!out[i].v && !out[i].konst && out[i].known)) out[i].v = ai_value_of(r, v);
    }
    r->op = around;
    r->depth--;
    return ai_ok(r);
}

/* ---- functions ---- */

static ir_type state_type(const ai_read *r, ir_type t) {
    for (int d = 0; d < t.rank; d++)
        if (t.dim[d] == IR_DIM_UNKNOWN) t.dim[d] = r->capacity;
    return t;
}

static bool add_arguments(ai_read *r, const ai_graph *g, ai_lowered *in) {
    for (uint32_t i = 0; i < g->body->n_arg; i++) {
        const ai_type *t = g->body->arg[i]->type;
        const char *name = ai_graph_feature(g, AI_GRAPH_ARGS, i);
        ir_type type;
        if (!name) return ai_fail(r, ERR_FORMAT, "argument %u has no name", i);
        if (!ai_to_ir(r, t->code == AI_HANDLE ? t->inner : t, &type))
            return err_where(r->e, "argument %.60s", name);
        if (ai_narrow(t->code == AI_HANDLE ? t->inner : t))
            return ai_fail(r, ERR_UNSUPPORTED, "argument %.60s is %s", name, ai_type_text(r->a, t));
        in[i] = (ai_lowered){.type = t};
        if (t->code == AI_HANDLE)
            in[i].state = b_state(&r->b, name, state_type(r, type));
        else
            in[i].v = b_input(&r->b, name, type);
    }
    return ai_ok(r);
}

static bool add_results(ai_read *r, const ai_graph *g, const ai_lowered *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (out[i].type->code == AI_TOKEN) continue;
        const char *name = ai_graph_feature(g, AI_GRAPH_RESULTS, i);
        if (!name) return ai_fail(r, ERR_FORMAT, "result %u has no name", i);
        ir_value *v = out[i].v;
        if (!v && out[i].konst) v = constant_value(r, &out[i]);
        if (!v) return ai_fail(r, ERR_UNSUPPORTED, "result %.60s is no tensor", name);
        v = b_op(&r->b, OP_identity, name, A_x, v, A_NONE);
        if (ai_ok(r) && strcmp(v->name, name))
            return ai_fail(r, ERR_UNSUPPORTED, "%.60s is the name of a result and of something else", name);
        b_output(&r->b, v);
    }
    return ai_ok(r);
}

/* ---- equal ops ---- */

typedef struct {
    ir_value **as; /* by id: what stands for it; NULL: itself */
    map *seen;     /* what ops do and to which values -> index */
    ir_op **op;
    size_t n, cap;
    str key;
} sharing;

static void replace(sharing *s, ir_value **v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s->as[v[i]->id]) v[i] = s->as[v[i]->id];
}

static void replace_operands(sharing *s, ir_op *op) {
    for (int k = 0; k < ir_info(op->code)->n_slot; k++) replace(s, op->arg[k].v, op->arg[k].n);
    for (uint32_t k = 0; k < op->n_block; k++) {
        for (size_t i = 0; i < op->block[k]->n_op; i++) replace_operands(s, op->block[k]->op[i]);
        replace(s, op->block[k]->out, op->block[k]->n_out);
    }
}

/* What the op does, for ops that do nothing else than make their results. */
static bool describe(sharing *s, const ir_op *op) {
    str_clear(&s->key);
    if (op->n_block || op->n_out == 0 || op->code == OP_identity ||
        ir_info(op->code)->flags & (OPF_STATE | OPF_CONTROL))
        return false;
    str_add(&s->key, &op->code, sizeof op->code);
    if (op->code == OP_const) str_add(&s->key, &op->out[0]->konst, sizeof op->out[0]->konst);
    for (int k = 0; k < ir_info(op->code)->n_slot; k++) {
        str_add(&s->key, &op->arg[k].n, sizeof op->arg[k].n);
        for (uint32_t i = 0; i < op->arg[k].n; i++)
            str_add(&s->key, &op->arg[k].v[i]->id, sizeof op->arg[k].v[i]->id);
    }
    return true;
}

/* Calls of one graph say the same again: positions' angles, bounds of caches. */
static void share(ai_read *r, ir_function *f) {
    ir_block *b = &f->body;
    sharing s = {.as = ARENA_ARRAY(r->scratch, ir_value *, f->n_values),
                 .seen = map_new(r->scratch, b->n_op)};
    for (size_t i = 0; i < b->n_op; i++) {
        ir_op *op = b->op[i];
        replace_operands(&s, op);
        if (!describe(&s, op)) continue;
        uint32_t at = map_get(s.seen, s.key.s, s.key.len);
        if (at != MAP_NONE) {
            for (uint32_t k = 0; k < op->n_out; k++) s.as[op->out[k]->id] = s.op[at]->out[k];
            continue;
        }
        s.op = arena_grow(r->scratch, s.op, s.n, &s.cap, s.n + 1, sizeof(ir_op *));
        map_add(s.seen, arena_copy(r->scratch, s.key.s, s.key.len), s.key.len, (uint32_t)s.n);
        s.op[s.n++] = op;
    }
    replace(&s, b->out, b->n_out);
    str_free(&s.key);
}

/* Ops that nothing needs: what was written down for shapes that turned out to be known. */
static void sweep(ai_read *r, ir_block *b, bool *used) {
    for (size_t i = 0; i < b->n_out; i++) used[b->out[i]->id] = true;
    size_t keep = b->n_op;
    for (size_t i = b->n_op; i-- > 0;) {
        ir_op *op = b->op[i];
        bool needed = op->code == OP_write_state || op->n_block;
        for (uint32_t k = 0; k < op->n_out; k++) needed |= used[op->out[k]->id];
        if (!needed) continue;
        for (uint32_t k = 0; k < op->n_block; k++) sweep(r, op->block[k], used);
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) used[op->arg[s].v[k]->id] = true;
        b->op[--keep] = op;
    }
    if (b->n_op) memmove(b->op, b->op + keep, (b->n_op - keep) * sizeof *b->op);
    b->n_op -= keep;
}

/* The function that was just read, without what is there twice or for nothing. */
static void tidy(ai_read *r) {
    ir_function *f = r->p->func[r->p->n_func - 1];
    share(r, f);
    sweep(r, &f->body, ARENA_ARRAY(r->a, bool, f->n_values));
    arena_reset(r->scratch);
}

/* Whether it is there to be called from outside. Some exporters leave decompositions public. */
static bool is_function(const ai_graph *g) {
    return !g->is_private && !ai_composite_kind(g);
}

static bool read_function(ai_read *r, const ai_graph *g) {
    uint32_t n = g->op->prop[AI_GRAPH_TYPE]->type->n_result;
    ai_lowered *in = ARENA_ARRAY(r->a, ai_lowered, g->body->n_arg), *out = ARENA_ARRAY(r->a, ai_lowered, n);
    r->graph = g;
    r->op = NULL;
    r->active[g - r->t->graph] = true;
    r->b = ir_build(r->p, g->name, IR_SPEC_COREAI, r->e);
    bool ok = add_arguments(r, g, in) && ai_region_read(r, g->body, in, g->body->n_arg, out, n) &&
              add_results(r, g, out, n);
    r->active[g - r->t->graph] = false;
    ir_build_end(&r->b);
    if (ok) tidy(r);
    return ok || place_error(r, NULL);
}

/* ---- composites alone ---- */

/* What the call hands over: constants as they are, all else as inputs. */
static bool add_operands(ai_read *r, const ai_op *call, const ai_graph *g) {
    for (uint32_t i = 0; i < call->n_in; i++) {
        const ai_value *v = call->in[i];
        const char *name = ai_graph_feature(g, AI_GRAPH_ARGS, i);
        ir_type type;
        r->at[v->id] = (ai_lowered){.type = v->type};
        r->op = v->def;
        if (v->def && !strcmp(v->def->name, "primitive.constant_v1")) {
            if (!ai_op_constant(r, OP_const)) return false;
            continue;
        }
        r->op = call;
        if (!ai_to_ir(r, v->type, &type)) return false;
        r->at[v->id].v = b_input(&r->b, name ? name : arena_printf(r->a, "operand_%u", i), type);
    }
    return ai_ok(r);
}

static bool read_composite(ai_read *r, const ai_graph *from, const ai_op *call, const ai_graph *g) {
    r->graph = from;
    r->b = ir_build(r->p, g->name, IR_SPEC_COREAI, r->e);
    bool ok = add_operands(r, call, g);
    r->op = call;
    ok = ok && ai_op_invoke(r, OP_NONE);
    for (uint32_t i = 0; ok && i < call->n_out; i++) {
        ir_value *v = ai_value_of(r, call->out[i]);
        b_output(&r->b, b_op(&r->b, OP_identity, arena_printf(r->a, "result_%u", i), A_x, v, A_NONE));
    }
    ok = ok && ai_ok(r);
    ir_build_end(&r->b);
    if (ok) tidy(r);
    return ok || place_error(r, call);
}

/* Those that a graph calls, each once. */
static bool read_composites(ai_read *r, coreai_composite *list) {
    bool *seen = ARENA_ARRAY(r->a, bool, r->t->n_graph);
    for (uint32_t i = 0; i < r->t->n_graph; i++) {
        const ai_region *body = r->t->graph[i].body;
        for (uint32_t k = 0; k < body->n_op; k++) {
            const ai_op *op = body->op[k];
            const ai_graph *g = strcmp(op->name, "dataflow.invoke_v1") ? NULL : ai_callee(r->t, op);
            if (!g || !ai_composite_kind(g) || seen[g - r->t->graph]) continue;
            seen[g - r->t->graph] = true;
            uint32_t declared = r->declared;
            if (!read_composite(r, &r->t->graph[i], op, g)) return false;
            list[r->p->n_func - 1] =
                (coreai_composite){ai_composite_kind(g), g->name, r->declared > declared};
        }
    }
    return true;
}

/* ---- all functions ---- */

/* composites: their list, when they are wanted alone. */
static coreml_model *read_model(arena *a, const ai_tree *t, const coreai_options *o, int64_t context,
                                coreai_composite *composites, err *e) {
    ai_read r = {.t = t, .a = a, .scratch = arena_new(), .e = e, .p = ir_program_new(a)};
    r.at = ARENA_ARRAY(a, ai_lowered, t->n_value);
    r.active = ARENA_ARRAY(a, bool, t->n_graph);
    r.decompose = o && o->decompose;
    r.capacity = o && o->capacity ? o->capacity : context ? context : COREAI_CAPACITY;
    bool ok = !composites || read_composites(&r, composites);
    for (uint32_t i = 0; ok && !composites && i < t->n_graph; i++)
        ok = !is_function(&t->graph[i]) || read_function(&r, &t->graph[i]);
    arena_free(r.scratch);
    if (ok && composites && !r.p->n_func) return NULL;
    if (ok && !r.p->n_func)
        ok = err_set(e, ERR_FORMAT, "none of its %u graphs is public: there is none to run", t->n_graph);
    return ok ? coreml_model_new(a, r.p, IR_SPEC_COREAI) : NULL;
}

/* ---- packages ---- */

static coreml_package *as_package(ai_asset *x, const coreai_options *o, coreai_composite *composites,
                                  err *e) {
    coreml_package *p = ARENA_NEW(x->a, coreml_package);
    p->a = x->a;
    p->path = x->path;
    p->files = files_new(x->a);
    p->files->model = x->code;
    p->model = read_model(x->a, x->tree, o, x->context, composites, e);
    if (p->model) return p;
    if (*x->path && e->code) err_where(e, "%s", x->path);
    coreml_close(p);
    return NULL;
}

coreml_package *coreai_open(const char *path, const coreai_options *o, err *e) {
    ai_asset *x = ai_asset_open(path, e);
    return x ? as_package(x, o, NULL, e) : NULL;
}

coreml_package *coreai_open_composites(const char *path, bool decompose, const coreai_composite **list,
                                       err *e) {
    ai_asset *x = ai_asset_open(path, e);
    if (!x) return NULL;
    coreai_composite *c = ARENA_ARRAY(x->a, coreai_composite, (size_t)x->tree->n_graph + 1);
    *list = c;
    return as_package(x, &(coreai_options){.decompose = decompose}, c, e);
}

coreml_package *coreai_open_memory(const void *code, size_t n, const coreai_options *o, err *e) {
    arena *a = arena_new();
    ai_asset *x = ARENA_NEW(a, ai_asset);
    *x = (ai_asset){.a = a, .path = ""};
    x->tree = ai_tree_read(a, code, n, e);
    if (x->tree) return as_package(x, o, NULL, e);
    arena_free(a);
    return NULL;
}
