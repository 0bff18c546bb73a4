#include "generate/contract.h"
#include "base/file.h"
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

static void no_other_input(look *l, const char *a, const char *b) {
    for (size_t i = 0; i < l->f->n_in; i++)
        if (strcmp(l->f->in[i].name, a) && strcmp(l->f->in[i].name, b) && !l->f->in[i].optional)
            lack(l, "a meaning for input %s", l->f->in[i].name);
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

static bool as_chunks(contract *c, look *l) {
    const coreml_feature *hidden = input(l, "hidden", 3, DT_FP16, DT_FP32);
    const coreml_feature *pos = input(l, "current_pos", 1, DT_INT32, DT_INT32);
    if (hidden && (hidden->type.dim[0] != 1 || hidden->type.dim[1] != 1 || hidden->type.dim[2] < 1))
        lack(l, "input hidden as [1,1,h]");
    if (pos && pos->type.dim[0] != 1) lack(l, "input current_pos as [1]");
    no_other_input(l, "hidden", "current_pos");
    ir_type t = {0};
    size_t before = l->lacks.len;
    if (!output(l, "logits", 2, DT_FP32, DT_FP16, &c->logits, &t) && l->lacks.len == before)
        lack(l, "output logits");
    if (l->lacks.len) return false;
    c->form = CONTRACT_CHUNKS;
    c->hidden = hidden->type.dim[2];
    c->input_type = hidden->type.dtype;
    c->vocab = t.dim[1];
    c->block = 1;
    c->context = INT32_MAX;
    for (size_t i = 0; i < l->f->n_state; i++) {
        const coreml_feature *s = &l->f->state[i];
        if (!strncmp(s->name, "k_", 2) && s->type.rank == 4 && s->type.dim[2] < c->context)
            c->context = s->type.dim[2];
    }
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

static void single_outputs(contract *c, look *l) {
    ir_type t = {0}, u = {0};
    size_t before = l->lacks.len;
    if (output(l, "logits", 3, DT_FP32, DT_FP16, &c->logits, &t)) {
        c->vocab = t.dim[2];
        return;
    }
    bool values = output(l, "topk_values", 3, DT_FP32, DT_FP16, &c->values, &t);
    bool ids = output(l, "topk_ids", 3, DT_INT32, DT_INT32, &c->ids, &u);
    if (values && ids && t.dim[2] == u.dim[2])
        c->top_k = t.dim[2];
    else if (values && ids)
        lack(l, "equal sizes of topk_values and topk_ids");
    else if (l->lacks.len == before)
        lack(l, "output logits, or topk_values and topk_ids");
}

static bool as_single(contract *c, look *l) {
    const coreml_feature *ids = input(l, "input_ids", 2, DT_INT32, DT_INT32);
    const coreml_feature *mask = input(l, "causal_mask", 4, DT_FP16, DT_FP32);
    no_other_input(l, "input_ids", "causal_mask");
    single_outputs(c, l);
    if (l->lacks.len) return false;
    int64_t lower, upper, mask_lower, mask_upper;
    bounds(ids, 1, &lower, &c->block);
    bounds(mask, 2, &mask_lower, &mask_upper);
    if (lower > 1 || mask_lower > 1) lack(l, "calls with one token (T = 1)");
    if (mask_upper < c->block) c->block = mask_upper;
    bounds(mask, 3, &lower, &upper);
    if (lower > 1) lack(l, "calls with one position (K = 1)");
    if (l->lacks.len) return false;
    c->form = CONTRACT_SINGLE;
    c->input_type = mask->type.dtype;
    c->context = upper;
    for (size_t i = 0; i < l->f->n_state; i++) {
        const coreml_feature *s = &l->f->state[i];
        if (!strncmp(s->name, "key_cache", 9) && s->type.rank == 5 && s->type.dim[3] < c->context)
            c->context = s->type.dim[3];
    }
    if (c->block > c->context) c->block = c->context;
    c->in_vocab = inner_vocab(l->m, l->f->name);
    return true;
}

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

static bool try_function(contract *c, const coreml_model *m, const coreml_function *f, str *chunks,
                         str *single) {
    look l = {.m = m, .f = f};
    *c = (contract){.function = f->name, .n_out = f->n_out};
    bool ok = as_chunks(c, &l);
    if (chunks) str_adds(chunks, str_get(&l.lacks));
    str_clear(&l.lacks);
    if (!ok) {
        *c = (contract){.function = f->name, .n_out = f->n_out};
        ok = as_single(c, &l);
        if (single) str_adds(single, str_get(&l.lacks));
    }
    str_free(&l.lacks);
    return ok;
}

static bool same_states(const coreml_function *a, const coreml_function *b) {
    if (a->n_state != b->n_state) return false;
    for (size_t i = 0; i < a->n_state; i++) {
        const coreml_feature *s = by_name(b->state, b->n_state, a->state[i].name);
        if (!s || !ir_type_equal(&s->type, &a->state[i].type)) return false;
    }
    return true;
}

/* Whether f does for several tokens what the function of c does for one. */
static bool as_prefill(const contract *c, const coreml_model *m, const coreml_function *f,
                       contract_prefill *p) {
    look l = {.m = m, .f = f};
    const coreml_feature *hidden = input(&l, "hidden", 3, c->input_type, c->input_type);
    const coreml_feature *at[2] = {input(&l, "current_pos", 1, DT_INT32, DT_INT32),
                                   input(&l, "valid_length", 1, DT_INT32, DT_INT32)};
    ir_type t = {0};
    *p = (contract_prefill){.function = f->name, .n_out = f->n_out};
    bool ok = output(&l, "logits", 2, DT_FP32, DT_FP16, &p->logits, &t) && t.dim[1] == c->vocab &&
              f->n_in == 3 && !l.lacks.len && at[0]->type.dim[0] == 1 && at[1]->type.dim[0] == 1 &&
              hidden->type.dim[0] == 1 && hidden->type.dim[1] > 1 && hidden->type.dim[1] <= c->context &&
              hidden->type.dim[2] == c->hidden && same_states(f, coreml_function_find(m, c->function));
    if (ok) p->tokens = hidden->type.dim[1];
    str_free(&l.lacks);
    return ok;
}

static void find_prefill(contract *c, const coreml_model *m) {
    for (size_t i = 0; i < m->n_func && c->n_prefill < CONTRACT_MAX_PREFILL; i++) {
        contract_prefill p;
        if (!as_prefill(c, m, &m->func[i], &p)) continue;
        size_t at = c->n_prefill++;
        for (; at && c->prefill[at - 1].tokens > p.tokens; at--) c->prefill[at] = c->prefill[at - 1];
        c->prefill[at] = p;
    }
}

bool contract_find(contract *c, const coreml_model *m, err *e) {
    if (m->n_part)
        return err_set(e, ERR_UNSUPPORTED, "a pipeline is not a form that can generate (chunks, single)");
    const coreml_function *first = coreml_function_find(m, m->default_function);
    if (!first) return err_set(e, ERR_INVALID, "the package has no default function");
    str chunks = {0}, single = {0}, has = {0};
    bool ok = try_function(c, m, first, &chunks, &single);
    for (size_t i = 0; !ok && i < m->n_func; i++)
        if (&m->func[i] != first) ok = try_function(c, m, &m->func[i], NULL, NULL);
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
    if (ok && c->form == CONTRACT_CHUNKS) find_prefill(c, m);
    str_free(&chunks);
    str_free(&single);
    str_free(&has);
    return ok;
}

static const char *beside(arena *a, const char *dir, const char *name, const char *must_hold) {
    const char *path = arena_printf(a, "%s/%s", dir, name);
    return file_exists(must_hold ? arena_printf(a, "%s/%s", path, must_hold) : path) ? path : NULL;
}

static char *without_slashes(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_strn(a, path, n);
}

bool contract_locate(contract_paths *p, arena *a, const char *path, const char *tokenizer_dir, err *e) {
    *p = (contract_paths){0};
    if (!file_exists(path)) return err_set(e, ERR_IO, "%s: no such package or artifact directory", path);
    char *dir = without_slashes(a, path);
    if (beside(a, dir, "Manifest.json", NULL)) {
        p->package = arena_str(a, dir);
        char *slash = strrchr(dir, '/');
        if (!slash)
            dir = arena_str(a, ".");
        else
            slash[slash == dir] = 0;
    } else {
        p->package = beside(a, dir, "model.mlpackage", "Manifest.json");
        if (!p->package)
            return err_set(
                e, ERR_IO,
                "%s: neither a package (Manifest.json) nor an artifact directory (model.mlpackage)%s", path,
                beside(a, dir, "config.json", NULL)
                    ? ", but a checkpoint: millet convert makes a package of it"
                    : "");
    }
    p->table = beside(a, dir, "embed_tokens.bin", NULL);
    p->metadata = beside(a, dir, "metadata.json", NULL);
    if (!tokenizer_dir) {
        p->tokenizer = beside(a, dir, "Tokenizer", "tokenizer.json");
        return true;
    }
    p->tokenizer = without_slashes(a, tokenizer_dir);
    return beside(a, p->tokenizer, "tokenizer.json", NULL) ||
           err_set(e, ERR_IO, "%s: no tokenizer.json in it", tokenizer_dir);
}
