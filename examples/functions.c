/* functions ARTIFACT TABLE PROMPT [N]: a package with several functions over the same states. One that takes
 * many tokens reads the prompt, one that takes a single token continues it by N (32): what millet_generate()
 * does, by hand, as for a package whose inputs the program itself knows. Such an artifact comes from `millet
 * convert --prefill 16 --table fp16`; TABLE is the embedding table in it (docs/formats.md). */
#include <millet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    millet_package *package;
    millet_session *session; /* its states serve all functions */
    millet_tokenizer *tokenizer;
    FILE *table;
    size_t row_bytes;
    const char *prefill, *decode; /* names */
    int64_t block;                /* tokens that prefill takes */
    int32_t position;             /* of the next token */
    void *rows;                   /* room for a block */
    millet_error e;
} program;

static bool fail(program *p, const char *text) {
    snprintf(p->e.message, sizeof p->e.message, "%s", text);
    return false;
}

static bool open_table(program *p, const char *path) {
    char header[64];
    uint64_t row_bytes;
    p->table = fopen(path, "rb");
    if (!p->table || fread(header, sizeof header, 1, p->table) != 1 || memcmp(header, "MLTEMBED", 8))
        return fail(p, "no embedding table there");
    memcpy(&row_bytes, header + 32, sizeof row_bytes);
    p->row_bytes = (size_t)row_bytes;
    return header[12] == 1 || fail(p, "the rows of the table are not fp16");
}

/* Which functions there are is in their shapes: hidden is [1, tokens, width]. */
static bool find_functions(program *p) {
    millet_feature f = {.size = sizeof f};
    for (size_t i = 0; i < millet_function_count(p->package); i++) {
        const char *name = millet_function_name(p->package, i);
        for (size_t k = 0; millet_feature_at(p->package, name, MILLET_INPUT, k, &f); k++) {
            if (strcmp(f.name, "hidden") || f.dtype != MILLET_FP16 || f.rank != 3) continue;
            if (f.shape[1] == 1) p->decode = name;
            if (f.shape[1] > 1 && f.shape[1] > p->block) p->prefill = name, p->block = f.shape[1];
        }
    }
    p->rows = p->prefill ? calloc((size_t)p->block, p->row_bytes) : NULL;
    return (p->decode && p->rows) || fail(p, "there are no functions for many tokens and for one");
}

static bool open_all(program *p, const char *artifact, const char *table) {
    char tokenizer[1000];
    snprintf(tokenizer, sizeof tokenizer, "%s/Tokenizer", artifact);
    p->package = millet_package_open(artifact, NULL, &p->e);
    p->session = p->package ? millet_session_new(p->package, NULL, &p->e) : NULL;
    p->tokenizer = p->session ? millet_tokenizer_open(tokenizer, &p->e) : NULL;
    return p->tokenizer && open_table(p, table) && find_functions(p);
}

/* Runs up to a block of tokens; *best: the likeliest token behind them. */
static bool feed(program *p, const int32_t *ids, int32_t n, int32_t *best) {
    const int64_t tokens = n == 1 ? 1 : p->block; /* rows behind the valid ones are ignored */
    for (int32_t i = 0; i < n; i++)
        if (fseek(p->table, 64 + (long)ids[i] * (long)p->row_bytes, SEEK_SET) ||
            fread((char *)p->rows + (size_t)i * p->row_bytes, p->row_bytes, 1, p->table) != 1)
            return fail(p, "a token is not in the table");
    const millet_tensor in[] = {{"hidden",
                                 MILLET_FP16,
                                 3,
                                 {1, tokens, (int64_t)(p->row_bytes / 2)},
                                 p->rows,
                                 (size_t)tokens * p->row_bytes},
                                {"current_pos", MILLET_INT32, 1, {1}, &p->position, sizeof p->position},
                                {"valid_length", MILLET_INT32, 1, {1}, &n, sizeof n}};
    millet_tensor logits;
    millet_call c = {.size = sizeof c,
                     .function = n == 1 ? p->decode : p->prefill,
                     .input = in,
                     .n_input = n == 1 ? 2 : 3,
                     .output = &logits,
                     .max_output = 1};
    if (!millet_run(p->session, &c, &p->e)) return false;
    const float *score = logits.data;
    *best = 0;
    for (int32_t i = 1; i < logits.shape[logits.rank - 1]; i++)
        if (score[i] > score[*best]) *best = i;
    p->position += n;
    return true;
}

static bool continue_text(program *p, const char *prompt, long n_new) {
    int32_t *ids, id = 0;
    size_t n, len;
    const char *piece;
    if (!millet_encode_prompt(p->tokenizer, prompt, strlen(prompt), &ids, &n, &p->e)) return false;
    bool ok = n > 0 || fail(p, "an empty prompt");
    for (size_t at = 0, part; ok && at < n; at += part) {
        part = n - at < (size_t)p->block ? n - at : (size_t)p->block;
        ok = feed(p, ids + at, (int32_t)part, &id);
    }
    millet_stream *s = millet_stream_new(p->tokenizer, true);
    for (long i = 0; ok && s && i < n_new; i++) {
        millet_stream_push(s, id, &piece, &len);
        fwrite(piece, 1, len, stdout);
        if (i + 1 < n_new) ok = feed(p, &id, 1, &id);
    }
    if (s) millet_stream_flush(s, &piece, &len), fwrite(piece, 1, len, stdout);
    printf("\n");
    millet_stream_free(s);
    millet_free(ids);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: functions ARTIFACT TABLE PROMPT [N]\n");
        return 2;
    }
    static program p;
    bool ok = open_all(&p, argv[1], argv[2]) && continue_text(&p, argv[3], argc > 4 ? atol(argv[4]) : 32);
    if (!ok) fprintf(stderr, "%s\n", p.e.message);
    if (p.table) fclose(p.table);
    free(p.rows);
    millet_tokenizer_close(p.tokenizer);
    millet_session_free(p.session);
    millet_package_close(p.package);
    return !ok;
}
