#include "check/side.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t row_best(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

double row_margin(const float *x, size_t n, size_t best) {
    double second = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return n > 1 ? x[best] - second : 0;
}

double row_log_sum(const float *x, size_t n) {
    double max = x[row_best(x, n)], sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

double row_divergence(const float *ref, const float *got, size_t n, double *error) {
    double kl = 0, lr = row_log_sum(ref, n), lg = row_log_sum(got, n);
    for (size_t i = 0; i < n; i++) {
        double a = ref[i], b = got[i], d = fabs(a - b);
        kl += exp(a - lr) * ((a - lr) - (b - lg));
        if (error && d > *error) *error = d;
    }
    return fmax(kl, 0);
}

bool row_compare(row_result *r, const decoder_row *ref, const decoder_row *got, err *e) {
    size_t want = row_best(ref->score, ref->n), best = row_best(got->score, got->n);
    *r = (row_result){.want = ref->id ? ref->id[want] : (int32_t)want,
                      .got = got->id ? got->id[best] : (int32_t)best,
                      .margin = row_margin(ref->score, ref->n, want)};
    if (!got->id || ref->id) { /* both over the same scores: candidates of one package come best first */
        if (got->n != ref->n) return err_set(e, ERR_INVALID, "%zu scores, expected %zu", got->n, ref->n);
        r->kl = row_divergence(ref->score, got->score, got->n, &r->error);
        return true;
    }
    float *pick = mem_alloc(got->n * sizeof *pick);
    bool ok = true;
    for (size_t i = 0; i < got->n && ok; i++) {
        ok = got->id[i] >= 0 && (size_t)got->id[i] < ref->n;
        pick[i] = ok ? ref->score[got->id[i]] : 0;
    }
    if (ok) r->kl = row_divergence(pick, got->score, got->n, &r->error);
    mem_free(pick);
    return ok || err_set(e, ERR_INVALID, "a candidate is no id of the vocabulary");
}

int64_t side_layer_of(const char *name) {
    if (!name || strncmp(name, "layer_", 6) || !isdigit((unsigned char)name[6])) return -1;
    int64_t layer = 0;
    const char *p = name + 6;
    for (; isdigit((unsigned char)*p) && layer < 100000; p++) layer = 10 * layer + (*p - '0');
    return strcmp(p, "_out") ? -1 : layer;
}
