/* A conversation out of the fuzzer's bytes ({"messages": [...], "options": {...}}), rendered by every
 * template, as it is and as what comes over the wire; the bytes themselves as the text of a template. Control
 * tokens must come from the template's own parts only. */
#include "text/chat.h"
#include "text/detokenize.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const ADDED[] = {"<|im_start|>", "<|im_end|>",   "<think>",         "</think>",
                                    "<tool_call>",  "</tool_call>", "<tool_response>", "</tool_response>"};

/* One token a byte, and control tokens. */
static const tokenizer *byte_tokenizer(void) {
    static tokenizer *t;
    if (t) return t;
    str s = {0};
    str_adds(&s, "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    unsigned other = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
        unsigned c = printable ? b : other++;
        str_printf(&s, "%s\"\\u%04x\": %u", b ? ", " : "", c, b);
    }
    str_adds(&s, "}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                 "\"use_regex\": false}, "
                 "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [");
    for (size_t i = 0; i < sizeof ADDED / sizeof *ADDED; i++)
        str_printf(&s, "%s{\"id\": %zu, \"content\": \"%s\", \"special\": true, \"normalized\": false}",
                   i ? ", " : "", 256 + i, ADDED[i]);
    str_adds(&s, "]}");
    err e = {0};
    t = tokenizer_load_memory(s.s, s.len, NULL, 0, &e);
    if (!t) abort();
    str_free(&s);
    return t;
}

static size_t count_added(const token_list *ids, size_t from) {
    size_t count = 0;
    for (size_t i = from; i < ids->n; i++) count += ids->ids[i] >= 256;
    return count;
}

static void check_prompt(const chat_prompt *p) {
    const tokenizer *t = byte_tokenizer();
    const char *text = str_get(&p->text);
    if (utf8_valid(text, p->text.len) != p->text.len) abort();
    token_list ids = {0}, own = {0};
    err e = {0};
    size_t end = 0;
    for (size_t i = 0; i < p->count; i++) {
        text_span s = p->control[i];
        if (s.start >= s.end || s.end > p->text.len || (i && s.start <= end)) abort();
        end = s.end;
        if (!tokenizer_encode(t, text + s.start, s.end - s.start, 0, &own, &e)) abort();
    }
    if (!chat_encode(p, t, false, &ids, &e)) abort();
    if (count_added(&ids, 0) != count_added(&own, 0)) abort();
    str back = {0};
    tokenizer_decode(t, ids.ids, ids.n, false, &back);
    if (back.len != p->text.len || memcmp(str_get(&back), text, back.len)) abort();
    ids.n = 0;
    if (!chat_encode(p, t, true, &ids, &e) || count_added(&ids, 0) < count_added(&own, 0)) abort();
    str_free(&back);
    token_list_free(&ids);
    token_list_free(&own);
}

static void render_all(const json *messages, const chat_options *options) {
    const char *name = chat_template_names();
    while (name) {
        const char *comma = strchr(name, ',');
        char one[64] = "";
        strncat(one, name, comma ? (size_t)(comma - name) : sizeof one - 1);
        name = comma ? comma + 2 : NULL;
        err e = {0};
        chat_template *c = chat_open(NULL, one, &e);
        if (!c) abort();
        chat_prompt p = {0};
        bool ok = chat_render(c, messages, options, &p, &e);
        if (ok == (e.code != ERR_NONE)) abort();
        if (ok) check_prompt(&p);
        chat_prompt_free(&p);
        chat_close(c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    chat_template *c = chat_open_text((const char *)data, n, &e);
    if (!c == (e.code == ERR_NONE)) abort();
    chat_close(c);
    e = (err){0};
    arena *a = arena_new();
    const json *root = json_parse(a, "input", data, n, &e);
    chat_options o;
    if (root && chat_options_read(&o, json_get(root, "options"), &e)) {
        const json *messages = json_get(root, "messages");
        render_all(messages, &o);
        const json *wire = chat_messages(a, messages, &e);
        if (!wire == (e.code == ERR_NONE)) abort();
        if (wire) render_all(wire, &o);
    }
    arena_free(a);
    return 0;
}
