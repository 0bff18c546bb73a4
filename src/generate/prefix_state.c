#include "generate/positional.h"
#include "generate/prefix_parts.h"
#include <string.h>

#define PAGE 4096

/* ---- which states there are ---- */

/* A cache's rows, where the type lets them be told apart. */
static void as_cache(prefix_state *s, const ir_type *t, int axis) {
    unsigned bits = dtype_bits((ir_dtype)t->dtype);
    if (axis < 0 || bits < 8 || bits % 8) return;
    s->outer = 1;
    s->row = bits / 8;
    s->positions = (size_t)t->dim[axis];
    for (int i = 0; i < axis; i++) s->outer *= (size_t)t->dim[i];
    for (int i = axis + 1; i < t->rank; i++) s->row *= (size_t)t->dim[i];
}

static void add(prefix_cache *c, prefix_state s) {
    size_t at = c->n_state++;
    if (s.row) { /* caches come first */
        c->state[at] = c->state[c->n_cache];
        at = c->n_cache++;
    }
    c->state[at] = s;
}

/* Whether an earlier package has the state too, and it is one. */
static bool is_shared(const lm *m, size_t package, const char *name) {
    if (m->form.d->states != STATES_SHARED) return false;
    for (size_t i = 0; i < package; i++)
        for (size_t k = 0; k < rt_model_state_count(m->model[i]); k++)
            if (!strcmp(rt_model_state_name(m->model[i], k), name)) return true;
    return false;
}

bool prefix_find_states(prefix_cache *c, err *e) {
    const lm *m = c->m;
    size_t n = m->form.n_carried;
    for (size_t i = 0; i < m->n_model; i++) n += rt_model_state_count(m->model[i]);
    if (!(c->state = mem_try(n + 1, sizeof *c->state)))
        return err_set(e, ERR_MEMORY, "no memory for a list of %zu states", n);
    for (size_t i = 0; i < m->n_model; i++)
        for (size_t k = 0; k < rt_model_state_count(m->model[i]); k++) {
            ir_type t = rt_model_state_type(m->model[i], k);
            const char *name = rt_model_state_name(m->model[i], k);
            prefix_state s = {.package = i, .index = k, .bytes = (size_t)ir_type_bytes(&t)};
            if (is_shared(m, i, name)) continue;
            as_cache(&s, &t, positional_axis(m, i, name));
            add(c, s);
        }
    for (size_t i = 0; i < m->form.n_carried; i++)
        add(c, (prefix_state){
                   .index = i, .carried = true, .bytes = (size_t)ir_type_bytes(&m->form.carried[i].type)});
    return true;
}

char *prefix_memory(const prefix_cache *c, decoder *d, size_t i, bool write, err *e) {
    const prefix_state *s = &c->state[i];
    if (s->carried) return decoder_carried(d, s->index);
    return rt_state_memory(decoder_session(d, s->package), s->index, write, e);
}

/* ---- caches ---- */

bool prefix_clear(const prefix_cache *c, decoder *d, size_t from, err *e) {
    for (size_t i = 0; i < c->n_cache; i++) {
        const prefix_state *s = &c->state[i];
        size_t to = (size_t)decoder_touched(d) < s->positions ? (size_t)decoder_touched(d) : s->positions;
        if (from >= to) continue;
        char *p = prefix_memory(c, d, i, true, e);
        if (!p) return false;
        for (size_t o = 0; o < s->outer; o++)
            memset(p + (o * s->positions + from) * s->row, 0, (to - from) * s->row);
    }
    return true;
}

size_t prefix_rows_bytes(const prefix_cache *c, size_t n) {
    size_t bytes = sizeof(prefix_rows) + n;
    for (size_t i = 0; i < c->n_cache; i++) bytes += c->state[i].outer * c->state[i].row * n + sizeof(char *);
    return bytes;
}

void prefix_rows_drop(const prefix_cache *c, prefix_rows *r) {
    if (!r || --r->refs) return;
    for (size_t i = 0; r->data && i < c->n_cache; i++) mem_free(r->data[i]);
    mem_free(r->data);
    mem_free(r->cut);
    mem_free(r);
}

prefix_rows *prefix_rows_new(const prefix_cache *c, size_t n) {
    prefix_rows *r = mem_try(1, sizeof *r);
    if (!r) return NULL;
    *r = (prefix_rows){.refs = 1, .n = n, .bytes = prefix_rows_bytes(c, n)};
    r->cut = mem_try(n + 1, 1);
    r->data = mem_try(c->n_cache + 1, sizeof *r->data);
    bool ok = r->cut && r->data;
    for (size_t i = 0; ok && i < c->n_cache; i++)
        ok = (r->data[i] = mem_try(c->state[i].outer * c->state[i].row * n + 1, 1));
    if (ok) return r;
    prefix_rows_drop(c, r);
    return NULL;
}

prefix_rows *prefix_rows_copy(const prefix_cache *c, decoder *d, size_t n) {
    prefix_rows *r = prefix_rows_new(c, n);
    bool ok = r != NULL;
    err none = {0};
    for (size_t i = 0; ok && i < c->n_cache; i++) {
        const prefix_state *s = &c->state[i];
        const char *from = prefix_memory(c, d, i, false, &none);
        ok = from;
        for (size_t o = 0; ok && o < s->outer; o++)
            memcpy(r->data[i] + o * n * s->row, from + o * s->positions * s->row, n * s->row);
    }
    if (ok && n) memcpy(r->cut, decoder_cuts(d), n);
    if (ok) return r;
    if (r) prefix_rows_drop(c, r);
    return NULL;
}

bool prefix_rows_put(const prefix_cache *c, decoder *d, const prefix_rows *r, size_t n, err *e) {
    for (size_t i = 0; i < c->n_cache; i++) {
        const prefix_state *s = &c->state[i];
        char *to = prefix_memory(c, d, i, true, e);
        if (!to) return false;
        for (size_t o = 0; o < s->outer; o++)
            memcpy(to + o * s->positions * s->row, r->data[i] + o * r->n * s->row, n * s->row);
    }
    return prefix_clear(c, d, n, e);
}

/* ---- the others ---- */

static bool is_zero(const char *p, size_t n) {
    return !n || (!*p && !memcmp(p, p + 1, n - 1));
}

/* A copy of what is not zero; the rest takes no memory where the block is large. */
static char *copy_filled(const char *from, size_t n, size_t *bytes) {
    char *to = mem_try(n + 1, 1);
    for (size_t i = 0; to && i < n; i += PAGE) {
        size_t k = n - i < PAGE ? n - i : PAGE;
        if (is_zero(from + i, k)) continue;
        memcpy(to + i, from + i, k);
        *bytes += k;
    }
    return to;
}

void prefix_others_free(const prefix_cache *c, char **data) {
    for (size_t i = c->n_cache; data && i < c->n_state; i++) mem_free(data[i - c->n_cache]);
    mem_free(data);
}

char **prefix_others_copy(const prefix_cache *c, decoder *d, size_t *bytes) {
    size_t n = c->n_state - c->n_cache;
    char **data = mem_try(n + 1, sizeof *data);
    bool ok = data != NULL;
    err none = {0};
    *bytes = (n + 1) * sizeof *data;
    for (size_t i = 0; ok && i < n; i++) {
        const char *from = prefix_memory(c, d, c->n_cache + i, false, &none);
        ok = from && (data[i] = copy_filled(from, c->state[c->n_cache + i].bytes, bytes));
    }
    if (ok) return data;
    prefix_others_free(c, data);
    return NULL;
}

bool prefix_others_put(const prefix_cache *c, decoder *d, char **data, err *e) {
    for (size_t i = c->n_cache; i < c->n_state; i++) {
        char *to = prefix_memory(c, d, i, true, e);
        if (!to) return false;
        memcpy(to, data[i - c->n_cache], c->state[i].bytes);
    }
    return true;
}
