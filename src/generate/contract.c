#include "generate/contract.h"
#include "base/str.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One look at a function as one form: what is missing or wrong is collected as text. */
typedef struct {
    const coreml_model *m;
    const coreml_function *f;
    str lacks;
} look;

static void lack(look *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void lack(look *l, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (l->lacks.len) str_adds(&l->lacks, ", ");
    str_adds(&l->lacks, text);
}

static const coreml_feature *by_name(const coreml_feature *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

static const coreml_feature *input(look *l, const char *name, int rank, ir_dtype a, ir_dtype b) {
    const coreml_feature *x = by_name(l->f->in, l->f->n_in, name);
    if (!x) {
        lack(l, "input %s", name);
        return NULL;
    }
    if (x->other || x->type.rank != rank || (x->type.dtype != a && x->type.dtype != b)) {
        lack(l, "input %s as %s of rank %d", name, dtype_name(a), rank);
        return NULL;
    }
    return x;
}

/* An output by the type that the program declares: descriptions leave out shapes that are not fixed. */
static bool output(look *l, const char *name, int rank, ir_dtype a, ir_dtype b, size_t *at, ir_type *type) {
    *at = SIZE_MAX;
    for (size_t i = 0; i < l->f->n_out; i++)
        if (!strcmp(l->f->out[i].name, name)) *at = i;
    if (*at == SIZE_MAX) return false;
    *type = l->f->out[*at].type;
    const ir_function *p = l->m->program ? ir_function_find(l->m->program, l->f->name) : NULL;
    for (size_t i = 0; p && i < p->body.n_out; i++)
        if (!strcmp(p->body.out[i]->name, name)) *type = p->body.out[i]->type;
    if (type->rank == rank && (type->dtype == a || type->dtype == b) && type->dim[rank - 1] > 0) return true;
    lack(l, "output %s as %s of rank %d with a fixed last size", name, dtype_name(a), rank);
    return false;
}

static void no_other_input(look *l, const char *const *known) {
    for (size_t i = 0; i < l->f->n_in; i++) {
        size_t k = 0;
        while (known[k] && strcmp(l->f->in[i].name, known[k])) k++;
        if (!known[k] && !l->f->in[i].optional) lack(l, "a meaning for input %s", l->f->in[i].name);
    }
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

/* An int32 [1] that a package may do without. */
static bool scalar(look *l, const char *name) {
    if (!by_name(l->f->in, l->f->n_in, name)) return false;
    const coreml_feature *x = input(l, name, 1, DT_INT32, DT_INT32);
    if (x && x->type.dim[0] != 1) lack(l, "input %s as [1]", name);
    return x != NULL;
}

/* A package's part in a call of form chunks. one: the function is to be one for one token. */
static bool as_stage(look *l, contract_stage *s, bool one) {
    static const char *const known[] = {"hidden", "current_pos", "valid_length", NULL};
    *s = (contract_stage){.function = l->f->name, .n_out = l->f->n_out};
    const coreml_feature *hidden = input(l, "hidden", 3, DT_FP16, DT_FP32);
    s->position = scalar(l, "current_pos");
    s->valid = scalar(l, "valid_length");
    const int64_t *dim = hidden ? hidden->type.dim : NULL;
    if (dim && (dim[0] != 1 || dim[1] < 1 || (one && dim[1] != 1) || dim[2] < 1))
        lack(l, one ? "input hidden as [1,1,h]" : "input hidden as [1,T,h]");
    if (one && s->valid) lack(l, "a meaning for input valid_length");
    no_other_input(l, known);
    size_t before = l->lacks.len;
    s->logits = output(l, "logits", 2, DT_FP32, DT_FP16, &s->at, &s->out);
    if (!s->logits && l->lacks.len == before &&
        !output(l, "hidden_out", 3, DT_FP32, DT_FP16, &s->at, &s->out) && l->lacks.len == before)
        lack(l, "output logits");
    if (l->lacks.len) return false;
    s->in = hidden->type;
    return true;
}

/* Ids that the embedding inside a package has rows for: what its metadata says, else the rows of the table
 * that input_ids gathers from (perhaps through a cast); 0 when neither tells. */
static int64_t inner_vocab(const coreml_model *m, const char *function) {
    int64_t n;
    for (size_t i = 0; i < m->n_user; i++)
        if (!strcmp(m->user[i].key, "vocab_size") && str_to_int64(m->user[i].value, &n) && n > 0 &&
            n <= INT32_MAX)
            return n;
    const ir_function *f = m->program ? ir_function_find(m->program, function) : NULL;
    for (size_t i = 0; f && i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        if (op->code != OP_gather) continue;
        const ir_value *ids = ir_in(op, A_indices), *x = ir_in(op, A_x);
        if (ids && ids->def && ids->def->code == OP_cast) ids = ir_in(ids->def, A_x);
        if (ids && ids->name && !strcmp(ids->name, "input_ids") && x && x->type.rank == 2)
            return x->type.dim[0];
    }
    return 0;
}

static void single_outputs(contract *c, contract_stage *s, look *l) {
    ir_type u = {0};
    size_t before = l->lacks.len;
    if (output(l, "logits", 3, DT_FP32, DT_FP16, &s->at, &s->out)) {
        c->vocab = s->out.dim[2];
        return;
    }
    bool values = output(l, "topk_values", 3, DT_FP32, DT_FP16, &s->at, &s->out);
    bool ids = output(l, "topk_ids", 3, DT_INT32, DT_INT32, &c->ids, &u);
    if (values && ids && s->out.dim[2] == u.dim[2])
        c->top_k = u.dim[2];
    else if (values && ids)
        lack(l, "equal sizes of topk_values and topk_ids");
    else if (l->lacks.len == before)
        lack(l, "output logits, or topk_values and topk_ids");
}

/* Positions that the key caches of a function hold; INT32_MAX when there are none. */
static int64_t cache_length(const coreml_function *f) {
    static const char *const prefix[] = {"k_", "key_cache", "kv_cache"};
    int64_t n = INT32_MAX;
    for (size_t i = 0; i < f->n_state; i++) {
        const coreml_feature *s = &f->state[i];
        for (size_t k = 0; k < sizeof prefix / sizeof *prefix; k++)
            if (!strncmp(s->name, prefix[k], strlen(prefix[k])) && s->type.rank >= 4 &&
                s->type.dim[s->type.rank - 2] < n)
                n = s->type.dim[s->type.rank - 2];
    }
    return n;
}

static bool as_single(contract *c, contract_function *fn, contract_stage *s, look *l) {
    static const char *const known[] = {"input_ids", "causal_mask", NULL};
    *s = (contract_stage){.function = l->f->name, .n_out = l->f->n_out, .logits = true};
    const coreml_feature *ids = input(l, "input_ids", 2, DT_INT32, DT_INT32);
    const coreml_feature *mask = input(l, "causal_mask", 4, DT_FP16, DT_FP32);
    no_other_input(l, known);
    single_outputs(c, s, l);
    if (l->lacks.len) return false;
    int64_t lower, upper, mask_lower, mask_upper;
    bounds(ids, 1, &lower, &fn->tokens);
    bounds(mask, 2, &mask_lower, &mask_upper);
    if (lower > 1 || mask_lower > 1) lack(l, "calls with one token (T = 1)");
    if (mask_upper < fn->tokens) fn->tokens = mask_upper;
    bounds(mask, 3, &lower, &upper);
    if (lower > 1) lack(l, "calls with one position (K = 1)");
    if (l->lacks.len) return false;
    s->in = mask->type;
    c->form = CONTRACT_SINGLE;
    c->context = upper < cache_length(l->f) ? upper : cache_length(l->f);
    if (fn->tokens > c->context) fn->tokens = c->context;
    c->in_vocab = inner_vocab(l->m, l->f->name);
    return true;
}

/* ---- one package ---- */

static void list(str *out, const char *what, const coreml_feature *x, size_t n) {
    arena *a = arena_new();
    str_printf(out, "%s%s", out->len ? "; " : "", what);
    for (size_t i = 0; i < n && i < 8; i++)
        str_printf(out, "%s %s %s", i ? "," : "", x[i].name,
                   x[i].other ? x[i].other : ir_type_text(a, &x[i].type));
    if (n > 8) str_printf(out, " and %zu more", n - 8);
    if (!n) str_adds(out, " none");
    arena_free(a);
}

/* chunks, single: receive what the form lacks; NULL: not wanted. */
static bool try_function(contract *c, contract_function *fn, contract_stage *s, const coreml_model *m,
                         const coreml_function *f, str *chunks, str *single) {
    look l = {.m = m, .f = f};
    *fn = (contract_function){.name = f->name, .tokens = 1, .stage = s};
    bool ok = as_stage(&l, s, true);
    if (ok && !s->logits)
        lack(&l, "output logits (it passes hidden_out on: one package of a set, whose directory is needed)");
    ok = ok && s->logits;
    if (chunks) str_adds(chunks, str_get(&l.lacks));
    str_clear(&l.lacks);
    if (!ok) {
        *c = (contract){0};
        ok = as_single(c, fn, s, &l);
        if (single) str_adds(single, str_get(&l.lacks));
    }
    str_free(&l.lacks);
    return ok;
}

/* The function that takes one token at a time, of a package that is alone. */
static bool find_alone(contract *c, contract_function *fn, contract_stage *s, const coreml_model *m, err *e) {
    const coreml_function *first = coreml_function_find(m, m->default_function);
    str chunks = {0}, single = {0}, has = {0};
    bool ok = try_function(c, fn, s, m, first, &chunks, &single);
    for (size_t i = 0; !ok && i < m->n_func; i++)
        if (&m->func[i] != first) ok = try_function(c, fn, s, m, &m->func[i], NULL, NULL);
    if (!ok) {
        list(&has, "inputs", first->in, first->n_in);
        list(&has, "outputs", first->out, first->n_out);
        list(&has, "states", first->state, first->n_state);
        err_set(
            e, ERR_UNSUPPORTED,
            "this package has no form that can generate. Form chunks lacks %.220s. Form single lacks %.220s. "
            "Function %.60s has %.400s",
            str_get(&chunks), str_get(&single), first->name, str_get(&has));
    }
    str_free(&chunks);
    str_free(&single);
    str_free(&has);
    return ok;
}

/* ---- a set ---- */

typedef struct {
    const contract_package *p;
    size_t n;
} set;

static const coreml_function *function_of(const set *s, const contract_function *fn, size_t i) {
    return coreml_function_find(s->p[i].model, fn->stage[i].function);
}

/* A package's function of that name. A head may do with one function for all: its default one. */
static bool find_stage(const set *s, size_t i, const char *name, contract_stage *to, err *e) {
    const coreml_model *m = s->p[i].model;
    look l = {.m = m, .f = coreml_function_find(m, name)};
    bool other = !l.f;
    if (other) l.f = coreml_function_find(m, m->default_function);
    bool ok = l.f && !(other && l.f->n_state) && as_stage(&l, to, false) && (!other || to->logits);
    if (!ok && !other)
        err_set(e, ERR_UNSUPPORTED, "%s: function %s lacks %s", s->p[i].name, l.f->name, str_get(&l.lacks));
    str_free(&l.lacks);
    return ok || err_set(e, ERR_INVALID, "%s: there is no function %s, which %s has", s->p[i].name, name,
                         s->p[0].name);
}

/* Which packages pass hidden_out on and which return logits. */
static bool order_stages(const set *s, const contract_function *fn, size_t *n_layers, err *e) {
    const contract_stage *g = fn->stage;
    size_t first = 0;
    while (first < s->n && !g[first].logits) first++;
    if (first == s->n)
        return err_set(e, ERR_INVALID, "%s, the last of %zu packages, returns hidden_out, not logits",
                       s->p[s->n - 1].name, s->n);
    for (size_t i = first + 1; i < s->n; i++) {
        if (!g[i].logits)
            return err_set(
                e, ERR_INVALID,
                "%s passes hidden_out on, but stands behind %s, which returns logits: the packages "
                "are in the wrong order",
                s->p[i].name, s->p[first].name);
        for (size_t k = first; k <= i; k += i - first)
            if (!first || function_of(s, fn, k)->n_state)
                return err_set(e, ERR_INVALID,
                               "%s and %s both return logits: only packages that follow others and have no "
                               "states may return pieces of them",
                               s->p[first].name, s->p[i].name);
    }
    *n_layers = first;
    return true;
}

/* What each package takes is what the one before it returns. */
static bool check_handover(const set *s, const contract_function *fn, size_t n_layers, err *e) {
    const contract_stage *g = fn->stage;
    arena *a = arena_new();
    bool ok = true;
    for (size_t i = 1; ok && i < s->n; i++) {
        size_t from = i < n_layers ? i - 1 : n_layers - 1;
        if (!memcmp(g[i].in.dim, g[from].out.dim, 3 * sizeof *g[i].in.dim)) continue;
        ok = err_set(e, ERR_INVALID, "%s: function %s takes hidden %s, but %s returns hidden_out %s",
                     s->p[i].name, g[i].function, ir_type_text(a, &g[i].in), s->p[from].name,
                     ir_type_text(a, &g[from].out));
    }
    arena_free(a);
    for (size_t i = 1; ok && i < n_layers; i++)
        if (g[i].in.dim[1] != fn->tokens)
            ok = err_set(e, ERR_INVALID, "%s: function %s takes %lld tokens, that of %s %lld", s->p[i].name,
                         g[i].function, (long long)g[i].in.dim[1], s->p[0].name, (long long)fn->tokens);
    return ok;
}

/* The function of that name through all packages. Of several tokens, one stage at least must know how many of
 * them are valid: the one that picks the last; of one token, none. */
static bool find_function(contract_function *fn, arena *a, const set *s, const char *name, size_t *n_layers,
                          err *e) {
    contract_stage *g = ARENA_ARRAY(a, contract_stage, s->n);
    bool valid = false;
    for (size_t i = 0; i < s->n; i++) {
        if (!find_stage(s, i, name, &g[i], e)) return false;
        valid |= g[i].valid;
    }
    *fn = (contract_function){name, g[0].in.dim[1], g};
    if (!order_stages(s, fn, n_layers, e) || !check_handover(s, fn, *n_layers, e)) return false;
    if (valid == (fn->tokens > 1)) return true;
    return err_set(e, ERR_UNSUPPORTED,
                   valid ? "function %s takes one token and a valid_length"
                         : "function %s takes several tokens, but no valid_length",
                   name);
}

/* The function for one token: the first package's default one, or another. */
static bool find_decode(contract_function *fn, arena *a, const set *s, size_t *n_layers, err *e) {
    const coreml_model *m = s->p[0].model;
    if (find_function(fn, a, s, m->default_function, n_layers, e) && fn->tokens == 1) return true;
    for (size_t i = 0; i < m->n_func; i++) {
        err other = {0};
        if (find_function(fn, a, s, m->func[i].name, n_layers, &other) && fn->tokens == 1) {
            *e = (err){0};
            return true;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "%s: no function takes one token", s->p[0].name);
}

/* Layers that a package's states belong to, by their names: k_3, rec_0_lo. False when none tells. */
static bool layers_of(const coreml_function *f, int64_t *first, int64_t *last) {
    *first = INT64_MAX;
    *last = -1;
    for (size_t i = 0; i < f->n_state; i++) {
        const char *digits = strpbrk(f->state[i].name, "0123456789");
        if (!digits || digits == f->state[i].name || digits[-1] != '_') continue;
        int64_t layer = 0;
        for (; *digits >= '0' && *digits <= '9' && layer < INT32_MAX; digits++)
            layer = layer * 10 + *digits - '0';
        if (layer < *first) *first = layer;
        if (layer > *last) *last = layer;
    }
    return *last >= 0;
}

/* The states of all packages: each in one package, in the order of the layers, caches of one length. */
static bool check_states(const set *s, const contract_function *fn, int64_t *context, err *e) {
    int64_t first, last, before = -1;
    size_t bound = 0, ordered = 0;
    *context = INT32_MAX;
    for (size_t i = 0; i < s->n; i++) {
        const coreml_function *f = function_of(s, fn, i);
        for (size_t k = 0; k < i; k++) {
            const coreml_function *g = function_of(s, fn, k);
            for (size_t j = 0; j < f->n_state; j++)
                if (by_name(g->state, g->n_state, f->state[j].name))
                    return err_set(e, ERR_INVALID, "%s and %s both have the state %s", s->p[k].name,
                                   s->p[i].name, f->state[j].name);
        }
        if (layers_of(f, &first, &last)) {
            if (first <= before)
                return err_set(e, ERR_INVALID,
                               "%s has states of layer %lld, but stands behind %s, which has those of layer "
                               "%lld: the packages are in the wrong order",
                               s->p[i].name, (long long)first, s->p[ordered].name, (long long)before);
            before = last;
            ordered = i;
        }
        int64_t n = cache_length(f);
        if (n < INT32_MAX && *context < INT32_MAX && n != *context)
            return err_set(e, ERR_INVALID, "%s has caches of %lld positions, %s of %lld", s->p[i].name,
                           (long long)n, s->p[bound].name, (long long)*context);
        if (n < *context) *context = n, bound = i;
    }
    return true;
}

static bool same_states(const coreml_function *a, const coreml_function *b) {
    if (a->n_state != b->n_state) return false;
    for (size_t i = 0; i < a->n_state; i++) {
        const coreml_feature *s = by_name(b->state, b->n_state, a->state[i].name);
        if (!s || !ir_type_equal(&s->type, &a->state[i].type)) return false;
    }
    return true;
}

static int64_t row_length(const set *s, const contract_function *fn, size_t n_layers) {
    int64_t n = 0;
    for (size_t i = n_layers; i < s->n; i++) n += fn->stage[i].out.dim[1];
    return n;
}

/* Whether the packages that return logits can be left out when nobody looks at them. */
static bool are_heads(const set *s, const contract_function *fn, size_t n_layers) {
    bool ok = n_layers > 0;
    for (size_t i = n_layers; i < s->n; i++) ok &= !function_of(s, fn, i)->n_state;
    return ok;
}

/* Whether fn does for several tokens what the one-token function does. */
static bool is_prefill(const contract *c, const set *s, const contract_function *fn, size_t n_layers) {
    bool ok = n_layers == c->n_layers && fn->tokens > 1 && fn->tokens <= c->context &&
              fn->stage[0].in.dim[2] == c->hidden && fn->stage[0].in.dtype == c->input_type &&
              row_length(s, fn, n_layers) == c->vocab;
    for (size_t i = 0; ok && i < s->n; i++)
        ok = same_states(function_of(s, fn, i), function_of(s, &c->func[0], i));
    return ok;
}

/* The functions for several tokens, ascending behind the first; of equal sizes the first. */
static void find_prefill(contract *c, contract_function *func, arena *a, const set *s) {
    const coreml_model *m = s->p[0].model;
    for (size_t i = 0; i < m->n_func && c->n_func < CONTRACT_MAX_FUNCTIONS; i++) {
        contract_function fn;
        size_t n_layers, at = c->n_func;
        err none = {0};
        if (!find_function(&fn, a, s, m->func[i].name, &n_layers, &none) || !is_prefill(c, s, &fn, n_layers))
            continue;
        while (func[at - 1].tokens > fn.tokens) at--;
        if (func[at - 1].tokens == fn.tokens) continue;
        memmove(func + at + 1, func + at, (c->n_func++ - at) * sizeof *func);
        func[at] = fn;
    }
}

bool contract_find(contract *c, arena *a, const contract_package *p, size_t n, err *e) {
    const set s = {p, n};
    *c = (contract){.form = CONTRACT_CHUNKS};
    for (size_t i = 0; i < n; i++) {
        if (p[i].model->n_part)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: a pipeline is not a form that can generate (chunks, single)", p[i].name);
        if (!coreml_function_find(p[i].model, p[i].model->default_function))
            return err_set(e, ERR_INVALID, "%s: the package has no default function", p[i].name);
    }
    contract_function *func = ARENA_ARRAY(a, contract_function, CONTRACT_MAX_FUNCTIONS);
    bool found = n > 1 ? find_decode(func, a, &s, &c->n_layers, e)
                       : find_alone(c, func, ARENA_NEW(a, contract_stage), p[0].model, e);
    if (!found) return false;
    c->n_package = n;
    c->func = func;
    c->n_func = 1;
    c->function = func->name;
    c->input_type = func->stage[0].in.dtype;
    if (c->form == CONTRACT_SINGLE) return true;
    c->hidden = func->stage[0].in.dim[2];
    c->vocab = row_length(&s, func, c->n_layers);
    c->heads = are_heads(&s, func, c->n_layers);
    if (!check_states(&s, func, &c->context, e)) return false;
    find_prefill(c, func, a, &s);
    return true;
}
