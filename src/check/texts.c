#include "check/check.h"
#include <stdlib.h>
#include <string.h>

#define NO_TOKENIZER_IDS 96

static const struct {
    const char *name, *text;
} builtin[] = {
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

bool check_texts_builtin(check_texts *t, const lm *artifact, err *e) {
    *t = (check_texts){0};
    uint64_t context = (uint64_t)artifact->form.context;
    if (!artifact->text) {
        if (artifact->vocab <= 0)
            return err_set(e, ERR_USAGE,
                           "neither a tokenizer nor the size of the vocabulary is known: give token ids");
        add_ids(t, artifact->vocab, context < NO_TOKENIZER_IDS ? (size_t)context : NO_TOKENIZER_IDS);
        return true;
    }
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++) {
        int32_t *ids;
        size_t n;
        if (!lm_encode(artifact, builtin[i].text, strlen(builtin[i].text), &ids, &n, e)) return false;
        check_texts_add(t, builtin[i].name, ids, n < context ? n : (size_t)context);
    }
    return true;
}

void check_texts_free(check_texts *t) {
    for (size_t i = 0; i < t->n; i++) free(t->text[i].ids);
    free(t->text);
    *t = (check_texts){0};
}
