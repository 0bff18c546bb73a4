#include "check/check.h"
#include <stdlib.h>
#include <string.h>

#define NO_TOKENIZER_IDS    96
#define NO_TOKENIZER_PROMPT 8

typedef struct {
    const char *name, *text;
} source;

static const source builtin[] = {
    {"english",
     "The old bridge was closed in winter, so the children walked along the river to school. Their "
     "teacher asked why they were late, and they told her about the ice."},
    {"german",
     "Am Morgen lag Nebel über dem See. Der Fischer wartete, bis die Sonne höher stand, und fuhr dann "
     "langsam hinaus."},
    {"french", "Le train s'arrêta dans une petite gare où personne ne montait plus depuis des années."},
    {"chinese", "春天来了，山上的雪慢慢融化，小河里的水也多了起来。孩子们在河边放风筝。"},
    {"japanese", "駅前の小さな店では、毎朝焼きたてのパンを売っています。"},
    {"russian", "Вечером в деревне стало тихо, и только собаки лаяли где-то за рекой."},
    {"arabic", "في الصباح فتح البائع دكانه ورتب الكتب القديمة على الرفوف."},
    {"code",
     "int sum(const int *v, int n) {\n    int s = 0;\n    for (int i = 0; i < n; i++) s += v[i];\n    "
     "return s;\n}\n"},
    {"repeated", "one one one one one one one one one one one one one one one one one one one one"},
};

/* To continue: no word is cut, no sentence ended. */
static const source prompts[] = {
    {"english", "The old bridge was closed in winter, so"},
    {"german", "Am Morgen lag Nebel über dem See, und"},
    {"chinese", "春天来了，山上的雪"},
    {"code", "int sum(const int *v, int n) {\n    int s = 0;\n"},
    {"french", "Le train s'arrêta dans une petite gare où"},
    {"japanese", "駅前の小さな店では、"},
    {"russian", "Вечером в деревне стало тихо, и"},
    {"arabic", "في الصباح فتح البائع"},
    {"repeated", "one one one one one one one one"},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

void check_texts_add(check_texts *t, const char *name, int32_t *ids, size_t n) {
    t->text = mem_realloc(t->text, (t->n + 1) * sizeof *t->text);
    t->text[t->n++] = (check_text){name, ids, n};
}

/* Numerical Recipes' generator, its upper bits. */
static void add_ids(check_texts *t, int64_t vocab, size_t n) {
    int32_t *ids = mem_alloc(n * sizeof *ids);
    uint32_t seed = 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(((uint64_t)seed * (uint64_t)vocab) >> 32);
    }
    check_texts_add(t, "ids", ids, n);
}

static size_t context_of(const lm *m, size_t most) {
    return (uint64_t)m->form.context < most ? (size_t)m->form.context : most;
}

static bool add_made_up(check_texts *t, const lm *m, size_t n, err *e) {
    if (m->vocab <= 0)
        return err_set(e, ERR_USAGE,
                       "neither a tokenizer nor the size of the vocabulary is known: give token ids");
    add_ids(t, m->vocab, context_of(m, n));
    return true;
}

static bool add_sources(check_texts *t, const lm *m, const source *s, size_t n, err *e) {
    for (size_t i = 0; i < n; i++) {
        int32_t *ids;
        size_t count;
        if (!lm_encode(m, s[i].text, strlen(s[i].text), &ids, &count, e)) return false;
        check_texts_add(t, s[i].name, ids, context_of(m, count));
    }
    return true;
}

bool check_texts_builtin(check_texts *t, const lm *artifact, err *e) {
    *t = (check_texts){0};
    if (!artifact->text) return add_made_up(t, artifact, NO_TOKENIZER_IDS, e);
    return add_sources(t, artifact, builtin, COUNT(builtin), e);
}

bool check_texts_prompts(check_texts *t, const lm *artifact, err *e) {
    *t = (check_texts){0};
    if (!artifact->text) return add_made_up(t, artifact, NO_TOKENIZER_PROMPT, e);
    return add_sources(t, artifact, prompts, COUNT(prompts), e);
}

size_t check_texts_tokens(const check_texts *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) n += t->text[i].n;
    return n;
}

/* Tokens of all texts when each is at most `length` long. */
static size_t tokens_below(const check_texts *t, size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) n += t->text[i].n < length ? t->text[i].n : length;
    return n;
}

void check_texts_cut(check_texts *t, const check_texts *from, size_t budget) {
    size_t length = 1, all = check_texts_tokens(from); /* a text has at least one */
    *t = (check_texts){.text = mem_alloc(from->n * sizeof *t->text), .n = from->n, .borrowed = true};
    if (!budget || budget > all) budget = all;
    while (length < all && tokens_below(from, length + 1) <= budget) length++;
    for (size_t i = 0; i < from->n; i++) {
        t->text[i] = from->text[i];
        if (t->text[i].n > length) t->text[i].n = length;
    }
}

void check_texts_free(check_texts *t) {
    for (size_t i = 0; i < t->n && !t->borrowed; i++) mem_free(t->text[i].ids);
    mem_free(t->text);
    *t = (check_texts){0};
}
