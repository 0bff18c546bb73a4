#define _GNU_SOURCE /* getline */
#include "base/file.h"
#include "base/json.h"
#include "cli/options.h"
#include "cli/output.h"
#include "text/detokenize.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    tokenizer *t;
    arena *a;        /* emptied after each line */
    token_list ids;  /* of the line */
    str text, piece; /* the answer, and a part of it */
    const char *where;
} converter;

/* {"text": ...} -> {"ids":[...]} */
static bool encode_line(converter *c, const json *line, err *e) {
    const json *text = json_get_kind(line, "text", JSON_STRING);
    if (!text) return err_set(e, ERR_FORMAT, "%s: expected an object with a string \"text\"", c->where);
    c->ids.n = 0;
    if (!tokenizer_encode(c->t, text->s, text->len, TOKENIZER_TEMPLATE, &c->ids, e))
        return err_where(e, "%s", c->where);
    str_adds(&c->text, "{\"ids\":[");
    for (size_t i = 0; i < c->ids.n; i++) str_printf(&c->text, i ? ",%d" : "%d", (int)c->ids.ids[i]);
    str_adds(&c->text, "]}\n");
    return true;
}

static void add_piece(converter *c) {
    str_json_string(&c->text, str_get(&c->piece), c->piece.len);
    str_clear(&c->piece);
}

/* {"ids":[...], "skip_special_tokens":...} -> {"pieces":[...],"flush":...}: one piece an id, "" while a
 * character is not complete. */
static bool decode_line(converter *c, const json *line, err *e) {
    const json *ids = json_get_kind(line, "ids", JSON_ARRAY), *skip = json_get(line, "skip_special_tokens");
    if (!ids) return err_set(e, ERR_FORMAT, "%s: expected an object with an array \"ids\"", c->where);
    if (skip && skip->kind != JSON_BOOL && skip->kind != JSON_NULL)
        return err_set(e, ERR_FORMAT, "%s: \"skip_special_tokens\" must be true or false", c->where);
    detokenizer d;
    detokenizer_begin(&d, c->t, json_bool(line, "skip_special_tokens", false));
    str_adds(&c->text, "{\"pieces\":[");
    size_t n = 0;
    JSON_EACH(id, ids) {
        if (id->kind != JSON_INT || id->i < INT32_MIN || id->i > INT32_MAX)
            return err_set(e, ERR_FORMAT, "%s: ids[%zu] is not a token id", c->where, n);
        if (n++) str_addc(&c->text, ',');
        detokenizer_push(&d, (int32_t)id->i, &c->piece);
        add_piece(c);
    }
    str_adds(&c->text, "],\"flush\":");
    detokenizer_flush(&d, &c->piece);
    add_piece(c);
    str_adds(&c->text, "}\n");
    return true;
}

/* One answer a line, handed over at once: the other side may be waiting for it. */
static bool convert_lines(converter *c, bool decode, err *e) {
    char *line = NULL;
    size_t cap = 0, number = 0;
    bool ok = true;
    errno = 0;
    ssize_t n = 0;
    for (; ok && (n = getline(&line, &cap, stdin)) >= 0; errno = 0) {
        c->where = arena_printf(c->a, "standard input, line %zu", ++number);
        const json *object = json_parse(c->a, c->where, line, (size_t)n, e);
        ok = object && (decode ? decode_line : encode_line)(c, object, e);
        if (ok && !(cli_out(c->text.s, c->text.len) && cli_flush())) break;
        str_clear(&c->text);
        arena_reset(c->a);
    }
    if (ok && n < 0 && !feof(stdin))
        ok = /* no memory for the line too */
            err_errno(e, "standard input");
    free(line); /* getline()'s */
    return ok;
}

/* DIR itself, or the directory Tokenizer in an artifact or beside a package. */
static tokenizer *load(arena *a, const char *dir, err *e) {
    bool package = file_exists(arena_printf(a, "%s/Manifest.json", dir));
    const char *inside = arena_printf(a, "%s/%sTokenizer", dir, package ? "../" : "");
    bool here = file_exists(arena_printf(a, "%s/tokenizer.json", dir)) || !file_is_dir(inside);
    return tokenizer_load(here ? dir : inside, e);
}

int cmd_tokenize(const cli_args *a) {
    if (!cli_flag(a, "json-lines")) return cli_usage(a, "--json-lines is missing");
    err e = {0};
    converter c = {.a = arena_new()};
    c.t = load(c.a, cli_arg(a, "DIR"), &e);
    if (!c.t) {
        arena_free(c.a);
        return cli_fail(&e);
    }
    bool ok = convert_lines(&c, cli_flag(a, "decode"), &e);
    str_free(&c.text);
    str_free(&c.piece);
    token_list_free(&c.ids);
    arena_free(c.a);
    tokenizer_free(c.t);
    return ok ? CLI_OK : cli_fail(&e);
}
