#include "generate/score.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const lm *m;
    const int32_t *ids;
    size_t n, seen; /* tokens, and rows that have come */
    score_result *r;
    bool write;
    file_out file;
    float *full; /* one row of the file, when the package returns candidates */
    size_t width;
    const score_options *o;
} scoring;

/* -log softmax(r)[at], in double. */
static double row_nll(const decoder_row *r, size_t at) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->score[i] > max) max = r->score[i];
    for (size_t i = 0; i < r->n; i++) sum += exp(r->score[i] - max);
    // cppcheck-suppress invalidFunctionArg ; a row has entries: the largest adds 1
    return max + log(sum) - r->score[at];
}

/* The id with the highest score; of equal ones the lowest, as argmax picks it. */
static int32_t row_best(const decoder_row *r) {
    size_t best = 0;
    for (size_t i = 1; i < r->n; i++)
        if (r->score[i] > r->score[best] ||
            (r->id && r->score[i] == r->score[best] && r->id[i] < r->id[best]))
            best = i;
    return r->id ? r->id[best] : (int32_t)best;
}

static void compare(score_result *s, const decoder_row *r, int32_t next, bool best_only) {
    size_t at = 0;
    if (r->id)
        while (at < r->n && r->id[at] != next) at++;
    else
        at = (size_t)next;
    s->compared++;
    s->agree += row_best(r) == next;
    if (at < r->n && !best_only)
        s->nll += row_nll(r, at);
    else
        s->outside++;
}

static bool write_row(scoring *s, const decoder_row *r, err *e) {
    if (!r->id) return file_out_write(&s->file, r->score, r->n * sizeof(float), e);
    for (size_t i = 0; i < s->width; i++) s->full[i] = SCORE_ABSENT;
    for (size_t i = 0; i < r->n; i++) s->full[r->id[i]] = r->score[i];
    return file_out_write(&s->file, s->full, s->width * sizeof(float), e);
}

static bool on_row(void *ctx, size_t index, const decoder_row *r, err *e) {
    scoring *s = ctx;
    s->seen = index + 1;
    if (index + 1 < s->n) compare(s->r, r, s->ids[index + 1], s->m->form.best);
    return !s->write || write_row(s, r, e);
}

static bool keep_going(void *ctx) {
    const scoring *s = ctx;
    return !s->o->progress || s->o->progress(s->o->ctx, s->seen, s->n);
}

/* safetensors: 8 bytes of header size, the header padded with spaces to a multiple of 8, then the rows as
 * they come. */
static bool begin_file(scoring *s, const char *path, err *e) {
    s->width = (size_t)(s->m->form.vocab ? s->m->form.vocab : s->m->vocab);
    if (!s->width)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: the package returns candidates and does not say how large its vocabulary "
                       "is, so a row of logits has no width",
                       path);
    s->full = s->m->form.top_k ? mem_try(s->width, sizeof *s->full) : NULL;
    if (s->m->form.top_k && !s->full)
        return err_set(e, ERR_MEMORY, "no memory for a row of %zu logits", s->width);
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)s->n * s->width, 4u, &bytes))
        return err_set(e, ERR_LIMIT, "%s: too large", path);
    char header[256] = {0};
    int len =
        snprintf(header + 8, sizeof header - 8,
                 "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],\"data_offsets\":[0,%" PRIu64 "]}}",
                 s->n, s->width, bytes);
    while (len % 8) header[8 + len++] = ' ';
    num_put64(header, (uint64_t)len);
    s->write = file_out_begin(&s->file, path, e);
    return s->write && file_out_write(&s->file, header, 8 + (size_t)len, e);
}

bool score_ids(const lm *m, const int32_t *ids, size_t n, const score_options *o, score_result *r, err *e) {
    *r = (score_result){.tokens = n};
    double start = clock_seconds();
    scoring s = {.m = m, .ids = ids, .n = n, .r = r, .o = o};
    decoder *d = decoder_new(m, o->mode, e);
    const decoder_hooks hooks = {.row = on_row, .keep_going = keep_going, .ctx = &s};
    bool ok = d && decoder_check(d, ids, n, e) && (!o->logits || begin_file(&s, o->logits, e)) &&
              decoder_feed(d, ids, n, &hooks, NULL, e);
    if (s.write) ok = file_out_end(&s.file, ok, e);
    decoder_free(d);
    mem_free(s.full);
    r->seconds = clock_seconds() - start;
    return ok;
}

double score_mean(const score_result *r) {
    size_t n = r->compared - r->outside;
    return n ? r->nll / (double)n : NAN;
}
