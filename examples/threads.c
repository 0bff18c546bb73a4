/* threads ARTIFACT: one opened model, two threads that generate from it at the same time, each from its own
 * states. */
#include <millet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 16 };

typedef struct {
    const millet_lm *lm;
    const char *prompt;
    char text[4096];
    size_t len;
    bool ok;
    millet_error e;
} job;

static bool collect(void *ctx, int32_t id, const char *text, size_t len) {
    job *j = ctx;
    (void)id;
    if (len >= sizeof j->text - j->len) return false;
    memcpy(j->text + j->len, text, len);
    j->len += len;
    j->text[j->len] = 0;
    return true;
}

static void *work(void *arg) {
    job *j = arg;
    millet_generate_options o = {
        .size = sizeof o, .max_new_tokens = TOKENS, .ignore_eos = true, .on_token = collect, .ctx = j};
    j->ok = millet_generate(j->lm, j->prompt, &o, NULL, &j->e);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: threads ARTIFACT\n");
        return 2;
    }
    millet_error e;
    millet_lm *lm = millet_lm_open(argv[1], NULL, &e);
    if (!lm) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    job together[2] = {{.lm = lm, .prompt = "Once upon a time"}, {.lm = lm, .prompt = "The little dog"}},
        alone[2];
    memcpy(alone, together, sizeof alone);
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, work, &together[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        work(&alone[i]); /* the same once more without company: the same text */
        bool same = together[i].ok && alone[i].ok && !strcmp(together[i].text, alone[i].text);
        printf("%s%s\n", together[i].prompt, together[i].text);
        if (!same)
            fprintf(stderr, "threads differ: %s\n", together[i].ok ? alone[i].text : together[i].e.message);
        ok = ok && same;
    }
    millet_lm_close(lm);
    return !ok;
}
