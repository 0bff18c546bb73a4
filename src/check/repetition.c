#include "base/map.h"
#include "check/check.h"
#include "generate/generator.h"
#include <string.h>

/* Adds how many of the keys of `size` bytes, one every `stride` bytes, came before. */
static size_t count_repeated(const void *data, size_t n, size_t size, size_t stride) {
    arena *a = arena_new();
    map *seen = map_new(a, n);
    size_t repeated = 0;
    for (size_t i = 0; i < n; i++) repeated += !map_add(seen, (const char *)data + i * stride, size, 0);
    arena_free(a);
    return repeated;
}

static size_t longest_run(const int32_t *ids, size_t n) {
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < n; i++) {
        run = i && ids[i] == ids[i - 1] ? run + 1 : 1;
        if (run > longest) longest = run;
    }
    return longest;
}

/* Bytes of the UTF-8 character at s; text is well-formed, as a tokenizer gives it. */
static size_t character(const char *s, size_t n) {
    unsigned char c = (unsigned char)*s;
    size_t len = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return len < n ? len : n;
}

static void add_characters(check_repetition *r, const char *text, size_t len) {
    const char *before = NULL;
    size_t before_len = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = character(text + i, len - i);
        r->repeated_characters += before && n == before_len && !memcmp(before, text + i, n);
        r->characters++;
        before = text + i;
        before_len = n;
    }
}

void check_repetition_add(check_repetition *r, const int32_t *ids, size_t n, const char *text, size_t len) {
    r->prompts++;
    r->tokens += n;
    r->repeated_tokens += count_repeated(ids, n, sizeof *ids, sizeof *ids);
    if (n > 2) {
        r->trigrams += n - 2;
        r->repeated_trigrams += count_repeated(ids, n - 2, 3 * sizeof *ids, sizeof *ids);
    }
    size_t run = longest_run(ids, n);
    if (run > r->run) r->run = run;
    add_characters(r, text, len);
}

bool check_repetition_run(check_repetition *r, const lm *m, const check_texts *prompts, rt_mode mode,
                          check_watch *w, err *e) {
    *r = (check_repetition){0};
    for (size_t i = 0; i < prompts->n; i++) {
        const check_text *t = &prompts->text[i];
        int64_t room = m->form.context - (int64_t)t->n + 1;
        generate_options o = {.mode = mode,
                              .sampling = SAMPLER_GREEDY,
                              .max_new = room < CHECK_CONTINUE ? room : CHECK_CONTINUE,
                              .ignore_eos = true,
                              .keep_going = check_go,
                              .ctx = w};
        generate_result g;
        bool ok = generate_run(m, t->ids, t->n, &o, &g, e);
        if (ok) {
            check_repetition_add(r, g.ids, g.n_ids, str_get(&g.text), g.text.len);
            r->seconds += g.prompt_seconds + g.decode_seconds;
        }
        generate_result_free(&g);
        if (!ok) return err_where(e, "continuing %s", t->name);
        if (!check_step(w, t->n + (size_t)o.max_new, e)) return false;
    }
    return true;
}
