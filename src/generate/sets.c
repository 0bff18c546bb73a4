#include "generate/sets.h"
#include "base/file.h"
#include "base/json.h"
#include "generate/pattern.h"
#include "generate/values.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".mlpackage"

/* ---- what lies there ---- */

typedef struct {
    const char **s;
    size_t n, cap;
} names;

static void add(names *l, arena *a, const char *name) {
    l->s = arena_grow(a, l->s, l->n, &l->cap, l->n + 1, sizeof *l->s);
    l->s[l->n++] = arena_str(a, name);
}

static int by_text(const void *x, const void *y) {
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static bool has_suffix(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && !strcmp(name + n - m, suffix);
}

static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *directory_of(arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    return !slash ? "." : slash == path ? "/" : arena_strn(a, path, (size_t)(slash - path));
}

void set_scan(set_directory *s, arena *a, const char *path, bool is_package) {
    names packages = {0}, others = {0};
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    path = arena_strn(a, path, n);
    *s = (set_directory){.dir = is_package ? directory_of(a, path) : path,
                         .lone = is_package ? last_name(path) : NULL};
    DIR *d = opendir(s->dir);
    for (struct dirent *f; d && (f = readdir(d));) {
        bool package = has_suffix(f->d_name, SUFFIX);
        if (*f->d_name == '.' || (package && s->lone && strcmp(f->d_name, s->lone) != 0)) continue;
        add(package ? &packages : &others, a, f->d_name);
    }
    if (d) closedir(d);
    if (packages.n) qsort(packages.s, packages.n, sizeof *packages.s, by_text);
    if (others.n) qsort(others.s, others.n, sizeof *others.s, by_text);
    s->name = packages.s, s->n_name = packages.n;
    s->other = others.s, s->n_other = others.n;
}

/* ---- the metadata file ---- */

static void lack(str *lacks, const char *what) {
    str_printf(lacks, "%s%s", lacks->len ? ", " : "", what);
}

/* Absent counts as null, and as false. */
static bool is_equal(const json *want, const json *got) {
    if (want->kind == JSON_NULL) return !got;
    if (want->kind == JSON_BOOL && !want->i && !got) return true;
    if (!got) return false;
    if (want->kind == JSON_STRING) return json_is(got, want->s);
    bool numbers = (want->kind == JSON_INT || want->kind == JSON_REAL) &&
                   (got->kind == JSON_INT || got->kind == JSON_REAL);
    return numbers ? want->d == got->d
                   : want->kind == JSON_BOOL && got->kind == JSON_BOOL && want->i == got->i;
}

static bool check_metadata(set_parts *p, arena *a, const set_directory *s, const description *d,
                           const json **metadata, str *lacks) {
    err e = {0};
    const json *j = *metadata = d->metadata ? values_file(a, s->dir, d->metadata, &e) : NULL;
    if (e.code) lack(lacks, e.msg);
    if (!j) {
        if (d->required && !e.code) lack(lacks, d->metadata);
        return !e.code && !d->required;
    }
    for (size_t i = 0; i < d->holds.n; i++)
        if (!values_key(j, d->holds.s[i]))
            lack(lacks, arena_printf(a, "%s in %s", d->holds.s[i], d->metadata));
    JSON_EACH(x, d->equals) {
        if (is_equal(x, values_key(j, x->key))) continue;
        str text = {0};
        json_canonical(&text, x);
        lack(lacks, arena_printf(a, "%s %s in %s", x->key, str_get(&text), d->metadata));
        str_free(&text);
    }
    p->certain = !lacks->len;
    return p->certain;
}

/* ---- packages ---- */

typedef struct {
    const char *name;
    const char *stem; /* without .mlpackage */
    size_t pattern;
    pattern_match m;
} candidate;

/* Whether two names belong to one set: all but the index is the same. */
static bool together(const candidate *x, const candidate *y) {
    if (x->pattern != y->pattern || x->m.n != y->m.n || x->m.n_star != y->m.n_star) return false;
    for (size_t i = 0; i < x->m.n_star; i++)
        if (x->m.star[i].len != y->m.star[i].len ||
            strncmp(x->m.star[i].s, y->m.star[i].s, x->m.star[i].len) != 0)
            return false;
    return true;
}

static const char *stem_of(arena *a, const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, SUFFIX) || !strcmp(dot, ".mlmodelc"))
               ? arena_strn(a, name, (size_t)(dot - name))
               : name;
}

/* All that fit a pattern; those of an earlier pattern come first. */
static candidate *candidates(arena *a, const set_directory *s, const describe_package *p, size_t *n) {
    candidate *c = ARENA_ARRAY(a, candidate, s->n_name);
    *n = 0;
    for (size_t k = 0; k < p->files.n; k++)
        for (size_t i = 0; i < s->n_name; i++) {
            candidate x = {.name = s->name[i], .stem = stem_of(a, s->name[i]), .pattern = k};
            bool known = false;
            for (size_t j = 0; j < *n; j++) known |= c[j].name == x.name;
            if (!known && pattern_fits(p->files.s[k], x.stem, &x.m)) c[(*n)++] = x;
        }
    return c;
}

/* The one that the metadata file names (it may say .mlmodelc); else the first. */
static const candidate *chosen(arena *a, const candidate *c, size_t n, const describe_package *p,
                               const json *metadata, bool *named) {
    const json *name = p->named ? values_key(metadata, p->named) : NULL;
    *named = false;
    if (!name || name->kind != JSON_STRING) return c;
    const char *stem = stem_of(a, last_name(name->s));
    for (size_t i = 0; i < n; i++)
        if (!strcmp(c[i].stem, stem)) {
            *named = true;
            return &c[i];
        }
    return c;
}

static int by_index(const void *x, const void *y) {
    const candidate *a = x, *b = y;
    return (a->m.i > b->m.i) - (a->m.i < b->m.i);
}

/* Indices run on from 0 or 1, to the number that the names tell. */
static bool is_complete(const candidate *c, size_t n, const char *pattern, str *lacks, arena *a) {
    long first = n ? c[0].m.i : 0;
    if (!pattern_is_indexed(pattern)) return n == 1;
    for (size_t i = 0; i < n; i++)
        if (c[i].m.i != first + (long)i || first > 1) {
            lack(lacks, arena_printf(a, "%s number %ld", pattern, first > 1 ? 1 : first + (long)i));
            return false;
        }
    if (c[0].m.n < 0 || (long)n == c[0].m.n) return true;
    lack(lacks, arena_printf(a, "%s number %ld", pattern, first + (long)n));
    return false;
}

static bool arrange_role(arena *a, const set_directory *s, const describe_package *p, const json *metadata,
                         candidate **out, size_t *n_out, str *lacks) {
    size_t n, picked = 0;
    candidate *c = candidates(a, s, p, &n);
    bool named;
    *n_out = 0;
    if (!n) {
        if (p->optional) return true;
        str text = {0};
        for (size_t k = 0; k < p->files.n; k++)
            str_printf(&text, "%s%s", k ? " or " : "a package ", p->files.s[k]);
        lack(lacks, str_get(&text));
        str_free(&text);
        return false;
    }
    candidate first = *chosen(a, c, n, p, metadata, &named);
    for (size_t i = 0; i < n; i++)
        if (together(&first, &c[i]))
            c[picked++] = c[i];
        else if (!named && c[i].pattern == first.pattern) {
            lack(lacks, arena_printf(a, "one of %s and %s alone", first.name, c[i].name));
            return false;
        }
    qsort(c, picked, sizeof *c, by_index);
    *out = c;
    *n_out = picked;
    return is_complete(c, picked, p->files.s[first.pattern], lacks, a);
}

bool set_arrange(set_parts *p, arena *a, const set_directory *s, const description *d, str *lacks) {
    *p = (set_parts){0};
    const json *metadata;
    const char **path = ARENA_ARRAY(a, const char *, s->n_name * d->n_package + 1);
    size_t *role = ARENA_ARRAY(a, size_t, s->n_name * d->n_package + 1);
    bool ok = check_metadata(p, a, s, d, &metadata, lacks);
    for (size_t r = 0; ok && r < d->n_package; r++) {
        candidate *c;
        size_t n;
        ok = arrange_role(a, s, &d->package[r], metadata, &c, &n, lacks);
        for (size_t i = 0; ok && i < n; i++) {
            path[p->n] = arena_printf(a, "%s/%s", s->dir, c[i].name);
            role[p->n++] = r;
        }
    }
    for (size_t i = 0; ok && i < d->table_files.n; i++)
        if (!file_exists(arena_printf(a, "%s/%s", s->dir, d->table_files.s[i])) &&
            i + 1 == d->table_files.n) {
            lack(lacks, d->table_files.s[i]);
            ok = false;
        } else if (file_exists(arena_printf(a, "%s/%s", s->dir, d->table_files.s[i])))
            break;
    p->path = path;
    p->role = role;
    return ok;
}
