#include "ir/verify_rules.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_NESTING   64
#define MAX_IMMEDIATE (UINT64_C(1) << 31) /* protobuf messages end below 2 GiB */

static const char *const reserved[] = {
    "any",   "bool",  "program", "func",  "tensor", "list",   "dict",   "tuple",
    "true",  "false", "string",  "bf16",  "fp16",   "fp32",   "fp64",   "int8",
    "int16", "int32", "int64",   "uint8", "uint16", "uint32", "uint64", "state",
};

static bool is_identifier(const char *name) {
    for (const char *c = name; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && (c == name || !((*c >= '0' && *c <= '9') || *c == '@'))) return false;
    }
    return *name;
}

static bool is_reserved(const char *name) {
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(reserved[i], name)) return true;
    return false;
}

bool ir_identifier_ok(const char *name, const char **why) {
    bool form = is_identifier(name);
    *why = form ? "is a reserved word" : "is no identifier (letters, digits, _, @; no digit or @ first)";
    return form && !is_reserved(name);
}

const char *ver_text(verifier *v, const char *s) {
    if (!s) return "(unnamed)";
    size_t n = strlen(s);
    char *text = arena_strn(v->scratch, s, n > 80 ? 80 : n);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127) *c = '?';
    return text;
}

const char *ver_name(verifier *v, const ir_value *value) {
    return ver_text(v, value ? value->name : NULL);
}

static const char *op_name(verifier *v, const ir_op *op) {
    bool output = op->n_out && op->out[0] && op->out[0]->name;
    return ver_text(v, output ? op->out[0]->name : op->name);
}

void ver_bad(verifier *v, const char *rule, const char *fmt, ...) {
    if (v->stop) return;
    char what[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    const char *message = what;
    if (v->op)
        message = arena_printf(v->scratch, "function %s, op %s %s: %s", ver_text(v, v->f->name),
                               ir_info(v->op->code)->name, op_name(v, v->op), what);
    else if (v->f)
        message = arena_printf(v->scratch, "function %s: %s", ver_text(v, v->f->name), what);
    v->found++;
    if (v->report)
        v->stop = !v->report(v->ctx, rule, message);
    else
        v->stop = !err_set(v->e, ERR_INVALID, "%s: %s", rule, message);
}

ir_type ver_type(const verifier *v, const ir_value *value) {
    return value->id < v->f->n_values && v->live[value->id] == value ? v->types[value->id] : value->type;
}

static void check_identifier(verifier *v, const char *name) {
    const char *why;
    if (!name)
        ver_bad(v, "identifier", "a value has no name");
    else if (v->f && v->f->spec == IR_SPEC_COREAI)
        return;
    else if (!ir_identifier_ok(name, &why))
        ver_bad(v, is_identifier(name) ? "reserved-word" : "identifier", "name \"%s\" %s", ver_text(v, name),
                why);
}

static void check_name_free(verifier *v, const scope *s, const char *name) {
    size_t n = strlen(name);
    for (const scope *at = s->outer; at; at = at->outer)
        if (map_get(at->names, name, n) != MAP_NONE)
            ver_bad(v, "duplicate-name", "%s hides the same name of an outer block", ver_text(v, name));
    if (!map_add(s->names, name, n, 0))
        ver_bad(v, "duplicate-name", "%s is the name of two values", ver_text(v, name));
}

/* Checks the value's name and brings it into scope. */
static void define(verifier *v, const scope *s, const ir_value *value) {
    if (!value || value->id >= v->f->n_values) {
        ver_bad(v, "structure", "value %s is missing or belongs to another function", ver_name(v, value));
        return;
    }
    if (v->live[value->id]) {
        ver_bad(v, "duplicate-name", "%s is defined twice", ver_name(v, value));
        return;
    }
    check_identifier(v, value->name);
    if (value->name) check_name_free(v, s, value->name);
    v->live[value->id] = value;
    v->types[value->id] = value->type;
}

static void check_rank(verifier *v, const ir_value *value) {
    if (v->f->spec == IR_SPEC_COREAI) return; /* what types can say is allowed */
    if (value && value->type.kind != IR_OPAQUE && value->type.rank > 5)
        ver_bad(v, "rank", "%s has rank %d, Core ML takes 5 at most", ver_name(v, value), value->type.rank);
}

static void check_block(verifier *v, const ir_block *b, const scope *outer, int depth);

static void check_op(verifier *v, const ir_op *op, const scope *s, int depth) {
    v->op = op;
    for (uint32_t i = 0; i < op->n_block; i++) {
        if (depth >= MAX_NESTING || !op->block[i]) {
            ver_bad(v, "structure",
                    depth >= MAX_NESTING ? "blocks are nested too deeply" : "a block is missing");
            return;
        }
    }
    for (uint32_t i = 0; i < op->n_block; i++) {
        check_block(v, op->block[i], s, depth + 1);
        v->op = op;
    }
    bool usable = ver_operands(v, op);
    for (uint32_t i = 0; i < op->n_out; i++) define(v, s, op->out[i]);
    if (usable) ver_types(v, op);
    v->op = NULL;
    arena_reset(v->scratch);
}

/* Takes what the block defined out of scope again. */
static void leave_block(verifier *v, const ir_block *b) {
    for (size_t i = 0; i < b->n_op; i++)
        for (uint32_t k = 0; k < b->op[i]->n_out; k++)
            if (b->op[i]->out[k] && b->op[i]->out[k]->id < v->f->n_values)
                v->live[b->op[i]->out[k]->id] = NULL;
    for (size_t i = 0; i < b->n_in; i++)
        if (b->in[i] && b->in[i]->id < v->f->n_values) v->live[b->in[i]->id] = NULL;
}

static void check_block_outputs(verifier *v, const ir_block *b) {
    for (size_t i = 0; i < b->n_out; i++) {
        const ir_value *out = b->out[i];
        if (!out || out->id >= v->f->n_values || v->live[out->id] != out)
            ver_bad(v, "undefined", "output %s of a block is not defined in it", ver_name(v, out));
        else if (out->type.kind == IR_STATE)
            ver_bad(v, "state-use", "state %s is an output; only read_state and write_state take states",
                    ver_name(v, out));
        if (out && out->id < v->f->n_values) v->used[out->id] = true;
    }
}

static void check_block(verifier *v, const ir_block *b, const scope *outer, int depth) {
    scope s = {outer, map_new(v->a, b->n_op)};
    for (size_t i = 0; i < b->n_in && !v->stop; i++) {
        define(v, &s, b->in[i]);
        check_rank(v, b->in[i]);
    }
    for (size_t i = 0; i < b->n_op && !v->stop; i++) check_op(v, b->op[i], &s, depth);
    check_block_outputs(v, b);
    if (depth) leave_block(v, b);
}

/* What a session can hold. */
static bool state_dtype(ir_dtype d) {
    return d == DT_FP16 || d == DT_FP32 || d == DT_INT32;
}

static void check_state(verifier *v, const ir_value *state) {
    const ir_type *t = &state->type;
    const char *name = ver_name(v, state);
    if (v->f->spec < 9) ver_bad(v, "state-version", "state %s: states exist from CoreML8 on", name);
    bool any = v->f->spec == IR_SPEC_COREAI && state_dtype((ir_dtype)t->dtype);
    if (!any && t->dtype != DT_FP16 && !(t->dtype == DT_INT8 && v->f->spec >= 10))
        ver_bad(v, "state-dtype", "state %s is %s, expected fp16", name, dtype_name((ir_dtype)t->dtype));
    if (!ir_type_known(t)) ver_bad(v, "state-shape", "state %s has a size that is not constant", name);
    if (!t->rank) ver_bad(v, "state-shape", "state %s is a scalar", name);
}

static void check_inputs(verifier *v, const scope *s) {
    for (size_t i = 0; i < v->f->n_in && !v->stop; i++) {
        const ir_value *in = v->f->in[i];
        define(v, s, in);
        if (!in) continue;
        check_rank(v, in);
        if (in->type.kind == IR_STATE)
            check_state(v, in);
        else if (in->type.kind == IR_OPAQUE)
            ver_bad(v, "input-type", "input %s is no tensor", ver_name(v, in));
    }
}

static void check_outputs(verifier *v) {
    const ir_block *b = &v->f->body;
    map *seen = map_new(v->a, b->n_out);
    for (size_t i = 0; i < b->n_out && !v->stop; i++) {
        const ir_value *out = b->out[i];
        if (!out || !out->name) continue; /* reported already */
        if (!map_add(seen, out->name, strlen(out->name), 0))
            ver_bad(v, "duplicate-output", "%s is an output twice", out->name);
        if (!out->def)
            ver_bad(v, "output-is-input", "output %s is an input, which needs an identity", out->name);
    }
}

/* A weight that only feeds constexprs, such as a palette, may have more than 5 dimensions. */
static void check_ranks(verifier *v, const ir_block *b, int depth) {
    for (size_t i = 0; i < b->n_op && !v->stop; i++) {
        const ir_op *op = b->op[i];
        bool weight = ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR);
        for (uint32_t k = 0; k < op->n_block && depth < MAX_NESTING; k++)
            if (op->block[k]) check_ranks(v, op->block[k], depth + 1);
        v->op = op;
        for (uint32_t k = 0; k < op->n_out; k++)
            if (op->out[k] && op->out[k]->id < v->f->n_values && (!weight || v->used[op->out[k]->id]))
                check_rank(v, op->out[k]);
        v->op = NULL;
        arena_reset(v->scratch);
    }
}

static void check_function(verifier *v, const ir_function *f) {
    arena_reset(v->a);
    v->f = f;
    v->op = NULL;
    v->types = ARENA_ARRAY(v->a, ir_type, f->n_values + 1);
    v->live = ARENA_ARRAY(v->a, const ir_value *, f->n_values + 1);
    v->used = ARENA_ARRAY(v->a, bool, f->n_values + 1);
    check_identifier(v, f->name);
    if (!ir_opset_name(f->spec)) {
        ver_bad(v, "opset", "there is no opset for specification version %d", f->spec);
        return;
    }
    if (f->spec != v->p->func[0]->spec)
        ver_bad(v, "opset", "its opset is %s, that of function %s is %s", ir_opset_name(f->spec),
                v->p->func[0]->name, ir_opset_name(v->p->func[0]->spec));
    scope inputs = {NULL, map_new(v->a, f->n_in)};
    check_inputs(v, &inputs);
    check_block(v, &f->body, &inputs, 0);
    check_outputs(v);
    check_ranks(v, &f->body, 0);
    for (size_t i = 0; i < f->n_in && !v->stop; i++)
        if (f->in[i] && f->in[i]->type.kind == IR_STATE && f->in[i]->id < f->n_values &&
            !v->used[f->in[i]->id])
            ver_bad(v, "state-unused", "state %s is neither read nor written", ver_name(v, f->in[i]));
    arena_reset(v->scratch);
}

bool ir_verify(const ir_program *p, ir_report_fn *report, void *ctx, err *e) {
    verifier v = {.p = p, .report = report, .ctx = ctx, .e = e, .a = arena_new(), .scratch = arena_new()};
    arena *names = arena_new();
    map *functions = map_new(names, p->n_func);
    if (!p->n_func) ver_bad(&v, "functions", "the program has no function");
    for (size_t i = 0; i < p->n_func && !v.stop; i++) {
        check_function(&v, p->func[i]);
        v.f = NULL;
        if (!map_add(functions, p->func[i]->name, strlen(p->func[i]->name), 0))
            ver_bad(&v, "functions", "two functions are named %s", p->func[i]->name);
    }
    bool model_file = p->n_func && p->func[0]->spec != IR_SPEC_COREAI; /* assets have no other file */
    if (model_file && v.immediate >= MAX_IMMEDIATE)
        ver_bad(&v, "size-limit",
                "immediate constants take %" PRIu64 " bytes, a model file holds less than 2 GiB",
                v.immediate);
    arena_free(names);
    arena_free(v.scratch);
    arena_free(v.a);
    return !v.found;
}
