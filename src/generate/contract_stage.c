#include "base/json.h"
#include "generate/contract.h"
#include "generate/pattern.h"
#include "generate/values.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void contract_lack(contract_look *l, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (l->lacks.len) str_adds(&l->lacks, ", ");
    str_adds(&l->lacks, text);
}

/* ---- types ---- */

/* The element types of a meaning, the usual one first. */
static void types_of(meaning is, bool input, ir_dtype t[2]) {
    bool ints = is == MEANS_TOKENS || is == MEANS_POSITION || is == MEANS_POSITIONS || is == MEANS_VALID ||
                is == MEANS_SEEN || is == MEANS_TOP_IDS || is == MEANS_BEST_ID;
    t[0] = ints ? DT_INT32 : input ? DT_FP16 : DT_FP32;
    t[1] = ints ? DT_INT32 : input ? DT_FP32 : DT_FP16;
}

/* "[1,T,h]", with 1 for T where a function for one token is wanted. */
static const char *shape_text(contract_look *l, const describe_feature *f) {
    str s = {0};
    for (int i = 0; i < f->rank; i++) {
        char letter = f->dim[i].letter;
        str_addc(&s, i ? ',' : '[');
        if (!letter || (letter == 'T' && l->one))
            str_printf(&s, "%lld", letter ? 1 : (long long)f->dim[i].size);
        else
            str_addc(&s, letter);
    }
    str_addc(&s, ']');
    const char *text = arena_str(l->a, str_get(&s));
    str_free(&s);
    return text;
}

/* Inclusive bounds of dimension d of an input. An open upper end gives INT32_MAX. */
static void bounds(const coreml_feature *x, int d, int64_t *lower, int64_t *upper) {
    *lower = *upper = x->type.dim[d];
    for (size_t i = 0; i < x->n_shapes; i++) {
        if (x->shapes[i][d] < *lower) *lower = x->shapes[i][d];
        if (x->shapes[i][d] > *upper) *upper = x->shapes[i][d];
    }
    if (x->range) *lower = x->range[d].lower, *upper = x->range[d].upper;
    if (*upper < 0 || *upper > INT32_MAX) *upper = INT32_MAX;
}

/* ---- inputs ---- */

static bool input_type(contract_look *l, const describe_feature *want, const coreml_feature *x) {
    ir_dtype t[2];
    types_of(want->is, true, t);
    if (!x->other && x->type.rank == want->rank && (x->type.dtype == t[0] || x->type.dtype == t[1]))
        return true;
    contract_lack(l, "input %s as %s of rank %d", x->name, dtype_name(t[0]), want->rank);
    return false;
}

/* T: a fixed number must be 1 where one token is wanted. */
static bool take_tokens(contract_look *l, int64_t lower, int64_t upper) {
    if (l->one && lower > 1) {
        if (lower == upper) return false;
        contract_lack(l, "calls with one token (T = 1)");
        return true;
    }
    if (!l->upper)
        l->lower = lower, l->upper = upper;
    else {
        l->lower = lower > l->lower ? lower : l->lower;
        l->upper = upper < l->upper ? upper : l->upper;
        if (l->lower > l->upper) return false;
    }
    return true;
}

static bool take_size(contract_look *l, const describe_size *d, int64_t lower, int64_t upper) {
    switch (d->letter) {
    case 'T': return take_tokens(l, lower, upper);
    case 'K':
        if (upper < l->positions) l->positions = upper;
        if (lower > 1 && lower < upper) contract_lack(l, "calls with one position (K = 1)");
        return lower > 0;
    case 'h':
        if (l->width && l->width != lower) return false;
        l->width = lower;
        return lower > 0 && lower == upper;
    case 0: return lower <= d->size && d->size <= upper;
    default: return lower > 0 && lower == upper;
    }
}

static void input_sizes(contract_look *l, const describe_feature *want, const coreml_feature *x,
                        contract_feature *b) {
    bool ok = true;
    for (int i = 0; i < want->rank; i++) {
        int64_t lower, upper;
        bounds(x, i, &lower, &upper);
        ok &= take_size(l, &want->dim[i], lower, upper);
        if (want->dim[i].letter == 'T') b->t = (int8_t)i;
        if (want->dim[i].letter == 'K') b->k = (int8_t)i;
        if (strchr("hV", want->dim[i].letter) && want->dim[i].letter) b->c = (int8_t)i;
        if (lower != upper) b->type.dim[i] = IR_DIM_UNKNOWN;
        if (want->dim[i].letter == 0) b->type.dim[i] = want->dim[i].size;
    }
    if (!ok) contract_lack(l, "input %s as %s", x->name, shape_text(l, want));
}

/* The output that a carried input comes from: its name has the input's number. */
static bool find_source(contract_look *l, const describe_feature *want, const pattern_match *m,
                        contract_feature *b) {
    for (b->at = 0; b->at < l->f->n_out; b->at++) {
        pattern_match from;
        if (pattern_fits(want->from, l->f->out[b->at].name, &from) && from.i == m->i) return true;
    }
    contract_lack(l, "output %s for input %s", want->from, b->name);
    return false;
}

static bool take_input(contract_look *l, const describe_feature *want, const coreml_feature *x,
                       const pattern_match *m, contract_feature *b) {
    *b = (contract_feature){.is = want->is,
                            .name = x->name,
                            .type = x->type,
                            .t = -1,
                            .k = -1,
                            .c = -1,
                            .value = (float)want->hidden,
                            .pairs = want->pairs};
    if (want->is == MEANS_CARRIED && !find_source(l, want, m, b)) return false;
    if (want->theta && !values_number(l->a, l->dir, want->theta, &b->theta))
        contract_lack(l, "a theta for input %s", x->name);
    return true;
}

/* The index of the described input that this one is; n: none. */
static size_t described(const describe_feature *list, size_t n, const char *name, pattern_match *m) {
    size_t i = 0;
    while (i < n && !pattern_fits(list[i].name, name, m)) i++;
    return i;
}

static void match_inputs(contract_look *l, const describe_package *p, contract_stage *s) {
    const coreml_function *f = l->f;
    contract_feature *b = ARENA_ARRAY(l->a, contract_feature, f->n_in);
    const describe_feature **of = ARENA_ARRAY(l->a, const describe_feature *, f->n_in);
    const coreml_feature **x = ARENA_ARRAY(l->a, const coreml_feature *, f->n_in);
    pattern_match m;
    for (size_t i = 0; i < p->n_in; i++) {
        size_t before = s->n_input, found = 0;
        for (size_t k = 0; k < f->n_in; k++) {
            if (!pattern_fits(p->in[i].name, f->in[k].name, &m)) continue;
            found++;
            if (!input_type(l, &p->in[i], &f->in[k]) ||
                !take_input(l, &p->in[i], &f->in[k], &m, &b[s->n_input]))
                continue;
            x[s->n_input] = &f->in[k];
            of[s->n_input++] = &p->in[i];
        }
        if (!found && !p->in[i].optional) contract_lack(l, "input %s", p->in[i].name);
        s->position |= p->in[i].is == MEANS_POSITION && s->n_input > before;
        s->valid |= p->in[i].is == MEANS_VALID && s->n_input > before;
    }
    for (size_t i = 0; i < s->n_input; i++) input_sizes(l, of[i], x[i], &b[i]);
    if (l->one && s->valid) contract_lack(l, "a meaning for input valid_length");
    for (size_t k = 0; k < f->n_in; k++)
        if (!f->in[k].optional && described(p->in, p->n_in, f->in[k].name, &m) == p->n_in)
            contract_lack(l, "a meaning for input %s", f->in[k].name);
    s->input = b;
}

/* ---- outputs ---- */

/* The type that the program declares: descriptions leave out shapes that are not fixed. */
static ir_type declared(const contract_look *l, size_t at) {
    const char *name = l->f->out[at].name;
    const ir_function *p = l->m->program ? ir_function_find(l->m->program, l->f->name) : NULL;
    for (size_t i = 0; p && i < p->body.n_out; i++)
        if (!strcmp(p->body.out[i]->name, name)) return p->body.out[i]->type;
    return l->f->out[at].type;
}

static bool output_type(contract_look *l, const describe_feature *want, size_t at, contract_feature *b) {
    ir_dtype t[2];
    types_of(want->is, false, t);
    ir_type type = declared(l, at);
    *b = (contract_feature){.is = want->is,
                            .name = l->f->out[at].name,
                            .type = type,
                            .t = -1,
                            .k = -1,
                            .c = -1,
                            .at = at,
                            .local = want->local};
    bool ok = type.rank == want->rank && (type.dtype == t[0] || type.dtype == t[1]), sized = true;
    for (int i = 0; ok && i < want->rank; i++) {
        char letter = want->dim[i].letter;
        int64_t n = type.dim[i];
        if (letter == 'T') b->t = (int8_t)i;
        if (letter == 'h' || letter == 'V') b->c = (int8_t)i, sized &= n > 0;
        if (!letter && n != IR_DIM_UNKNOWN) sized &= n == want->dim[i].size;
    }
    if (ok && sized) return true;
    contract_lack(l, "output %s as %s of rank %d with a fixed %s size", b->name, dtype_name(t[0]), want->rank,
                  b->c < 0 || b->c == want->rank - 1 ? "last" : "channel");
    return false;
}

static int by_number(const void *x, const void *y) {
    long a = *(const long *)x, b = *(const long *)y;
    return (a > b) - (a < b);
}

/* All outputs that a described one stands for, by number. */
static bool match_output(contract_look *l, const describe_feature *want, contract_stage *s,
                         contract_feature *b) {
    struct {
        long i;
        size_t at;
    } *found = arena_array(l->a, l->f->n_out + 1, sizeof *found);
    size_t n = 0;
    pattern_match m;
    for (size_t k = 0; k < l->f->n_out; k++)
        if (pattern_fits(want->name, l->f->out[k].name, &m)) {
            found[n].i = m.i;
            found[n++].at = k;
        }
    qsort(found, n, sizeof *found, by_number);
    for (size_t k = 0; k < n; k++)
        if (output_type(l, want, found[k].at, &b[s->n_output])) s->n_output++;
    return n > 0;
}

static const contract_feature *output_of(const contract_stage *s, meaning is) {
    for (size_t i = 0; i < s->n_output; i++)
        if (s->output[i].is == is) return &s->output[i];
    return NULL;
}

static const char *name_of(const describe_package *p, meaning is) {
    for (size_t i = 0; i < p->n_out; i++)
        if (p->out[i].is == is) return p->out[i].name;
    return NULL;
}

/* "output logits, or topk_values and topk_ids". */
static void lack_output(contract_look *l, const describe_package *p) {
    static const meaning alone[] = {MEANS_LOGITS, MEANS_HIDDEN},
                         pair[][2] = {{MEANS_TOP_VALUES, MEANS_TOP_IDS}, {MEANS_BEST_VALUE, MEANS_BEST_ID}};
    str s = {0};
    for (size_t i = 0; i < 2 && !s.len; i++)
        if (name_of(p, alone[i])) str_adds(&s, name_of(p, alone[i]));
    for (size_t i = 0; i < 2; i++)
        if (name_of(p, pair[i][0]) && name_of(p, pair[i][1]))
            str_printf(&s, "%s%s and %s", s.len ? ", or " : "", name_of(p, pair[i][0]),
                       name_of(p, pair[i][1]));
    contract_lack(l, "output %s", str_get(&s));
    str_free(&s);
}

/* Which of the outputs carry on: hidden states or scores; the others are left out. */
static void choose_outputs(contract_look *l, const describe_package *p, contract_stage *s) {
    static const meaning order[][2] = {{MEANS_LOGITS, MEANS_LOGITS},
                                       {MEANS_TOP_VALUES, MEANS_TOP_IDS},
                                       {MEANS_BEST_VALUE, MEANS_BEST_ID},
                                       {MEANS_HIDDEN, MEANS_HIDDEN}};
    contract_feature *b = ARENA_ARRAY(l->a, contract_feature, s->n_output);
    size_t kind = 0, n = 0;
    while (kind < 4 && !(output_of(s, order[kind][0]) && output_of(s, order[kind][1]))) kind++;
    if (kind == 4) {
        lack_output(l, p);
        return;
    }
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < s->n_output; i++)
            if (s->output[i].is == order[kind][pass] && (!pass || order[kind][0] != order[kind][1]))
                b[n++] = s->output[i];
    s->output = b;
    s->n_output = n;
    s->logits = order[kind][0] != MEANS_HIDDEN;
    s->out = b[0].type;
    s->at = b[0].at;
    if (order[kind][0] != order[kind][1] &&
        (n != 2 || !ir_type_compatible(&(ir_type){.kind = b[1].type.kind,
                                                  .dtype = b[0].type.dtype,
                                                  .rank = b[1].type.rank,
                                                  .dim = {b[1].type.dim[0], b[1].type.dim[1],
                                                          b[1].type.dim[2], b[1].type.dim[3]}},
                                       &b[0].type)))
        contract_lack(l, "equal sizes of %s and %s", b[0].name, b[1].name);
}

static void match_outputs(contract_look *l, const describe_package *p, contract_stage *s) {
    contract_feature *b = ARENA_ARRAY(l->a, contract_feature, l->f->n_out * p->n_out + 1);
    size_t before = l->lacks.len;
    s->output = b;
    if (!l->f->n_out && l->states_only) return;
    for (size_t i = 0; i < p->n_out; i++) match_output(l, &p->out[i], s, b);
    if (l->lacks.len == before) choose_outputs(l, p, s);
}

/* ---- the stage ---- */

bool contract_stage_match(contract_look *l, const describe_package *p, contract_stage *s) {
    *s = (contract_stage){.function = l->f->name, .n_out = l->f->n_out};
    l->lower = l->upper = l->width = 0;
    l->positions = INT32_MAX;
    match_inputs(l, p, s);
    match_outputs(l, p, s);
    if (l->lacks.len) return false;
    s->in = s->n_input ? s->input[0].type : (ir_type){0};
    static const meaning shown[] = {MEANS_CAUSAL_MASK, MEANS_HIDDEN};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < s->n_input; i++)
            if (s->input[i].is == shown[k]) s->in = s->input[i].type;
    return true;
}

static const coreml_feature *input_named(const coreml_function *f, const char *name) {
    for (size_t i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i].name, name)) return &f->in[i];
    return NULL;
}

bool contract_stage_admits(const coreml_function *f, const contract_stage *s, int64_t tokens) {
    for (size_t i = 0; i < s->n_input; i++) {
        const contract_feature *b = &s->input[i];
        const coreml_feature *x = b->t < 0 ? NULL : input_named(f, b->name);
        int64_t lower, upper;
        if (!x) continue;
        bounds(x, b->t, &lower, &upper);
        bool ok = lower <= tokens && tokens <= upper;
        if (x->n_shapes && !x->range) {
            ok = false;
            for (size_t k = 0; k < x->n_shapes; k++) ok |= x->shapes[k][b->t] == tokens;
        }
        if (!ok) return false;
    }
    return true;
}

void contract_stage_fix(contract_stage *s, int64_t tokens) {
    for (int side = 0; side < 2; side++) {
        contract_feature *b = (contract_feature *)(side ? s->output : s->input);
        for (size_t i = 0; i < (side ? s->n_output : s->n_input); i++)
            if (b[i].t >= 0 && b[i].type.dim[b[i].t] == IR_DIM_UNKNOWN) b[i].type.dim[b[i].t] = tokens;
    }
    for (size_t i = 0; i < s->n_input; i++)
        if (s->input[i].is == MEANS_HIDDEN) s->in = s->input[i].type;
    if (s->n_output) s->out = s->output[0].type;
}
