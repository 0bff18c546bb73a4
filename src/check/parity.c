#include "base/clock.h"
#include "check/layers.h"
#include "check/side.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that are fed to the reference, then to the artifact: the reference's rows wait that long. */
#define BLOCK 16

/* One artifact. */
typedef struct {
    check_parity *r;
    const lm *m;
    decoder *d;
    size_t cap;
} compared;

typedef struct {
    compared *side;
    size_t n, at; /* sides; which one is fed */
    check_layers *layers;
    layer_capture *capture;
    const check_texts *texts;
    size_t text, first; /* the block: which text, its first token */
    size_t vocab;
    float *row;  /* BLOCK rows of the reference */
    float *pick; /* the reference's scores of a row's candidates */
    uint8_t *seen;
    check_watch *w;
} comparison;

static bool keep_reference(void *ctx, size_t index, const decoder_row *row, err *e) {
    comparison *c = ctx;
    (void)e;
    memcpy(c->row + index * c->vocab, row->score, c->vocab * sizeof *c->row);
    return true;
}

/* A candidate id that is no row of the vocabulary, or comes twice, is counted and its score left out. Returns
 * the candidates that are left; *scores and *ids are theirs. */
static size_t clean_candidates(comparison *c, check_parity *r, const decoder_row *row, float *scores,
                               int32_t *ids) {
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        int32_t id = row->id[i];
        if (id < 0 || (size_t)id >= c->vocab || c->seen[id]) {
            r->bad_ids++;
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

static void add_position(compared *c, check_position p) {
    check_parity *r = c->r;
    if (r->positions == c->cap) {
        c->cap = 2 * c->cap + 64;
        r->position = mem_realloc(r->position, c->cap * sizeof *r->position);
    }
    r->position[r->positions++] = p;
    add_worst(r, p);
}

/* Adds to the sums what two rows of n scores over the same ids show; returns the divergence. */
static double compare_scores(check_parity *r, const float *ref, const float *got, size_t n) {
    double dot = 0, rr = 0, gg = 0, kl = row_divergence(ref, got, n, &r->error);
    float low = ref[0], high = ref[0];
    for (size_t i = 0; i < n; i++) {
        double a = ref[i], b = got[i];
        dot += a * b, rr += a * a, gg += b * b;
        low = fminf(low, ref[i]), high = fmaxf(high, ref[i]);
    }
    if ((double)high - (double)low > r->range) r->range = (double)high - (double)low;
    r->cosine += rr > 0 && gg > 0 ? dot / sqrt(rr * gg) : rr == gg;
    r->kl += kl;
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
    r->nll_ref += row_log_sum(ref, n) - ref[at];
    r->nll += row_log_sum(got, n) - got[at];
}

static bool compare_row(void *ctx, size_t index, const decoder_row *row, err *e) {
    comparison *c = ctx;
    compared *one = &c->side[c->at];
    check_parity *r = one->r;
    const check_text *t = &c->texts->text[c->text];
    size_t at = c->first + index, n = row->n;
    const float *full = c->row + index * c->vocab, *ref = full, *got = row->score;
    const int32_t *ids = NULL;
    float *scores = NULL;
    int32_t *kept = NULL;
    if (row->id) {
        scores = mem_alloc(n * sizeof *scores);
        ids = kept = mem_alloc(n * sizeof *kept);
        n = clean_candidates(c, r, row, scores, kept);
        for (size_t i = 0; i < n; i++) c->pick[i] = full[ids[i]];
        ref = c->pick;
        got = scores;
    }
    bool ok = n > 0 || err_set(e, ERR_INVALID, "no candidate is an id of the vocabulary");
    if (ok) {
        size_t want = row_best(full, c->vocab), best = row_best(got, n);
        int32_t id = ids ? ids[best] : (int32_t)best;
        double margin = row_margin(full, c->vocab, want);
        bool agree = (size_t)id == want, certain = margin >= CHECK_MARGIN;
        r->agree += agree;
        r->certain += certain;
        r->certain_agree += certain && agree;
        double kl = compare_scores(r, ref, got, n);
        if (at + 1 < t->n) compare_next(r, ref, got, ids, n, t->ids[at + 1]);
        add_position(one, (check_position){c->text, at, t->ids[at], (int32_t)want, id, kl, margin});
    }
    mem_free(scores);
    mem_free(kept);
    return ok;
}

static bool go_on(void *ctx) {
    return check_go(((comparison *)ctx)->w);
}

static void on_handed(void *ctx, size_t package, size_t first, size_t tokens, const float *hidden, size_t n) {
    comparison *c = ctx;
    (void)tokens;
    layers_handed(c->capture, package, first, hidden, n);
}

static bool feed(comparison *c, decoder *d, const int32_t *ids, size_t n, bool reference, err *e) {
    bool layers = c->capture && !reference && !c->at;
    const decoder_hooks h = {.row = reference ? keep_reference : compare_row,
                             .keep_going = go_on,
                             .handed = layers ? on_handed : NULL,
                             .ctx = c};
    double start = clock_seconds();
    bool ok = decoder_feed(d, ids, n, &h, NULL, e);
    check_parity *r = c->side[reference ? 0 : c->at].r;
    *(reference ? &r->seconds_ref : &r->seconds) += clock_seconds() - start;
    return ok && check_step(c->w, n, e);
}

/* The decoders of one text, from fresh states. */
static bool begin_text(comparison *c, decoder **ref, const lm *reference, rt_mode mode, err *e) {
    const check_text *t = &c->texts->text[c->text];
    bool ok = (*ref = decoder_new(reference, RT_FAST, e)) && decoder_check(*ref, t->ids, t->n, e);
    for (size_t i = 0; ok && i < c->n; i++)
        ok = (c->side[i].d = decoder_new(c->side[i].m, mode, e)) &&
             decoder_check(c->side[i].d, t->ids, t->n, e);
    if (ok && c->capture) layers_watch(c->capture, *ref, c->side[0].d);
    return ok;
}

static bool compare_text(comparison *c, const lm *reference, rt_mode mode, err *e) {
    const check_text *t = &c->texts->text[c->text];
    decoder *ref = NULL;
    bool ok = begin_text(c, &ref, reference, mode, e);
    for (c->first = 0; ok && c->first < t->n; c->first += BLOCK) {
        size_t n = t->n - c->first < BLOCK ? t->n - c->first : BLOCK;
        if (c->capture) layers_begin(c->capture);
        ok = feed(c, ref, t->ids + c->first, n, true, e) || err_where(e, "reference");
        for (c->at = 0; ok && c->at < c->n; c->at++)
            ok = feed(c, c->side[c->at].d, t->ids + c->first, n, false, e) || err_where(e, "artifact");
    }
    for (size_t i = 0; i < c->n; i++) {
        decoder_free(c->side[i].d);
        c->side[i].d = NULL;
    }
    decoder_free(ref);
    return ok || err_where(e, "%s", t->name);
}

bool check_same_vocabulary(const lm *artifact, const lm *reference, err *e) {
    if (artifact->form.vocab && artifact->form.vocab != reference->form.vocab)
        return err_set(e, ERR_INVALID,
                       "the artifact returns %" PRId64 " logits, the checkpoint has a vocabulary of %" PRId64,
                       artifact->form.vocab, reference->form.vocab);
    if (artifact->vocab && reference->vocab && artifact->vocab != reference->vocab)
        return err_set(e, ERR_INVALID, "the artifact takes %" PRId64 " token ids, the checkpoint %" PRId64,
                       artifact->vocab, reference->vocab);
    return true;
}

static bool run(comparison *c, const lm *reference, rt_mode mode, err *e) {
    c->row = mem_try(c->vocab, BLOCK * sizeof *c->row);
    c->pick = mem_try(c->vocab, sizeof *c->pick);
    c->seen = mem_try(c->vocab, 1);
    bool ok = (c->row && c->pick && c->seen) ||
              err_set(e, ERR_MEMORY, "no memory for rows of %zu logits", c->vocab);
    if (ok && c->layers) c->capture = layers_new(c->layers, c->side[0].m, reference);
    check_phase(c->w, "scores", check_texts_tokens(c->texts) * (c->n + 1));
    for (c->text = 0; ok && c->text < c->texts->n; c->text++) ok = compare_text(c, reference, mode, e);
    mem_free(c->row);
    mem_free(c->pick);
    mem_free(c->seen);
    layers_end(c->capture);
    return ok;
}

bool check_parity_run(check_parity *r, check_layers *layers, const lm *const *artifact, size_t n,
                      const lm *reference, const check_texts *t, rt_mode mode, check_watch *w, err *e) {
    comparison c = {.n = n, .layers = layers, .texts = t, .vocab = (size_t)reference->form.vocab, .w = w};
    for (size_t i = 0; i < n; i++) r[i] = (check_parity){0};
    c.side = mem_alloc(n * sizeof *c.side);
    for (size_t i = 0; i < n; i++) c.side[i] = (compared){.r = &r[i], .m = artifact[i]};
    bool ok = run(&c, reference, mode, e);
    for (size_t i = 0; i < n; i++)
        if (r[i].positions) {
            r[i].cosine /= (double)r[i].positions;
            r[i].kl /= (double)r[i].positions;
        }
    mem_free(c.side);
    return ok;
}

void check_parity_free(check_parity *r) {
    mem_free(r->position);
    *r = (check_parity){0};
}
