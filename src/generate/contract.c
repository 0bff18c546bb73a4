#include "generate/contract.h"
#include "base/json.h"
#include "base/str.h"
#include "generate/pattern.h"
#include "generate/values.h"
#include <string.h>

typedef struct {
    arena *a;
    const description *d;
    const char *dir;
    const contract_package *p;
    const size_t *role;
    size_t n;
    size_t chooser; /* the package whose functions are the set's */
    str *lacks;     /* of a package that is alone, its default function; else NULL */
} set;

static const describe_package *role(const set *s, size_t i) {
    return &s->d->package[s->role ? s->role[i] : 0];
}

static const coreml_function *function_of(const set *s, const contract_function *fn, size_t i) {
    return coreml_function_find(s->p[i].model, fn->stage[i].function);
}

/* Ids that the embedding inside a package has rows for: what its metadata says, else the rows of the table
 * that the ids gather from (perhaps through casts and a fix of negative ones); 0 when neither tells. */
static int64_t inner_vocab(const coreml_model *m, const contract_stage *s) {
    int64_t n;
    const char *ids = NULL;
    for (size_t i = 0; i < s->n_input; i++)
        if (s->input[i].is == MEANS_TOKENS) ids = s->input[i].name;
    for (size_t i = 0; ids && i < m->n_user; i++)
        if (!strcmp(m->user[i].key, "vocab_size") && str_to_int64(m->user[i].value, &n) && n > 0 &&
            n <= INT32_MAX)
            return n;
    const ir_function *f = ids && m->program ? ir_function_find(m->program, s->function) : NULL;
    for (size_t i = 0; f && i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        if (op->code != OP_gather) continue;
        const ir_value *v = ir_in(op, A_indices), *x = ir_in(op, A_x);
        while (v && v->def && (v->def->code == OP_cast || v->def->code == OP_select))
            v = ir_in(v->def, v->def->code == OP_cast ? A_x : A_b);
        if (v && v->name && !strcmp(v->name, ids) && x && x->type.rank == 2) return x->type.dim[0];
    }
    return 0;
}

/* Positions that the caches of a function hold; INT32_MAX when there are none. */
static int64_t cache_length(const set *s, const coreml_function *f) {
    int64_t n = INT32_MAX;
    for (size_t i = 0; i < f->n_state; i++)
        for (size_t k = 0; k < s->d->n_cache; k++) {
            const ir_type *t = &f->state[i].type;
            if (t->rank < 4 || !pattern_fits(s->d->cache[k].pattern, f->state[i].name, NULL)) continue;
            if (t->dim[t->rank + s->d->cache[k].axis] < n) n = t->dim[t->rank + s->d->cache[k].axis];
        }
    return n;
}

/* ---- functions ---- */

static const coreml_function *first_of(const coreml_model *m, const describe_names *names) {
    for (size_t k = 0; k < names->n; k++)
        for (size_t i = 0; i < m->n_func; i++)
            if (pattern_fits(names->s[k], m->func[i].name, NULL)) return &m->func[i];
    return NULL;
}

static bool is_among(const describe_names *names, const char *name) {
    for (size_t k = 0; k < names->n; k++)
        if (pattern_fits(names->s[k], name, NULL)) return true;
    return false;
}

/* The function that package i runs when the chooser runs `name`. other: it isn't of that name. */
static const coreml_function *function_for(const set *s, size_t i, const char *name, bool *other) {
    const coreml_model *m = s->p[i].model;
    const describe_package *r = role(s, i);
    const coreml_function *f = coreml_function_find(m, name);
    *other = false;
    if (f && (!r->decode.n || is_among(&r->decode, name) || is_among(&r->prefill, name))) return f;
    if (r->decode.n) return first_of(m, &r->decode);
    *other = true; /* a head may do with one function for all, its default one */
    return i ? coreml_function_find(m, m->default_function) : NULL;
}

/* Package i's part in a function. */
static bool find_stage(const set *s, size_t i, const char *name, bool one, contract_stage *to,
                       contract_look *l, err *e) {
    bool other;
    *l = (contract_look){
        .a = s->a, .d = s->d, .dir = s->dir, .m = s->p[i].model, .one = one && s->d->one_token && s->n == 1};
    l->states_only = !one && s->n == 1;
    l->f = function_for(s, i, name, &other);
    bool ok = l->f && !(other && l->f->n_state) && contract_stage_match(l, role(s, i), to) &&
              (!other || to->logits);
    if (ok && l->one && !to->logits) {
        contract_lack(l, "output logits (it passes %s on: one package of a set, whose directory is needed)",
                      to->output[0].name);
        ok = false;
    }
    if (!ok && !other && l->f)
        err_set(e, ERR_UNSUPPORTED, "%s: function %s lacks %s", s->p[i].name, l->f->name, str_get(&l->lacks));
    if (!ok && s->lacks && !s->lacks->len) str_adds(s->lacks, l->f ? str_get(&l->lacks) : "a function");
    str_free(&l->lacks);
    if (ok) return true;
    return role(s, i)->decode.n ? err_set(e, ERR_UNSUPPORTED, "%s: there is no function %s", s->p[i].name,
                                          role(s, i)->decode.s[0])
                                : err_set(e, ERR_INVALID, "%s: there is no function %s, which %s has",
                                          s->p[i].name, name, s->p[0].name);
}

/* Which packages pass hidden states on and which return scores. */
static bool order_stages(const set *s, const contract_function *fn, size_t *n_layers, err *e) {
    const contract_stage *g = fn->stage;
    size_t first = 0;
    *n_layers = 0;
    if (fn->rows == ROWS_NONE && s->n == 1) return true; /* it leaves states */
    while (first < s->n && !g[first].logits) first++;
    if (first == s->n)
        return err_set(e, ERR_INVALID, "%s, the last of %zu packages, returns %s, not logits",
                       s->p[s->n - 1].name, s->n, g[s->n - 1].output[0].name);
    for (size_t i = first + 1; i < s->n; i++) {
        if (!g[i].logits)
            return err_set(e, ERR_INVALID,
                           "%s passes %s on, but stands behind %s, which returns logits: the packages "
                           "are in the wrong order",
                           s->p[i].name, g[i].output[0].name, s->p[first].name);
        for (size_t k = first; k <= i; k += i - first)
            if (!first || function_of(s, fn, k)->n_state || g[k].output[0].is != MEANS_LOGITS)
                return err_set(e, ERR_INVALID,
                               "%s and %s both return logits: only packages that follow others and have no "
                               "states may return pieces of them",
                               s->p[first].name, s->p[i].name);
    }
    *n_layers = first;
    return true;
}

static const contract_feature *hidden_of(const contract_stage *g) {
    for (size_t i = 0; i < g->n_input; i++)
        if (g->input[i].is == MEANS_HIDDEN) return &g->input[i];
    return NULL;
}

/* What each package takes is what the one before it returns. A call that returns no rows ends before the
 * heads. */
static bool check_handover(const set *s, const contract_function *fn, size_t n_layers, err *e) {
    const contract_stage *g = fn->stage;
    size_t n = fn->tokens > 1 && fn->rows == ROWS_NONE ? n_layers : s->n;
    for (size_t i = 1; i < n; i++) {
        size_t from = i < n_layers ? i - 1 : n_layers - 1;
        const contract_feature *hidden = hidden_of(&g[i]);
        if (!hidden)
            return err_set(e, ERR_INVALID, "%s: function %s takes no hidden states", s->p[i].name,
                           g[i].function);
        ir_type out = g[from].out;
        out.dtype = hidden->type.dtype;
        if (ir_type_compatible(&hidden->type, &out)) continue;
        return err_set(e, ERR_INVALID, "%s: function %s takes %s %s, but %s returns %s %s", s->p[i].name,
                       g[i].function, hidden->name, ir_type_text(s->a, &hidden->type), s->p[from].name,
                       g[from].output[0].name, ir_type_text(s->a, &g[from].out));
    }
    return true;
}

/* T of the function: that of the first package whose T is fixed; where none is, all take what comes. */
static bool choose_tokens(const set *s, contract_function *fn, const contract_look *l, err *e) {
    size_t fixed = 0;
    fn->tokens = INT32_MAX;
    while (fixed < s->n && !(l[fixed].upper && l[fixed].lower == l[fixed].upper)) fixed++;
    fn->flexible = fixed == s->n;
    for (size_t i = 0; i < s->n; i++)
        if (l[i].upper && l[i].upper < fn->tokens && fn->flexible) fn->tokens = l[i].upper;
    if (!fn->flexible) fn->tokens = l[fixed].upper;
    for (size_t i = 0; i < s->n; i++) {
        if (fn->flexible && l[i].upper && l[i].lower > 1)
            return err_set(e, ERR_UNSUPPORTED, "%s: function %s lacks calls with one token", s->p[i].name,
                           fn->stage[i].function);
        if (fn->flexible || !l[i].upper || l[i].lower < l[i].upper) continue;
        bool head = fn->stage[i].logits && l[i].upper == 1 && i; /* of the last token */
        if (l[i].upper != fn->tokens && !head)
            return err_set(e, ERR_INVALID, "%s: function %s takes %lld tokens, that of %s %lld", s->p[i].name,
                           fn->stage[i].function, (long long)l[i].upper, s->p[fixed].name,
                           (long long)fn->tokens);
    }
    return true;
}

static bool fix_tokens(const set *s, contract_function *fn, const contract_look *l, err *e) {
    contract_stage *g = (contract_stage *)fn->stage; /* under construction */
    for (size_t i = 0; i < s->n && !fn->flexible; i++) {
        bool fixed = l[i].lower == l[i].upper;
        if (!fixed && !contract_stage_admits(l[i].f, &g[i], fn->tokens))
            return err_set(e, ERR_UNSUPPORTED, "%s: function %s does not take %lld tokens", s->p[i].name,
                           g[i].function, (long long)fn->tokens);
        contract_stage_fix(&g[i], fn->tokens);
    }
    return true;
}

/* The function of that name through all packages. Where only the last token's row comes out, one stage at
 * least must know how many of several are valid: the one that picks it; of one token, none. */
static bool find_function(contract_function *fn, const set *s, const char *name, bool one, size_t *n_layers,
                          int64_t *positions, err *e) {
    contract_stage *g = ARENA_ARRAY(s->a, contract_stage, s->n);
    contract_look *l = ARENA_ARRAY(s->a, contract_look, s->n);
    bool valid = false;
    *positions = INT32_MAX;
    for (size_t i = 0; i < s->n; i++) {
        if (!find_stage(s, i, name, one, &g[i], &l[i], e)) return false;
        valid |= g[i].valid;
        if (l[i].positions < *positions) *positions = l[i].positions;
    }
    *fn = (contract_function){.name = g[s->chooser].function, .stage = g, .rows = s->d->rows};
    if (!g[0].n_output) fn->rows = ROWS_NONE;
    if (!choose_tokens(s, fn, l, e) || !fix_tokens(s, fn, l, e) || !order_stages(s, fn, n_layers, e) ||
        !check_handover(s, fn, *n_layers, e))
        return false;
    if (fn->flexible || s->d->rows != ROWS_LAST || valid == (fn->tokens > 1)) return true;
    return err_set(e, ERR_UNSUPPORTED,
                   valid ? "function %s takes one token and a valid_length"
                         : "function %s takes several tokens, but no valid_length",
                   fn->name);
}

/* The package whose functions have names in the description; else the first. */
static size_t find_chooser(const set *s) {
    for (size_t i = 0; i < s->n; i++)
        if (role(s, i)->prefill.n) return i;
    return 0;
}

/* Whether a function can be the one for single tokens. */
static bool steps(const set *s, const contract_function *fn) {
    return fn->flexible || fn->tokens == 1 || !s->d->one_token;
}

/* The function for one token: the default one or what the description names, else another. */
static bool find_decode(contract_function *fn, set *s, size_t *n_layers, int64_t *positions, err *e) {
    const coreml_model *m = s->p[s->chooser].model;
    const describe_names *named = &role(s, s->chooser)->decode;
    const coreml_function *first =
        named->n ? first_of(m, named) : coreml_function_find(m, m->default_function);
    if (!first) {
        if (s->lacks) str_printf(s->lacks, "function %s", named->s[0]);
        return err_set(e, ERR_UNSUPPORTED, "%s: there is no function %s", s->p[s->chooser].name, named->s[0]);
    }
    if (find_function(fn, s, first->name, true, n_layers, positions, e) && steps(s, fn)) return true;
    s->lacks = NULL;
    for (size_t i = 0; i < m->n_func; i++) {
        err other = {0};
        if (&m->func[i] == first || (named->n && !is_among(named, m->func[i].name))) continue;
        if (find_function(fn, s, m->func[i].name, true, n_layers, positions, &other) && steps(s, fn)) {
            *e = (err){0};
            return true;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "%s: no function takes one token", s->p[0].name);
}

/* ---- states ---- */

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

static const coreml_feature *state_named(const coreml_function *f, const char *name) {
    for (size_t i = 0; i < f->n_state; i++)
        if (!strcmp(f->state[i].name, name)) return &f->state[i];
    return NULL;
}

/* What two packages have under one name is one state, or a mistake. */
static bool check_pair(const set *s, const contract_function *fn, size_t k, size_t i, err *e) {
    const coreml_function *f = function_of(s, fn, i), *g = function_of(s, fn, k);
    for (size_t j = 0; j < f->n_state && s->d->states != STATES_OWN; j++) {
        const coreml_feature *same = state_named(g, f->state[j].name);
        if (same && s->d->states == STATES_UNIQUE)
            return err_set(e, ERR_INVALID, "%s and %s both have the state %s", s->p[k].name, s->p[i].name,
                           f->state[j].name);
        if (same && !ir_type_equal(&same->type, &f->state[j].type))
            return err_set(e, ERR_INVALID,
                           "%s and %s share the state %s, but it is %s in one and %s in the other",
                           s->p[k].name, s->p[i].name, same->name, ir_type_text(s->a, &same->type),
                           ir_type_text(s->a, &f->state[j].type));
    }
    return true;
}

/* The states of all packages; where names are unique, in the order of the layers; caches of one length. */
static bool check_states(const set *s, const contract_function *fn, int64_t *context, err *e) {
    int64_t first, last, before = -1;
    size_t bound = 0, ordered = 0;
    *context = INT32_MAX;
    for (size_t i = 0; i < s->n; i++) {
        const coreml_function *f = function_of(s, fn, i);
        for (size_t k = 0; k < i; k++)
            if (!check_pair(s, fn, k, i, e)) return false;
        if (s->d->states == STATES_UNIQUE && layers_of(f, &first, &last)) {
            if (first <= before)
                return err_set(e, ERR_INVALID,
                               "%s has states of layer %lld, but stands behind %s, which has those of layer "
                               "%lld: the packages are in the wrong order",
                               s->p[i].name, (long long)first, s->p[ordered].name, (long long)before);
            before = last;
            ordered = i;
        }
        int64_t n = cache_length(s, f);
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
        const coreml_feature *s = state_named(b, a->state[i].name);
        if (!s || !ir_type_equal(&s->type, &a->state[i].type)) return false;
    }
    return true;
}

/* ---- the whole ---- */

static int64_t row_length(const set *s, const contract_function *fn, size_t n_layers) {
    int64_t n = 0;
    for (size_t i = n_layers; i < s->n; i++)
        for (size_t k = 0; k < fn->stage[i].n_output; k++) {
            const contract_feature *b = &fn->stage[i].output[k];
            if (b->is == MEANS_LOGITS || b->is == MEANS_TOP_VALUES) n += b->type.dim[b->c];
        }
    return n;
}

/* Whether the packages that return scores can be left out when nobody looks at them. */
static bool are_heads(const set *s, const contract_function *fn, size_t n_layers) {
    bool ok = n_layers > 0;
    for (size_t i = n_layers; i < s->n; i++) ok &= !function_of(s, fn, i)->n_state;
    return ok;
}

static int64_t width_of(const contract_function *fn) {
    const contract_feature *b = hidden_of(&fn->stage[0]);
    return b ? b->type.dim[b->c] : 0;
}

/* Whether fn does for several tokens what the one-token function does. */
static bool is_prefill(const contract *c, const set *s, const contract_function *fn, size_t n_layers) {
    bool ok = n_layers == c->n_layers && !fn->flexible && fn->tokens > 1 && fn->tokens <= c->context &&
              width_of(fn) == width_of(c->func) && fn->stage[0].in.dtype == c->input_type &&
              (fn->rows == ROWS_NONE || row_length(s, fn, n_layers) == row_length(s, c->func, c->n_layers));
    for (size_t i = 0; ok && i < s->n; i++)
        ok = same_states(function_of(s, fn, i), function_of(s, &c->func[0], i));
    return ok;
}

/* The functions for several tokens, ascending behind the first; of equal sizes the first. */
static void find_prefill(contract *c, contract_function *func, const set *s) {
    const coreml_model *m = s->p[s->chooser].model;
    const describe_names *named = &role(s, s->chooser)->prefill;
    for (size_t i = 0; i < m->n_func && c->n_func < CONTRACT_MAX_FUNCTIONS; i++) {
        contract_function fn;
        size_t n_layers, at = c->n_func;
        int64_t positions;
        err none = {0};
        if (role(s, s->chooser)->decode.n && !is_among(named, m->func[i].name)) continue;
        if (!find_function(&fn, s, m->func[i].name, false, &n_layers, &positions, &none) ||
            !is_prefill(c, s, &fn, n_layers))
            continue;
        while (func[at - 1].tokens > fn.tokens) at--;
        if (func[at - 1].tokens >= fn.tokens) continue;
        memmove(func + at + 1, func + at, (c->n_func++ - at) * sizeof *func);
        func[at] = fn;
    }
}

/* States that go in and out: the same ones in every function. */
static bool number_carried(contract *c, const set *s, err *e) {
    struct contract_carried *list = NULL;
    size_t cap = 0;
    for (size_t f = 0; f < c->n_func; f++)
        for (size_t i = 0; i < s->n; i++)
            for (size_t k = 0; k < c->func[f].stage[i].n_input; k++) {
                contract_feature *b = (contract_feature *)&c->func[f].stage[i].input[k];
                if (b->is != MEANS_CARRIED) continue;
                b->carried = 0;
                while (b->carried < c->n_carried &&
                       (list[b->carried].package != i || strcmp(list[b->carried].name, b->name)))
                    b->carried++;
                if (!ir_type_known(&b->type) || ir_type_bytes(&b->type) < 0 ||
                    (b->carried < c->n_carried && !ir_type_equal(&list[b->carried].type, &b->type)))
                    return err_set(e, ERR_INVALID, "%s: input %s is no state of one type", s->p[i].name,
                                   b->name);
                if (b->carried < c->n_carried) continue;
                list = arena_grow(s->a, list, c->n_carried, &cap, c->n_carried + 1, sizeof *list);
                list[c->n_carried++] = (struct contract_carried){b->name, i, b->type};
            }
    c->carried = list;
    return true;
}

/* What kind of scores come out, and how many. */
static bool find_scores(contract *c, const set *s, err *e) {
    const contract_stage *g = &c->func->stage[c->n_layers];
    const contract_feature *out = g->output;
    int64_t n = row_length(s, c->func, c->n_layers);
    for (size_t i = 0; i < s->n && !c->in_vocab; i++)
        c->in_vocab = inner_vocab(s->p[i].model, &c->func->stage[i]);
    if (out->is == MEANS_LOGITS) c->vocab = n;
    if (out->is == MEANS_TOP_VALUES) {
        c->top_k = n;
        c->ids = out[1].at;
    }
    if (out->is != MEANS_BEST_VALUE) return true;
    c->best = true;
    c->top_k = 1;
    if (!c->in_vocab) c->in_vocab = values_count(s->a, s->dir, s->d->vocab);
    if (!out[1].local) return true;
    c->n_slice = out->c < 0 ? 1 : (size_t)out->type.dim[out->c];
    int64_t *slice = ARENA_ARRAY(s->a, int64_t, c->n_slice), vocab = c->in_vocab,
            n_slice = (int64_t)c->n_slice;
    const json *sizes = values_find(s->a, s->dir, s->d->slices);
    size_t k = 0;
    for (; k < c->n_slice && vocab; k++) slice[k] = vocab / n_slice + ((int64_t)k < vocab % n_slice);
    if (sizes && sizes->kind == JSON_ARRAY && sizes->len == c->n_slice) {
        k = 0;
        JSON_EACH(x, sizes) if (x->kind == JSON_INT && x->i > 0 && x->i < INT32_MAX) slice[k++] = x->i;
    }
    c->slice = slice;
    return k == c->n_slice || err_set(e, ERR_INVALID,
                                      "%s: ids of %zu slices of the vocabulary, and nothing tells how large "
                                      "these are",
                                      s->p[s->n - 1].name, c->n_slice);
}

static bool find_context(contract *c, const set *s, int64_t positions, err *e) {
    if (!check_states(s, c->func, &c->context, e)) return false;
    int64_t told = values_count(s->a, s->dir, s->d->context);
    if (positions < c->context) c->context = positions;
    if (told && told < c->context) c->context = told;
    return true;
}

static bool check_packages(const set *s, err *e) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->p[i].model->n_part)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: a pipeline is not a form that can generate (chunks, single)", s->p[i].name);
        if (!coreml_function_find(s->p[i].model, s->p[i].model->default_function))
            return err_set(e, ERR_INVALID, "%s: the package has no default function", s->p[i].name);
    }
    return true;
}

bool contract_match(contract *c, arena *a, const description *d, const char *dir, const contract_package *p,
                    const size_t *roles, size_t n, str *lacks, err *e) {
    set s = {.a = a, .d = d, .dir = dir, .p = p, .role = roles, .n = n, .lacks = n == 1 ? lacks : NULL};
    int64_t positions;
    *c = (contract){.d = d, .n_package = n};
    c->form = !strcmp(d->name, "chunks")   ? CONTRACT_CHUNKS
              : !strcmp(d->name, "single") ? CONTRACT_SINGLE
                                           : CONTRACT_OTHER;
    contract_function *func = ARENA_ARRAY(a, contract_function, CONTRACT_MAX_FUNCTIONS);
    if (!check_packages(&s, e)) return false;
    s.chooser = find_chooser(&s);
    if (!find_decode(func, &s, &c->n_layers, &positions, e)) return false;
    c->func = func;
    c->n_func = 1;
    c->function = func->name;
    c->input_type = (ir_dtype)func->stage[0].in.dtype;
    c->hidden = width_of(func);
    c->heads = are_heads(&s, func, c->n_layers);
    if (!find_scores(c, &s, e) || !find_context(c, &s, positions, e)) return false;
    if (func->tokens > c->context) {
        if (!func->flexible)
            return err_set(e, ERR_INVALID, "%s: function %s takes %lld tokens, the context is %lld",
                           p[0].name, func->name, (long long)func->tokens, (long long)c->context);
        func->tokens = c->context;
    }
    if (!func->flexible) find_prefill(c, func, &s);
    return number_carried(c, &s, e);
}

/* ---- the two forms of our own ---- */

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

void contract_list(str *out, const coreml_function *f) {
    list(out, "inputs", f->in, f->n_in);
    list(out, "outputs", f->out, f->n_out);
    list(out, "states", f->state, f->n_state);
}

bool contract_find_own(contract *c, arena *a, const contract_package *p, size_t n, str lacks[CONTRACT_OWN],
                       err *e) {
    for (size_t i = 0; i < CONTRACT_OWN; i++) {
        err why = {0};
        const describe_builtin *b = &describe_builtins[i];
        const description *d = describe_parse(a, b->name, (const char *)b->text, b->n, e);
        if (!d) return false;
        if (contract_match(c, a, d, NULL, p, NULL, n, &lacks[i], &why)) return true;
        if (!lacks[i].len) { /* the packages are understood, but don't fit together */
            *e = why;
            return false;
        }
    }
    str has = {0};
    const coreml_function *f = coreml_function_find(p[0].model, p[0].model->default_function);
    contract_list(&has, f);
    err_set(e, ERR_UNSUPPORTED,
            "this package has no form that can generate. Form chunks lacks %.220s. Form single lacks %.220s. "
            "Function %.60s has %.400s",
            str_get(&lacks[0]), str_get(&lacks[1]), f->name, str_get(&has));
    str_free(&has);
    return false;
}

bool contract_find(contract *c, arena *a, const contract_package *p, size_t n, err *e) {
    str lacks[CONTRACT_OWN] = {{0}};
    bool ok = contract_find_own(c, a, p, n, lacks, e);
    for (size_t i = 0; i < CONTRACT_OWN; i++) str_free(&lacks[i]);
    return ok;
}
