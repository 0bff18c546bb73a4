#include "base/file.h"
#include "base/map.h"
#include "check/verify.h"
#include "convert/listing.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

void verify_fail(verify *v, const char *file, const char *what, const char *expected, const char *found) {
    check_manifest *r = v->r;
    r->bad = arena_grow(v->a, r->bad, r->n_bad, &r->cap_bad, r->n_bad + 1, sizeof *r->bad);
    r->bad[r->n_bad++] = (check_contradiction){arena_str(v->a, file), arena_str(v->a, what),
                                               arena_str(v->a, expected), arena_str(v->a, found)};
}

/* A value as the document has it, shortened. */
static const char *shown(const verify *v, const json *j) {
    if (!j) return "nothing";
    str s = {0};
    if (j->kind == JSON_STRING)
        str_add(&s, j->s, strlen(j->s));
    else
        json_canonical(&s, j);
    const char *text = arena_printf(v->a, "%.100s", str_get(&s));
    str_free(&s);
    return text;
}

const json *verify_member(verify *v, const json *o, const char *key, json_kind kind) {
    const json *m = json_get(o, key);
    v->r->statements++;
    if (m && m->kind == kind) return m;
    verify_fail(v, v->r->document, key, json_kind_name(kind), m ? json_kind_name(m->kind) : "nothing");
    return NULL;
}

void verify_int(verify *v, const char *file, const json *o, const char *key, int64_t is) {
    const json *m = verify_member(v, o, key, JSON_INT);
    if (m && m->i != is) verify_fail(v, file, key, shown(v, m), arena_printf(v->a, "%" PRId64, is));
}

void verify_text(verify *v, const char *file, const json *o, const char *key, const char *is) {
    const json *m = verify_member(v, o, key, is ? JSON_STRING : JSON_NULL);
    if (m && is && (strlen(is) != m->len || strcmp(m->s, is))) verify_fail(v, file, key, shown(v, m), is);
}

bool verify_digest(verify *v, const json *o, const char *key) {
    const json *m = json_get(o, key);
    bool hex = m && m->kind == JSON_STRING && m->len == 64 && strspn(m->s, "0123456789abcdef") == 64;
    v->r->statements++;
    if (!hex && !(m && m->kind == JSON_NULL))
        verify_fail(v, v->r->document, key, "null or 64 hexadecimal digits", shown(v, m));
    return hex;
}

void verify_number(verify *v, const char *file, const json *o, const char *key, double is) {
    const json *m = json_get(o, key);
    v->r->statements++;
    if (m && (m->kind == JSON_INT || m->kind == JSON_REAL) && fabs(m->d - is) < 1e-4) return;
    str found = {0};
    str_json_double(&found, round(is * 1e4) / 1e4);
    verify_fail(v, file, key, shown(v, m), str_get(&found));
    str_free(&found);
}

bool verify_path(verify *v, const char *path, bool up) {
    const char *p = up && !strncmp(path, "../", 3) ? path + 3 : path;
    for (size_t n;; p += n + 1) {
        n = strcspn(p, "/");
        bool bad = !n || (n <= 2 && !strncmp(p, "..", n));
        if (bad) verify_fail(v, v->r->document, "path", "a relative path without .. parts", path);
        if (bad || !p[n]) return !bad;
    }
}

static void verify_file(verify *v, const json *stated, const listed_file *f) {
    v->r->files++;
    v->r->bytes += f->bytes;
    verify_int(v, f->path, stated, "bytes", (int64_t)f->bytes);
    verify_text(v, f->path, stated, "sha256", f->sha256);
}

uint64_t verify_files(verify *v, const json *owner, const char *below) {
    listing l;
    err e = {0};
    const json *list = verify_member(v, owner, "files", JSON_ARRAY);
    if (!list) return 0;
    if (!file_exists(arena_printf(v->a, "%s/%s", v->dir, below))) {
        verify_fail(v, below, "files", arena_printf(v->a, "%u", list->len), "nothing");
        return 0;
    }
    if (!listing_make(&l, v->a, v->dir, below, &e)) {
        verify_fail(v, below, "files", "files that can be read", e.msg);
        return 0;
    }
    map *at = map_new(v->a, l.n);
    bool *seen = ARENA_ARRAY(v->a, bool, l.n + 1);
    for (size_t i = 0; i < l.n; i++) map_add(at, l.file[i].path, strlen(l.file[i].path), (uint32_t)i);
    JSON_EACH(f, list) {
        const json *path = verify_member(v, f, "path", JSON_STRING);
        uint32_t i = path ? map_get(at, path->s, path->len) : MAP_NONE;
        if (path && i == MAP_NONE) verify_fail(v, shown(v, path), "file", "listed", "nothing");
        if (i == MAP_NONE) continue;
        if (seen[i]) verify_fail(v, l.file[i].path, "file", "listed once", "listed twice");
        seen[i] = true;
        verify_file(v, f, &l.file[i]);
    }
    for (size_t i = 0; i < l.n; i++)
        if (!seen[i])
            verify_fail(v, l.file[i].path, "file", "not listed",
                        arena_printf(v->a, "%" PRIu64 " bytes", l.file[i].bytes));
    return l.bytes;
}

void verify_tokenizer(verify *v) {
    const json *t = json_get(v->j, "tokenizer");
    if (t && t->kind == JSON_NULL) {
        if (file_exists(arena_printf(v->a, "%s/Tokenizer", v->dir)))
            verify_fail(v, "Tokenizer", "tokenizer", "null", "a directory");
        return;
    }
    const json *path =
        verify_member(v, verify_member(v, v->j, "tokenizer", JSON_OBJECT), "path", JSON_STRING);
    if (path && verify_path(v, path->s, false)) verify_files(v, t, path->s);
}

/* Whether the ids hold this one. */
static bool holds(const json *ids, int64_t id) {
    JSON_EACH(i, ids) if (i->kind == JSON_INT && i->i == id) return true;
    return false;
}

/* Ids of the vocabulary, each once; those of the tokenizer's generation_config.json are among them. */
void verify_stop_ids(verify *v) {
    static const char file[] = "Tokenizer/generation_config.json";
    const json *ids = verify_member(v, v->j, "stop_ids", JSON_ARRAY);
    int64_t vocab = json_int(json_get(v->j, "model"), "vocab_size", INT64_MAX);
    JSON_EACH(i, ids) {
        v->r->statements++;
        if (i->kind != JSON_INT || i->i < 0 || i->i >= vocab)
            verify_fail(v, v->r->document, "stop_ids", arena_printf(v->a, "ids below %" PRId64, vocab),
                        shown(v, i));
        for (const json *k = ids->child; k != i; k = k->next)
            if (k->kind == JSON_INT && k->i == i->i)
                verify_fail(v, v->r->document, "stop_ids", "each id once",
                            arena_printf(v->a, "%s twice", shown(v, i)));
    }
    err ignored = {0}; /* a broken file is named by its digest */
    const char *path = arena_printf(v->a, "%s/%s", v->dir, file);
    const json *config = file_exists(path) ? json_object_file(v->a, path, &ignored) : NULL;
    const json *eos = json_get(config, "eos_token_id");
    const json *first = eos && eos->kind == JSON_ARRAY ? eos->child : eos;
    for (const json *i = first; i; i = eos->kind == JSON_ARRAY ? i->next : NULL)
        if (i->kind == JSON_INT && ids && !holds(ids, i->i))
            verify_fail(v, v->r->document, "stop_ids", arena_printf(v->a, "%s of %s", shown(v, i), file),
                        shown(v, ids));
}
