#include "ir/print.h"
#include <inttypes.h>
#include <string.h>

#define FEW 16 /* constants of up to so many elements are shown by value */

static void print_type(str *out, const ir_type *t) {
    arena *a = arena_new();
    str_adds(out, ir_type_text(a, t));
    arena_free(a);
}

/* Names come from files: what is no identifier at all is shown quoted, so that it can't play with the
 * terminal. */
static void print_text(str *out, const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] > ' ' && s[i] != 127 && s[i] != '"') continue;
        str_json_string(out, s, n);
        return;
    }
    str_add(out, s, n);
}

static void print_name(str *out, const ir_value *v) {
    str_addc(out, '%');
    print_text(out, v->name ? v->name : "?");
}

static void print_element(str *out, const ir_const *c, uint64_t i) {
    double v;
    if (c->type.dtype == DT_STRING) {
        const ir_string *s = (const ir_string *)c->data + i;
        str_json_string(out, s->s, s->len);
    } else if (!ir_const_number(c, i, &v)) {
        str_addc(out, '?');
    } else if (c->type.dtype == DT_BOOL) {
        str_adds(out, v != 0 ? "true" : "false");
    } else if (v - v != 0) { /* infinite or NaN: no JSON number */
        str_adds(out, v > 0 ? "inf" : v < 0 ? "-inf" : "nan");
    } else {
        str_json_double(out, v);
    }
}

static bool shown_by_value(const ir_const *c) {
    int64_t n = ir_type_count(&c->type);
    return c->type.kind == IR_TENSOR && c->data && !c->blob_file && n >= 0 && n <= FEW;
}

void ir_print_const(str *out, const ir_const *c) {
    int64_t n = ir_type_count(&c->type);
    bool numbers = c->type.kind == IR_TENSOR && c->type.dtype != DT_STRING;
    if (shown_by_value(c)) {
        if (numbers && !c->type.rank)
            str_adds(out, dtype_name((ir_dtype)c->type.dtype));
        else if (numbers)
            print_type(out, &c->type);
        if (numbers)
            str_addc(out, '(');
        else if (c->type.rank)
            str_addc(out, '[');
        for (int64_t i = 0; i < n; i++) {
            if (i) str_adds(out, ", ");
            print_element(out, c, (uint64_t)i);
        }
        if (numbers)
            str_addc(out, ')');
        else if (c->type.rank)
            str_addc(out, ']');
        return;
    }
    print_type(out, &c->type);
    if (!c->blob_file) return;
    str_addc(out, '@');
    print_text(out, c->blob_file);
    str_printf(out, ":%" PRIu64, c->blob_offset);
}

/* A use of a value. Constants are shown where they are used, large ones with their name. */
static void print_use(str *out, const ir_value *v) {
    bool named = v && v->name && !(v->konst && shown_by_value(v->konst));
    if (!v) str_adds(out, "none");
    if (named) print_name(out, v);
    if (named && v->konst) str_adds(out, ": ");
    if (v && v->konst) ir_print_const(out, v->konst);
}

static void print_args(str *out, const ir_op *op) {
    const ir_op_info *info = ir_info(op->code);
    bool first = true;
    for (int i = 0; i < info->n_slot; i++) {
        const ir_arg *arg = &op->arg[i];
        if (!arg->n) continue;
        str_printf(out, "%s%s=", first ? "" : ", ", ir_operand_name(info->slot[i].name));
        first = false;
        if (info->slot[i].variadic) str_addc(out, '[');
        for (uint32_t k = 0; k < arg->n; k++) {
            if (k) str_adds(out, ", ");
            print_use(out, arg->v[k]);
        }
        if (info->slot[i].variadic) str_addc(out, ']');
    }
}

static void print_indent(str *out, int indent) {
    for (int i = 0; i < indent; i++) str_adds(out, "  ");
}

static void print_typed(str *out, ir_value *const *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (i) str_adds(out, ", ");
        print_name(out, v[i]);
        str_adds(out, ": ");
        print_type(out, &v[i]->type);
    }
}

static void print_block(str *out, const ir_block *b, int indent) {
    print_indent(out, indent);
    str_addc(out, '(');
    print_typed(out, b->in, b->n_in);
    str_adds(out, ") {\n");
    for (size_t i = 0; i < b->n_op; i++)
        if (b->op[i]->code != OP_const) ir_print_op(out, b->op[i], indent + 1);
    print_indent(out, indent + 1);
    str_adds(out, "return ");
    for (size_t i = 0; i < b->n_out; i++) {
        if (i) str_adds(out, ", ");
        print_use(out, b->out[i]);
    }
    str_addc(out, '\n');
    print_indent(out, indent);
    str_adds(out, "}\n");
}

void ir_print_op(str *out, const ir_op *op, int indent) {
    print_indent(out, indent);
    print_typed(out, op->out, op->n_out);
    str_printf(out, "%s%s(", op->n_out ? " = " : "", ir_info(op->code)->name);
    if (op->code == OP_const && op->n_out && op->out[0]->konst) ir_print_const(out, op->out[0]->konst);
    print_args(out, op);
    str_addc(out, ')');
    bool same = op->n_out && op->name && op->out[0]->name && !strcmp(op->name, op->out[0]->name);
    if (op->name && !same) str_adds(out, "  // "), print_text(out, op->name);
    str_addc(out, '\n');
    for (uint32_t i = 0; i < op->n_block; i++) print_block(out, op->block[i], indent + 1);
}

void ir_print_function(str *out, const ir_function *f) {
    const char *opset = ir_opset_name(f->spec);
    str_adds(out, "function ");
    print_text(out, f->name);
    str_printf(out, "  // %s\n", opset ? opset : "unknown opset");
    for (size_t i = 0; i < f->n_in; i++) {
        str_adds(out, "  in ");
        print_typed(out, &f->in[i], 1);
        str_addc(out, '\n');
    }
    print_block(out, &f->body, 1);
}

void ir_print_program(str *out, const ir_program *p) {
    for (size_t i = 0; i < p->n_func; i++) {
        if (i) str_addc(out, '\n');
        ir_print_function(out, p->func[i]);
    }
}
