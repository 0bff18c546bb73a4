#include "base/clock.h"
#include "check/check.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that are fed to the reference, then to the artifact: the reference's rows wait that long. */
#define BLOCK 16

typedef struct {
    check_parity *r;
    const check_texts *texts;
    size_t text, first; /* the block: which text, its first token */
    size_t vocab;
    float *row;  /* BLOCK rows of the reference */
    float *pick; /* the reference's scores of a row's candidates */
    uint8_t *seen;
    bool (*keep_going)(void *ctx);
    void *ctx;
} comparison;

static bool keep_reference(void *ctx, size_t index, const decoder_row *row, err *e) {
    comparison *c = ctx;
    (void)e;
    memcpy(c->row + index * c->vocab, row->score, c->vocab * sizeof *c->row);
    return true;
}

/* Index of the highest score: of equal ones the lowest, as argmax picks it. */
static size_t best_of(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* How far the best score is ahead of the second. */
static double margin_of(const float *x, size_t n, size_t best) {
    double second = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return x[best] - second;
}

static double log_sum(const float *x, size_t n) {
    double max = x[best_of(x, n)], sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

/* A candidate id that is no row of the vocabulary, or comes twice, is counted and its score left out. Returns
 * the candidates that are left; *scores and *ids are theirs. */
static size_t clean_candidates(comparison *c, const decoder_row *row, float *scores, int32_t *ids) {
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        int32_t id = row->id[i];
        if (id < 0 || (size_t)id >= c->vocab || c->seen[id]) {
            c->r->bad_ids++;
            continue;
        }
        c->seen[id] = 1;
        scores[n] = row->score[i];
        ids[n++] = id;
    }
    for (size_t i = 0; i < n; i++) c->seen[ids[i]] = 0;
    return n;
}

static void add_worst(check_parity *r, check_position p) {
    size_t at = r->n_worst < CHECK_WORST ? r->n_worst++ : CHECK_WORST;
    for (; at > 0 && r->worst[at - 1].kl < p.kl; at--)
        if (at < CHECK_WORST) r->worst[at] = r->worst[at - 1];
    if (at < CHECK_WORST) r->worst[at] = p;
}

/* Adds to the sums what two rows of n scores over the same ids show; returns the divergence. */
static double compare_scores(check_parity *r, const float *ref, const float *got, size_t n) {
    double dot = 0, rr = 0, gg = 0, kl = 0, lr = log_sum(ref, n), lg = log_sum(got, n);
    float low = ref[0], high = ref[0];
    for (size_t i = 0; i < n; i++) {
        double a = ref[i], b = got[i], d = fabs(a - b);
        dot += a * b, rr += a * a, gg += b * b;
        kl += exp(a - lr) * ((a - lr) - (b - lg));
        if (d > r->error) r->error = d;
        low = fminf(low, ref[i]), high = fmaxf(high, ref[i]);
    }
    if ((double)high - (double)low > r->range) r->range = (double)high - (double)low;
    r->cosine += rr > 0 && gg > 0 ? dot / sqrt(rr * gg) : rr == gg;
    r->kl += kl = fmax(kl, 0);
    return kl;
}

static void compare_next(check_parity *r, const float *ref, const float *got, const int32_t *ids, size_t n,
                         int32_t next) {
    size_t at = 0;
    if (ids)
        while (at < n && ids[at] != next) at++;
    else
        at = (size_t)next;
    if (at >= n) {
        r->outside++;
        return;
    }
    r->next++;
    r->nll_ref += log_sum(ref, n) - ref[at];
    r->nll += log_sum(got, n) - got[at];
}

static bool compare_row(void *ctx, size_t index, const decoder_row *row, err *e) {
    comparison *c = ctx;
    check_parity *r = c->r;
    const check_text *t = &c->texts->text[c->text];
    size_t at = c->first + index, n = row->n;
    const float *full = c->row + index * c->vocab, *ref = full, *got = row->score;
    const int32_t *ids = NULL;
    float *scores = NULL;
    int32_t *kept = NULL;
    if (row->id) {
        scores = mem_alloc(n * sizeof *scores);
        ids = kept = mem_alloc(n * sizeof *kept);
        n = clean_candidates(c, row, scores, kept);
        for (size_t i = 0; i < n; i++) c->pick[i] = full[ids[i]];
        ref = c->pick;
        got = scores;
    }
    bool ok = n > 0 || err_set(e, ERR_INVALID, "no candidate is an id of the vocabulary");
    if (ok) {
        size_t want = best_of(full, c->vocab), best = best_of(got, n);
        int32_t id = ids ? ids[best] : (int32_t)best;
        double margin = c->vocab > 1 ? margin_of(full, c->vocab, want) : 0;
        bool agree = (size_t)id == want, certain = margin >= CHECK_MARGIN;
        r->positions++;
        r->agree += agree;
        r->certain += certain;
        r->certain_agree += certain && agree;
        double kl = compare_scores(r, ref, got, n);
        if (at + 1 < t->n) compare_next(r, ref, got, ids, n, t->ids[at + 1]);
        add_worst(r, (check_position){c->text, at, t->ids[at], (int32_t)want, id, kl, margin});
    }
    free(scores);
    free(kept);
    return ok;
}

static bool go_on(void *ctx) {
    const comparison *c = ctx;
    return !c->keep_going || c->keep_going(c->ctx);
}

static bool feed(comparison *c, decoder *d, const int32_t *ids, size_t n, bool reference, err *e) {
    const decoder_hooks h = {.row = reference ? keep_reference : compare_row, .keep_going = go_on, .ctx = c};
    double start = clock_seconds();
    bool ok = decoder_feed(d, ids, n, &h, NULL, e);
    *(reference ? &c->r->seconds_ref : &c->r->seconds) += clock_seconds() - start;
    return ok;
}

static bool compare_text(comparison *c, const lm *artifact, const lm *reference, rt_mode mode, err *e) {
    const check_text *t = &c->texts->text[c->text];
    decoder *got = decoder_new(artifact, mode, e), *ref = got ? decoder_new(reference, RT_FAST, e) : NULL;
    bool ok = got && ref && decoder_check(got, t->ids, t->n, e) && decoder_check(ref, t->ids, t->n, e);
    for (c->first = 0; ok && c->first < t->n; c->first += BLOCK) {
        size_t n = t->n - c->first < BLOCK ? t->n - c->first : BLOCK;
        ok = (feed(c, ref, t->ids + c->first, n, true, e) || err_where(e, "reference")) &&
             (feed(c, got, t->ids + c->first, n, false, e) || err_where(e, "artifact"));
    }
    decoder_free(got);
    decoder_free(ref);
    return ok || err_where(e, "%s", t->name);
}

/* Both speak of the same vocabulary. */
static bool same_shape(const lm *artifact, const lm *reference, err *e) {
    if (artifact->form.vocab && artifact->form.vocab != reference->form.vocab)
        return err_set(e, ERR_INVALID,
                       "the artifact returns %" PRId64 " logits, the checkpoint has a vocabulary of %" PRId64,
                       artifact->form.vocab, reference->form.vocab);
    if (artifact->vocab && reference->vocab && artifact->vocab != reference->vocab)
        return err_set(e, ERR_INVALID, "the artifact takes %" PRId64 " token ids, the checkpoint %" PRId64,
                       artifact->vocab, reference->vocab);
    return true;
}

bool check_parity_run(check_parity *r, const lm *artifact, const lm *reference, const check_texts *t,
                      rt_mode mode, bool (*keep_going)(void *ctx), void *ctx, err *e) {
    *r = (check_parity){0};
    if (!same_shape(artifact, reference, e)) return false;
    comparison c = {
        .r = r, .texts = t, .vocab = (size_t)reference->form.vocab, .keep_going = keep_going, .ctx = ctx};
    c.row = mem_try(c.vocab, BLOCK * sizeof *c.row);
    c.pick = mem_try(c.vocab, sizeof *c.pick);
    c.seen = mem_try(c.vocab, 1);
    bool ok =
        (c.row && c.pick && c.seen) || err_set(e, ERR_MEMORY, "no memory for rows of %zu logits", c.vocab);
    for (c.text = 0; ok && c.text < t->n; c.text++) ok = compare_text(&c, artifact, reference, mode, e);
    free(c.row);
    free(c.pick);
    free(c.seen);
    if (r->positions) r->cosine /= (double)r->positions, r->kl /= (double)r->positions;
    return ok;
}
