#include "checkpoint/gguf_set.h"
#include <inttypes.h>
#include <string.h>

enum { MAX_PARTS = 99999 };

const gguf_value *gguf_set_get(const gguf_set *s, const char *key) {
    return gguf_get(s->part[0], key);
}

const gguf_tensor *gguf_set_find(const gguf_set *s, const char *name) {
    const gguf_tensor *t = NULL;
    for (size_t i = 0; i < s->n_part && !t; i++) t = gguf_find(s->part[i], name);
    return t;
}

/* A whole number of a part's metadata; fallback when it is absent; -1 when it is no whole number. */
static int64_t number_of(const gguf *g, const char *key, int64_t fallback) {
    const gguf_value *v = gguf_get(g, key);
    int64_t n = fallback;
    return !v || (!v->array && gguf_int(v, 0, &n)) ? n : -1;
}

/* Path of part i (from 0) of n, made from the path of part 0; NULL: that is not called so. */
static const char *path_of_part(const gguf_set *s, int64_t i, int64_t n) {
    const char *end = arena_printf(s->a, "-%05d-of-%05d.gguf", 1, (int)n);
    size_t length = strlen(s->path), tail = strlen(end);
    if (length <= tail || strcmp(s->path + length - tail, end) != 0) return NULL;
    return arena_printf(s->a, "%.*s-%05d-of-%05d.gguf", (int)(length - tail), s->path, (int)i + 1, (int)n);
}

static bool open_part(gguf_set *s, const char *path, int64_t n, err *e) {
    gguf *g = gguf_open(path, e);
    if (!g) return false;
    int64_t at = (int64_t)s->n_part;
    s->part[s->n_part++] = g;
    if (number_of(g, "split.no", -1) != at || number_of(g, "split.count", -1) != n)
        return err_set(e, ERR_FORMAT,
                       "%s: is not part %" PRId64 " of %" PRId64 ": split.no or split.count differs", path,
                       at + 1, n);
    for (size_t i = 0; i < gguf_count(g); i++)
        for (size_t k = 0; k + 1 < s->n_part; k++)
            if (gguf_find(s->part[k], gguf_at(g, i)->name))
                return err_set(e, ERR_FORMAT, "%s: tensor %s is in %s too", path, gguf_at(g, i)->name,
                               gguf_path(s->part[k]));
    return true;
}

/* The parts behind the first, where there are any. */
static bool open_parts(gguf_set *s, gguf *first, err *e) {
    int64_t n = number_of(first, "split.count", 0), no = number_of(first, "split.no", 0);
    if (n < 0 || n > MAX_PARTS || no < 0 || (n ? no >= n : no > 0))
        return err_set(e, ERR_FORMAT, "%s: split.no and split.count are no part and number of parts",
                       s->path);
    s->part = ARENA_ARRAY(s->a, gguf *, (size_t)(n > 1 ? n : 1));
    s->part[s->n_part++] = first;
    if (no)
        return err_set(e, ERR_USAGE, "%s: is part %" PRId64 " of %" PRId64 ": give the first part", s->path,
                       no + 1, n);
    if (n > 1 && !path_of_part(s, 0, n))
        return err_set(e, ERR_USAGE,
                       "%s: is part 1 of %" PRId64
                       ", but its name does not end in -00001-of-%05d.gguf: where are the "
                       "others?",
                       s->path, n, (int)n);
    for (int64_t i = 1; i < n; i++)
        if (!open_part(s, path_of_part(s, i, n), n, e)) return false;
    for (size_t i = 0; i < s->n_part; i++) s->n_tensor += gguf_count(s->part[i]);
    int64_t all = number_of(first, "split.tensors.count", (int64_t)s->n_tensor);
    return n < 2 || all == (int64_t)s->n_tensor ||
           err_set(e, ERR_FORMAT,
                   "%s: its %" PRId64 " parts have %zu tensors, split.tensors.count says %" PRId64, s->path,
                   n, s->n_tensor, all);
}

static gguf_set *make(const char *path, gguf *first, err *e) {
    if (!first) return NULL;
    arena *a = arena_new();
    gguf_set *s = ARENA_NEW(a, gguf_set);
    s->a = a;
    s->path = arena_str(a, path);
    if (open_parts(s, first, e)) return s;
    if (!s->n_part) gguf_close(first);
    gguf_set_close(s);
    return NULL;
}

gguf_set *gguf_set_open(const char *path, err *e) {
    return make(path, gguf_open(path, e), e);
}

gguf_set *gguf_set_open_memory(const char *what, const void *data, size_t n, err *e) {
    return make(what, gguf_open_memory(what, data, n, e), e);
}

void gguf_set_close(gguf_set *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_part; i++) gguf_close(s->part[i]);
    arena_free(s->a);
}
