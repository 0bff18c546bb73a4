/* A schema, and behind a NUL bytes of a text: grammars come or are refused with an error, in bounded time;
 * masks hold just the tokens that are accepted; what was accepted can be undone. */
#include "base/json.h"
#include "structured/matcher.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok) {
    if (!ok) abort();
}

enum { N_TOKENS = 96 };

/* Bytes of JSON, and longer pieces. */
static vocabulary *make_vocabulary(void) {
    static const char *const longer[] = {
        "{\"", "\":",     "\", \"", "}]", "true",     "null",        "\xC3",           "\xA9",
        "abc", "\\u00e9", "12",     "[[", "</think>", "<tool_call>", "<function=f>\n", "\n</parameter>"};
    static const char single[] = "{}[]\",: \\ntrfalsuxyz0123456789.-+eE\n<>/ABC_";
    const uint8_t *s[N_TOKENS];
    size_t len[N_TOKENS], k = 0;
    for (; k < sizeof longer / sizeof *longer; k++)
        s[k] = (const uint8_t *)longer[k], len[k] = strlen(longer[k]);
    for (size_t i = 0; i + 1 < sizeof single; i++, k++) s[k] = (const uint8_t *)single + i, len[k] = 1;
    s[k] = s[0], len[k] = 0;
    int32_t stop = (int32_t)k;
    err e = {0};
    return vocabulary_from_bytes(s, len, k + 1, &stop, 1, &e);
}

static void follow(grammar *g, const vocabulary *v, const uint8_t *text, size_t n) {
    uint32_t bits[N_TOKENS / 32 + 1];
    err e = {0};
    matcher *m = matcher_new(g, v, &e);
    must(m);
    for (size_t i = 0; i < n && i < 200 && !matcher_ended(m); i++) {
        if (!matcher_mask(m, bits, &e)) break;
        int32_t pick = -1;
        for (int32_t id = 0, k = text[i] % N_TOKENS; id < vocabulary_limit(v); id++) {
            bool allowed = bits[id / 32] >> (id % 32) & 1;
            if (i % 8 == 0) must(allowed == matcher_allows(m, id));
            if (allowed && (pick < 0 || k-- > 0)) pick = id;
        }
        must(pick >= 0 && matcher_accept(m, pick));
        if (text[i] & 128) {
            must(matcher_rollback(m, 1));
            must(matcher_accept(m, pick));
        }
    }
    matcher_free(m);
}

static grammar *tools_of(const json *schema, uint8_t how, err *e) {
    grammar_tool tool[] = {{"f", schema, false}, {"g", NULL, true}};
    tools_options o = {.tool = tool,
                       .n_tool = 2,
                       .dialect = how & 2 ? TOOLS_XML : TOOLS_JSON,
                       .choice = how & 4 ? TOOLS_AUTO : TOOLS_REQUIRED};
    return grammar_tools(&o, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static vocabulary *v;
    if (!v) v = make_vocabulary();
    if (!n) return 0;
    uint8_t how = *data++;
    n--;
    const uint8_t *zero = memchr(data, 0, n);
    size_t schema_n = zero ? (size_t)(zero - data) : n;
    arena *a = arena_new();
    err e = {0};
    const json *schema = json_parse(a, "schema", data, schema_n, &e);
    grammar *g = NULL;
    if (schema)
        g = how & 1
                ? tools_of(schema, how, &e)
                : grammar_from_schema(schema, &(grammar_options){.behind = how & 8 ? "</think>" : NULL}, &e);
    arena_free(a);
    must(!g == (e.code != ERR_NONE));
    if (g && zero) follow(g, v, zero + 1, n - schema_n - 1);
    grammar_free(g);
    return 0;
}
