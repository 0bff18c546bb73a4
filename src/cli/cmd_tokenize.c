#include "base/file.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "text/chat.h"
#include "text/detokenize.h"
#include <stdio.h>
#include <string.h>

typedef struct converter {
    tokenizer *t;
    arena *a;        /* emptied after each line */
    token_list ids;  /* of the line */
    str text, piece; /* the answer, and a part of it */
    const char *where;
    bool (*line)(struct converter *c, const json *line, err *e);
    /* --chat */
    char *dir;           /* with the tokenizer */
    const char *name;    /* --template */
    chat_template *chat; /* that of a line which names no family; opened when there is one */
    chat_prompt prompt;
    bool allow_special;
} converter;

static void add_ids(converter *c) {
    str_adds(&c->text, "\"ids\":[");
    for (size_t i = 0; i < c->ids.n; i++) str_printf(&c->text, i ? ",%d" : "%d", (int)c->ids.ids[i]);
    str_adds(&c->text, "]}\n");
}

/* {"text": ...} -> {"ids":[...]} */
static bool encode_line(converter *c, const json *line, err *e) {
    const json *text = json_get_kind(line, "text", JSON_STRING);
    if (!text) return err_set(e, ERR_FORMAT, "%s: expected an object with a string \"text\"", c->where);
    c->ids.n = 0;
    if (!tokenizer_encode(c->t, text->s, text->len, TOKENIZER_TEMPLATE, &c->ids, e))
        return err_where(e, "%s", c->where);
    str_addc(&c->text, '{');
    add_ids(c);
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

static bool render(converter *c, const chat_template *chat, const json *line, err *e) {
    const json *options = json_get(line, "options");
    chat_options o;
    if (options && options->kind != JSON_OBJECT && options->kind != JSON_NULL)
        return err_set(e, ERR_FORMAT, "options: expected an object");
    c->ids.n = 0;
    return chat_options_read(&o, options, e) &&
           chat_render(chat, json_get(line, "messages"), &o, &c->prompt, e) &&
           chat_encode(&c->prompt, c->t, c->allow_special, &c->ids, e);
}

/* The template that a line asks for. *own: it is closed after the line. */
static chat_template *line_template(converter *c, const json *line, bool *own, err *e) {
    const char *family = c->name ? NULL : json_str(line, "family", NULL);
    *own = family != NULL;
    if (family) return chat_open(NULL, family, e);
    if (c->chat) return c->chat;
    c->chat = chat_open(c->dir, c->name, e);
    if (c->chat && chat_note(c->chat)) cli_error("warning: %s", chat_note(c->chat));
    return c->chat;
}

/* {"family": ..., "messages": [...], "options": {...}} -> {"text": ..., "ids": [...]}, or {"error": ...}
 * where these can't be rendered. */
static bool chat_line(converter *c, const json *line, err *e) {
    if (line->kind != JSON_OBJECT) return err_set(e, ERR_FORMAT, "%s: expected an object", c->where);
    err failed = {0};
    bool own;
    chat_template *chat = line_template(c, line, &own, &failed);
    if (chat && render(c, chat, line, &failed)) {
        str_adds(&c->text, "{\"text\":");
        str_json_string(&c->text, str_get(&c->prompt.text), c->prompt.text.len);
        str_addc(&c->text, ',');
        add_ids(c);
    } else {
        str_adds(&c->text, "{\"error\":");
        str_json_string(&c->text, failed.msg, strlen(failed.msg));
        str_adds(&c->text, "}\n");
    }
    if (own) chat_close(chat);
    return true;
}

/* One answer a line, handed over at once: the other side may be waiting for it. */
static bool convert_lines(converter *c, err *e) {
    str line = {0};
    bool ok = true;
    for (size_t number = 1; ok && cli_read_line(&line, e); number++) {
        c->where = arena_printf(c->a, "standard input, line %zu", number);
        const json *object = json_parse(c->a, c->where, line.s, line.len, e);
        ok = object && c->line(c, object, e);
        if (ok && !(cli_out(c->text.s, c->text.len) && cli_flush())) break;
        str_clear(&c->text);
        arena_reset(c->a);
    }
    str_free(&line);
    return !e->code;
}

/* DIR itself, or the directory Tokenizer in an artifact or beside a package. */
static char *tokenizer_dir(arena *a, const char *dir) {
    bool package = file_exists(arena_printf(a, "%s/Manifest.json", dir));
    char *inside = arena_printf(a, "%s/%sTokenizer", dir, package ? "../" : "");
    bool here = file_exists(arena_printf(a, "%s/tokenizer.json", dir)) || !file_is_dir(inside);
    return here ? arena_str(a, dir) : inside;
}

static void converter_free(converter *c) {
    str_free(&c->text);
    str_free(&c->piece);
    token_list_free(&c->ids);
    chat_prompt_free(&c->prompt);
    chat_close(c->chat);
    arena_free(c->a);
    tokenizer_free(c->t);
}

int cmd_tokenize(const cli_args *a) {
    bool chat = cli_flag(a, "chat"), decode = cli_flag(a, "decode");
    if (!cli_flag(a, "json-lines")) return cli_usage(a, "--json-lines is missing");
    if (chat && decode) return cli_usage(a, "--chat and --decode exclude each other");
    if (!chat && cli_text(a, "template")) return cli_usage(a, "--template needs --chat");
    if (!chat && cli_flag(a, "allow-special")) return cli_usage(a, "--allow-special needs --chat");
    err e = {0};
    arena *names = arena_new();
    converter c = {.a = arena_new(),
                   .dir = tokenizer_dir(names, cli_arg(a, "DIR")),
                   .name = cli_text(a, "template"),
                   .allow_special = cli_flag(a, "allow-special"),
                   .line = chat     ? chat_line
                           : decode ? decode_line
                                    : encode_line};
    c.t = tokenizer_load(c.dir, &e);
    bool ok = c.t && convert_lines(&c, &e);
    converter_free(&c);
    arena_free(names);
    return ok ? CLI_OK : cli_fail(&e);
}
