#define _GNU_SOURCE /* getc_unlocked */
#include "cli/input.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)256 << 20) /* bytes: some devices never end */

const char *cli_input_name(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

static bool read_file(str *out, const char *path, err *e) {
    bool in = !strcmp(path, "-");
    FILE *f = in ? stdin : fopen(path, "rb");
    if (!f) return err_errno(e, "%s", path);
    char part[65536];
    size_t n;
    while (out->len <= MOST && (n = fread(part, 1, sizeof part, f))) str_add(out, part, n);
    bool ok = !ferror(f) || err_errno(e, "%s", cli_input_name(path));
    if (out->len > MOST) ok = err_set(e, ERR_LIMIT, "%s: more than 256 MiB of text", cli_input_name(path));
    if (!in) fclose(f);
    return ok;
}

bool cli_read_text(str *out, const char *path, err *e) {
    bool ok = read_file(out, path, e);
    size_t valid = ok ? utf8_valid(str_get(out), out->len) : 0;
    if (ok && valid < out->len)
        ok = err_set(e, ERR_FORMAT, "%s: not UTF-8 at byte %zu", cli_input_name(path), valid);
    if (!ok) str_free(out);
    return ok;
}

bool cli_read_line(str *line, err *e) {
    int c = 0;
    str_clear(line);
    while (line->len < MOST && c != '\n' && (c = getc_unlocked(stdin)) != EOF) str_addc(line, (char)c);
    if (line->len == MOST && c != '\n')
        return err_set(e, ERR_LIMIT, "standard input: a line of more than 256 MiB");
    if (c == EOF && ferror(stdin)) return err_errno(e, "standard input");
    return line->len > 0;
}

static bool ids_from_json(const str *text, const char *path, int32_t **ids, size_t *n, err *e) {
    arena *a = arena_new();
    const json *j = json_parse(a, path, text->s, text->len, e);
    bool ok = j != NULL;
    if (ok && j->kind != JSON_ARRAY) ok = err_set(e, ERR_FORMAT, "%s: not a JSON array of ids", path);
    *ids = ok ? mem_alloc((j->len + (size_t)1) * sizeof **ids) : NULL;
    for (const json *c = ok ? j->child : NULL; ok && c; c = c->next) {
        if (c->kind != JSON_INT || c->i < 0 || c->i > INT32_MAX)
            ok = err_set(e, ERR_FORMAT, "%s: element %zu is not a token id", path, *n);
        else
            (*ids)[(*n)++] = (int32_t)c->i;
    }
    arena_free(a);
    return ok;
}

static bool ids_from_words(str *text, const char *path, int32_t **ids, size_t *n, err *e) {
    *ids = mem_alloc((text->len / 2 + 1) * sizeof **ids);
    const char *space = " \t\r\n";
    for (char *w = text->s + strspn(text->s, space); *w;) {
        size_t len = strcspn(w, space), skip = len + strspn(w + len, space);
        char *next = w + skip;
        int64_t id;
        w[len] = 0;
        if (!str_to_int64(w, &id) || id < 0 || id > INT32_MAX)
            return err_set(e, ERR_FORMAT, "%s: '%.40s' is not a token id", path, w);
        (*ids)[(*n)++] = (int32_t)id;
        w = next;
    }
    return true;
}

bool cli_read_ids(const char *path, int32_t **ids, size_t *n, err *e) {
    str text = {0};
    *ids = NULL;
    *n = 0;
    bool ok = read_file(&text, path, e);
    path = cli_input_name(path);
    str_adds(&text, "");
    char first = text.s[strspn(text.s, " \t\r\n")];
    if (ok && first != '[' && first != '{') {
        if (memchr(text.s, 0, text.len)) ok = err_set(e, ERR_FORMAT, "%s: not a list of token ids", path);
        ok = ok && ids_from_words(&text, path, ids, n, e);
    } else {
        ok = ok && ids_from_json(&text, path, ids, n, e);
    }
    str_free(&text);
    if (ok) return true;
    mem_free(*ids);
    *ids = NULL;
    *n = 0;
    return false;
}
