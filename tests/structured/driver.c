/* Grammars for scripts: one JSON object a line in, one out.
 *
 *   {"schema": S, "texts": [T, ...]}                  -> {"accepted": [true, ...]}   byte by byte, to the end
 *   {"schema": S, "tokenizer": DIR, "seed": N, "n": K, "steps": M} -> {"documents": [T or null, ...]}
 *       K texts of tokens drawn from the masks; null: none within M tokens
 *   {"tools": {"tools": [...], "xml": bool, "required": bool, "one": bool}} in place of "schema"
 *   "object": true: any object; "behind": as grammar_options
 *   -> {"error": message} where there is no grammar, or no token to go on by */
#define _POSIX_C_SOURCE 200809L
#include "base/json.h"
#include "generate/sampler.h"
#include "structured/matcher.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static grammar *grammar_of(const json *line, err *e) {
    grammar_options o = {.behind = json_str(line, "behind", NULL)};
    const json *tools = json_get(line, "tools");
    if (json_bool(line, "object", false)) return grammar_json_object(&o, e);
    if (!tools) return grammar_from_schema(json_get(line, "schema"), &o, e);
    grammar_tool tool[64];
    tools_options t = {.tool = tool,
                       .dialect = json_bool(tools, "xml", false) ? TOOLS_XML : TOOLS_JSON,
                       .choice = json_bool(tools, "required", false) ? TOOLS_REQUIRED : TOOLS_AUTO,
                       .one_call = json_bool(tools, "one", false),
                       .at = o};
    JSON_EACH(x, json_get(tools, "tools")) {
        if (t.n_tool == 64) break;
        tool[t.n_tool++] =
            (grammar_tool){json_str(x, "name", ""), json_get(x, "parameters"), json_bool(x, "loose", false)};
    }
    return grammar_tools(&t, e);
}

/* ---- texts ---- */

static vocabulary *no_tokens(err *e) {
    const uint8_t *s = (const uint8_t *)"x";
    size_t n = 1;
    return vocabulary_from_bytes(&s, &n, 1, NULL, 0, e);
}

static bool accepts(grammar *g, const vocabulary *v, const json *text) {
    err e = {0};
    matcher *m = matcher_new(g, v, &e);
    bool ok = true;
    for (uint32_t i = 0; ok && i < text->len; i++) ok = matcher_accept_bytes(m, text->s + i, 1);
    ok = ok && matcher_may_end(m);
    matcher_free(m);
    return ok;
}

static void judge(str *out, grammar *g, const json *texts) {
    err e = {0};
    vocabulary *v = no_tokens(&e);
    str_adds(out, "{\"accepted\":[");
    JSON_EACH(t, texts)
    str_printf(out, "%s%s", t == texts->child ? "" : ",", accepts(g, v, t) ? "true" : "false");
    str_adds(out, "]}\n");
    vocabulary_free(v);
}

/* ---- documents ---- */

static tokenizer *loaded;
static vocabulary *tokens;
static char loaded_dir[4096];

static bool load(const char *dir, err *e) {
    if (!strcmp(dir, loaded_dir)) return true;
    vocabulary_free(tokens);
    tokenizer_free(loaded);
    tokens = NULL;
    snprintf(loaded_dir, sizeof loaded_dir, "%s", dir);
    loaded = tokenizer_load(dir, e);
    if (!loaded) return false;
    size_t n;
    const int32_t *eos = tokenizer_eos(loaded, &n), end = tokenizer_find(loaded, "<|im_end|>", 10);
    tokens = vocabulary_new(loaded, n ? eos : &end, n ? n : 1, tokenizer_limit(loaded), e);
    return tokens;
}

/* Tokens that bring a text to its end: the more of it there is, the more of these are drawn. */
static bool is_closing(int32_t id) {
    size_t n;
    const uint8_t *s = tokenizer_bytes(loaded, id, &n);
    if (!s || tokenizer_is_special(loaded, id)) return true;
    return memchr("}]\">", s[n - 1], 4) && (n < 2 || s[n - 2] != '\\');
}

static int32_t draw(const uint32_t *bits, sampler_random *r, size_t step, size_t steps) {
    static int32_t all[1 << 20], closing[1 << 20];
    size_t n = 0, n_closing = 0;
    for (int32_t id = 0; id < vocabulary_limit(tokens); id++) {
        if (!(bits[id / 32] >> (id % 32) & 1)) continue;
        all[n++] = id;
        if (is_closing(id)) closing[n_closing++] = id;
    }
    bool close = n_closing && sampler_next(r) % steps < step + steps / 10;
    return close ? closing[sampler_next(r) % n_closing] : all[sampler_next(r) % n];
}

static bool document(str *out, grammar *g, sampler_random *r, size_t steps, err *e) {
    uint32_t *bits = malloc(vocabulary_words(tokens) * sizeof *bits);
    matcher *m = matcher_new(g, tokens, e);
    str text = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < steps && !matcher_ended(m); i++) {
        ok = matcher_mask(m, bits, e);
        if (!ok) break;
        int32_t id = draw(bits, r, i, steps);
        if (!matcher_accept(m, id))
            ok = err_set(e, ERR_INVALID, "token %d of the mask is not accepted", (int)id);
        size_t n;
        const uint8_t *s = tokenizer_bytes(loaded, id, &n);
        if (s && !matcher_ended(m)) str_add(&text, s, n);
    }
    if (ok && matcher_ended(m))
        str_json_string(out, str_get(&text), text.len);
    else
        str_adds(out, "null");
    str_free(&text);
    matcher_free(m);
    free(bits);
    return ok;
}

static void generate(str *out, grammar *g, const json *line, err *e) {
    sampler_random r;
    if (!load(json_str(line, "tokenizer", ""), e)) return;
    sampler_seed(&r, (uint64_t)json_int(line, "seed", 1));
    str_adds(out, "{\"documents\":[");
    for (int64_t i = 0, n = json_int(line, "n", 1); i < n; i++) {
        if (i) str_addc(out, ',');
        if (!document(out, g, &r, (size_t)json_int(line, "steps", 500), e)) return;
    }
    str_adds(out, "]}\n");
}

static void answer(const char *text, size_t n) {
    arena *a = arena_new();
    err e = {0};
    str out = {0};
    const json *line = json_parse(a, "line", text, n, &e);
    grammar *g = line ? grammar_of(line, &e) : NULL;
    const json *texts = json_get(line, "texts");
    if (g && texts) judge(&out, g, texts);
    if (g && !texts) generate(&out, g, line, &e);
    if (e.code) {
        str_clear(&out);
        str_adds(&out, "{\"error\":");
        str_json_string(&out, e.msg, strlen(e.msg));
        str_adds(&out, "}\n");
    }
    fwrite(str_get(&out), 1, out.len, stdout);
    fflush(stdout);
    str_free(&out);
    grammar_free(g);
    arena_free(a);
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) answer(line, (size_t)n);
    free(line);
    vocabulary_free(tokens);
    tokenizer_free(loaded);
    return 0;
}
