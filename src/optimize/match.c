#include "optimize/match.h"
#include <assert.h>
#include <string.h>

typedef enum { P_OP, P_PART, P_ANY, P_CONST, P_WILD } kind;

struct pattern {
    kind kind;
    char name[8]; /* P_ANY, P_CONST */
    ir_opcode code;
    uint32_t result;
    const pattern *child[8];
    int n;
};

static const pattern *parse(arena *a, const char **s) {
    pattern *p = ARENA_NEW(a, pattern);
    while (**s == ' ' || **s == '\n') ++*s;
    if (**s == '_') {
        ++*s;
        p->kind = P_WILD;
        return p;
    }
    if (**s == '?' || **s == '%') {
        p->kind = *(*s)++ == '?' ? P_ANY : P_CONST;
        size_t n = strcspn(*s, " )");
        assert(n && n < sizeof p->name);
        memcpy(p->name, *s, n);
        *s += n;
        return p;
    }
    assert(**s == '(');
    ++*s;
    size_t n = strcspn(*s, " #)");
    const char *name = arena_strn(a, *s, n);
    if (!strcmp(name, "part"))
        p->kind = P_PART;
    else
        p->code = ir_opcode_by_name(name);
    assert(p->code || p->kind == P_PART);
    *s += n;
    if (**s == '#') p->result = (uint32_t)((*s)[1] - '0'), *s += 2;
    for (;;) {
        while (**s == ' ' || **s == '\n') ++*s;
        if (**s == ')') break;
        assert(p->n < 8);
        p->child[p->n++] = parse(a, s);
    }
    ++*s;
    return p;
}

const pattern *pattern_parse(arena *a, const char *text) {
    return parse(a, &text);
}

ir_opcode pattern_root(const pattern *p) {
    return p->code;
}

ir_value *match_get(const match *m, const char *name) {
    for (int i = 0; i < m->n_name; i++)
        if (!strcmp(m->name[i], name)) return m->value[i];
    return NULL;
}

static bool bind(match *m, const char *name, ir_value *v) {
    ir_value *old = match_get(m, name);
    if (old) return old == v;
    if (m->n_name == MATCH_NAMES) return false;
    memcpy(m->name[m->n_name], name, sizeof m->name[0]);
    m->value[m->n_name++] = v;
    return true;
}

static bool is_weight(const ir_value *v) {
    return v->konst || (v->def && ir_info(v->def->code)->flags & OPF_CONSTEXPR);
}

static bool match_op(const pattern *p, ir_op *op, match *m);

static bool match_value(const pattern *p, ir_value *v, match *m) {
    if (p->kind == P_WILD) return true;
    if (!v) return false;
    if (p->kind == P_ANY) return bind(m, p->name, v);
    if (p->kind == P_CONST) return is_weight(v) && bind(m, p->name, v);
    ir_op *op = (ir_op *)v->def;
    if (p->kind == P_PART)
        return op && (op->code == OP_split || op->code == OP_slice_by_index) && match_op(p, op, m);
    return op && op->code == p->code && op->n_out > p->result && op->out[p->result] == v &&
           match_op(p, op, m);
}

static ir_value *operand(const ir_op *op, int i) {
    bool variadic = ir_info(op->code)->slot[0].variadic;
    if (variadic) return (uint32_t)i < op->arg[0].n ? op->arg[0].v[i] : NULL;
    return i < ir_info(op->code)->n_slot && op->arg[i].n ? op->arg[i].v[0] : NULL;
}

static bool match_op(const pattern *p, ir_op *op, match *m) {
    if (m->n_op == MATCH_OPS) return false;
    bool known = false;
    for (int i = 0; i < m->n_op; i++) known |= m->op[i] == op;
    if (!known) m->op[m->n_op++] = op;
    if (ir_info(op->code)->slot[0].variadic && op->arg[0].n != (uint32_t)p->n) return false;
    match start = *m;
    bool both = (op->code == OP_add || op->code == OP_mul) && p->n == 2;
    for (int turn = 0; turn < (both ? 2 : 1); turn++) {
        *m = start;
        bool ok = true;
        for (int i = 0; i < p->n && ok; i++) ok = match_value(p->child[i], operand(op, turn ? 1 - i : i), m);
        if (ok) return true;
    }
    return false;
}

bool pattern_match(const pattern *p, ir_op *op, match *m) {
    *m = (match){.n_name = 0};
    return op->code == p->code && match_op(p, op, m);
}
