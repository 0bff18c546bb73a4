#include "coreai/print.h"
#include "base/num.h"
#include <inttypes.h>
#include <string.h>

static void add_factors(str *out, const char *what, const int64_t *v, uint32_t n) {
    str_adds(out, what);
    for (uint32_t i = 0; i < n; i++) str_printf(out, "%s%" PRId64, i ? "," : " ", v[i]);
}

static void add_layout(str *out, const ai_attr *t) {
    ai_layout l;
    if (!ai_layout_read(t, &l)) {
        str_printf(out, "{layout#%u}", t->code);
        return;
    }
    add_factors(out, "{align", l.align, l.n_align);
    add_factors(out, "; interleave", l.interleave, l.n_interleave);
    str_printf(out, "; memory %" PRIu64 "}", l.memory);
}

static void add_type(str *out, const ai_type *t, int depth) {
    if (t->code == AI_TENSOR) {
        add_type(out, t->inner, depth + 1);
        str_addc(out, '[');
        for (int i = 0; i < t->rank; i++) {
            if (i) str_addc(out, ',');
            if (t->dim[i] == AI_DYNAMIC)
                str_addc(out, '?');
            else
                str_printf(out, "%" PRId64, t->dim[i]);
        }
        str_addc(out, ']');
        if (t->layout) add_layout(out, t->layout);
    } else if (t->code == AI_HANDLE) {
        str_adds(out, "handle<");
        add_type(out, t->inner, depth + 1);
        str_addc(out, '>');
    } else if (t->code == AI_TOKEN) {
        str_adds(out, "token");
    } else if (t->dtype) {
        str_adds(out, dtype_name((ir_dtype)t->dtype));
    } else {
        str_printf(out, "%s#%u", ai_type_name(t->code) ? ai_type_name(t->code) : "type", t->code);
    }
}

const char *ai_type_text(arena *a, const ai_type *t) {
    str s = {0};
    add_type(&s, t, 0);
    const char *text = arena_str(a, str_get(&s));
    str_free(&s);
    return text;
}

typedef struct {
    str *out;
    uint32_t base; /* first value of the graph */
    size_t values;
    int depth;
} printer;

static void add_float(str *out, ir_dtype d, const uint8_t *p) {
    double v = d == DT_FP16   ? (double)num_f16_f32(num_get16(p))
               : d == DT_BF16 ? (double)num_bf16_f32(num_get16(p))
               : d == DT_FP32 ? (double)num_bits_f32(num_get32(p))
               : d == DT_E4M3 ? (double)num_e4m3_f32(*p)
                              : (double)num_e5m2_f32(*p);
    str_json_double(out, v);
}

/* Bytes that an element takes where they aren't packed; 0: not shown. */
static size_t element_bytes(ir_dtype d) {
    unsigned bits = dtype_bits(d);
    return d == DT_FP64 ? 0 : bits ? (bits + 7) / 8 : 0;
}

static void add_elements(printer *p, const ai_attr *t, ir_dtype d) {
    size_t each = element_bytes(d), n = each ? t->bytes / each : 0;
    for (size_t i = 0; i < n && i < p->values; i++) {
        const uint8_t *at = t->data + i * each;
        if (i) str_adds(p->out, ", ");
        if (dtype_is_float(d)) {
            add_float(p->out, d, at);
            continue;
        }
        uint64_t v = 0;
        for (size_t k = each; k--;) v = v << 8 | at[k];
        unsigned shift = (unsigned)(64 - 8 * each);
        if (dtype_class(d) == DTC_INT)
            str_printf(p->out, "%" PRId64, (int64_t)(v << shift) >> shift);
        else
            str_printf(p->out, "%" PRIu64, v);
    }
    if (n > p->values) str_adds(p->out, ", ...");
}

static void add_attr(printer *p, const ai_attr *t, ir_dtype d, int depth);

static void add_list(printer *p, const ai_attr *t, char open, char close, int depth) {
    str_addc(p->out, open);
    for (uint32_t i = 0; i < t->n; i++) {
        if (i) str_adds(p->out, ", ");
        add_attr(p, t->item[i], DT_NONE, depth + 1);
    }
    str_addc(p->out, close);
}

#define MAX_LIST 8 /* nested lists may refer to each other */

/* d: of a constant's elements. */
static void add_attr(printer *p, const ai_attr *t, ir_dtype d, int depth) {
    if (depth > MAX_LIST) {
        str_adds(p->out, "...");
        return;
    }
    switch (t->code) {
    case AI_STRING: str_json_string(p->out, t->text, strlen(t->text)); break;
    case AI_INTEGER: str_printf(p->out, "%" PRId64, t->number); break;
    case AI_FLOAT: {
        uint64_t bits = (uint64_t)t->number;
        double v = 0;
        if (t->width == 64)
            memcpy(&v, &bits, 8);
        else
            v = t->width == 32 ? (double)num_bits_f32((uint32_t)bits) : (double)num_f16_f32((uint16_t)bits);
        str_json_double(p->out, v);
        break;
    }
    case AI_TYPE: add_type(p->out, t->type, 0); break;
    case AI_ARRAY: add_list(p, t, '[', ']', depth); break;
    case AI_DICTIONARY: add_list(p, t, '{', '}', depth); break;
    case AI_NAMED:
        str_adds(p->out, t->text);
        if (t->n == 1) {
            str_addc(p->out, '=');
            add_attr(p, t->item[0], DT_NONE, depth + 1);
        } else {
            add_list(p, t, '(', ')', depth);
        }
        break;
    case AI_PARAM: add_attr(p, t->item[0], DT_NONE, depth + 1); break;
    case AI_SYMBOL:
        for (uint32_t i = 0; i < t->n; i++) str_printf(p->out, "@%s", t->path[i]);
        break;
    case AI_DENSE:
        str_adds(p->out, t->splat ? "splat<" : "dense<");
        add_elements(p, t, d);
        str_addc(p->out, '>');
        break;
    case AI_RESOURCE: str_printf(p->out, "%s, %zu bytes", t->resource, t->bytes); break;
    case AI_UNIT: str_adds(p->out, "unit"); break;
    default:
        str_printf(p->out, "%s#%u", ai_attr_name(t->code) ? ai_attr_name(t->code) : "attribute", t->code);
    }
}

static void indent(printer *p) {
    for (int i = 0; i < p->depth; i++) str_adds(p->out, "  ");
}

static void add_name(printer *p, const ai_value *v) {
    str_printf(p->out, "%%%u", v->id - p->base);
}

static void add_properties(printer *p, const ai_op *op) {
    ir_dtype d =
        op->n_out == 1 && op->out[0]->type->inner ? (ir_dtype)op->out[0]->type->inner->dtype : DT_NONE;
    const char *sep = " ";
    if (!strcmp(op->name, "dataflow.invoke_v1") && op->prop) {
        str_addc(p->out, ' ');
        add_attr(p, op->prop[AI_INVOKE_CALLEE], d, 0);
        return;
    }
    for (uint32_t i = 0; i < op->n_prop; i++, sep = ", ") {
        str_adds(p->out, sep);
        if (op->prop && op->prop[i])
            add_attr(p, op->prop[i], d, 0);
        else
            str_printf(p->out, "property %" PRIu64, op->raw_prop[i]);
    }
}

static void add_region(printer *p, const ai_region *r);

static void add_op(printer *p, const ai_op *op) {
    indent(p);
    for (uint32_t i = 0; i < op->n_out; i++) {
        if (i) str_adds(p->out, ", ");
        add_name(p, op->out[i]);
    }
    str_printf(p->out, "%s%s", op->n_out ? " = " : "", op->name);
    add_properties(p, op);
    for (uint32_t i = 0; i < op->n_in; i++) {
        str_adds(p->out, i ? ", " : op->n_prop ? ", " : " ");
        add_name(p, op->in[i]);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        str_adds(p->out, i ? ", " : " : ");
        add_type(p->out, op->out[i]->type, 0);
    }
    for (uint32_t i = 0; i < op->n_region; i++) add_region(p, &op->region[i]);
    str_addc(p->out, '\n');
}

static void add_region(printer *p, const ai_region *r) {
    str_adds(p->out, " {");
    for (uint32_t i = 0; i < r->n_arg; i++) {
        str_adds(p->out, i ? ", " : " (");
        add_name(p, r->arg[i]);
        str_adds(p->out, i + 1 == r->n_arg ? ")" : "");
    }
    str_addc(p->out, '\n');
    p->depth++;
    for (uint32_t i = 0; i < r->n_op; i++) add_op(p, r->op[i]);
    p->depth--;
    indent(p);
    str_addc(p->out, '}');
}

static void add_graph(printer *p, const ai_graph *g) {
    const ai_type *f = g->op->prop[AI_GRAPH_TYPE]->type;
    p->base = g->body->n_arg ? g->body->arg[0]->id : g->body->op[0]->n_out ? g->body->op[0]->out[0]->id : 0;
    str_printf(p->out, "%sgraph @%s(", g->is_private ? "private " : "", g->name);
    for (uint32_t i = 0; i < g->body->n_arg; i++) {
        const char *name = ai_graph_feature(g, AI_GRAPH_ARGS, i);
        str_adds(p->out, i ? ", " : "");
        add_name(p, g->body->arg[i]);
        str_printf(p->out, "%s%s: ", name ? " " : "", name ? name : "");
        add_type(p->out, g->body->arg[i]->type, 0);
    }
    str_adds(p->out, ") -> (");
    for (uint32_t i = 0; i < f->n_result; i++) {
        const char *name = ai_graph_feature(g, AI_GRAPH_RESULTS, i);
        str_printf(p->out, "%s%s%s", i ? ", " : "", name ? name : "", name ? ": " : "");
        add_type(p->out, f->item[i], 0);
    }
    str_addc(p->out, ')');
    if (g->op->prop[AI_GRAPH_COMPOSITE]) {
        str_adds(p->out, "\n  composite ");
        add_attr(p, g->op->prop[AI_GRAPH_COMPOSITE], DT_NONE, 0);
    }
    str_adds(p->out, " {\n");
    p->depth = 1;
    for (uint32_t i = 0; i < g->body->n_op; i++) add_op(p, g->body->op[i]);
    str_adds(p->out, "}\n");
}

void ai_print(str *out, const ai_tree *t, size_t values) {
    printer p = {.out = out, .values = values};
    str_printf(out, "// asset version %" PRId64 ", bytecode of %s\n", t->version, t->producer);
    for (uint32_t i = 0; i < t->n_graph; i++) {
        str_addc(out, '\n');
        add_graph(&p, &t->graph[i]);
    }
}
