/* generate ARTIFACT PROMPT [N]: continues a text by N tokens (64), printing it as it comes. */
#include <millet.h>
#include <stdio.h>
#include <stdlib.h>

static bool print(void *ctx, int32_t id, const char *text, size_t len) {
    (void)ctx, (void)id;
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: generate ARTIFACT PROMPT [N]\n");
        return 2;
    }
    millet_error e;
    millet_lm *lm = millet_lm_open(argv[1], NULL, &e);
    millet_generate_options o = {
        .size = sizeof o, .max_new_tokens = argc > 3 ? atol(argv[3]) : 64, .on_token = print};
    millet_generation r = {.size = sizeof r};
    bool ok = lm && millet_generate(lm, argv[2], &o, &r, &e);
    if (ok)
        fprintf(stderr, "\n%zu + %zu tokens, %s\n", r.prompt_tokens, r.n_ids,
                r.finish == MILLET_STOP ? "the model stopped" : "cut");
    else
        fprintf(stderr, "%s\n", e.message);
    millet_free(r.ids);
    millet_lm_close(lm);
    return !ok;
}
