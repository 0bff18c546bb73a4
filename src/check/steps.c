#include "check/side.h"
#include <math.h>

typedef struct {
    check_steps *r;
    const check_text *t;
    const lm *artifact, *reference;
    rt_mode mode;
    check_watch *w;
    decoder *ref, *own, *seeded; /* of the text that is fed */
} stepping;

/* Feeds tokens [from, to) to the reference and to the artifact. */
static bool advance(stepping *s, size_t from, size_t to, err *e) {
    const decoder_hooks h = {.keep_going = check_go, .ctx = s->w};
    if (from == to) return true;
    return decoder_feed(s->ref, s->t->ids + from, to - from, &h, NULL, e) &&
           decoder_feed(s->own, s->t->ids + from, to - from, &h, NULL, e) && check_step(s->w, to - from, e);
}

/* One token at position `at`, by all three. */
static bool step(stepping *s, size_t at, err *e) {
    check_steps *r = s->r;
    const decoder_hooks h = {.keep_going = check_go, .ctx = s->w};
    const int32_t *id = s->t->ids + at;
    decoder_row want, own, seeded;
    row_result a, b;
    if (!decoder_seed(s->seeded, s->ref, e) || !decoder_feed(s->ref, id, 1, &h, &want, e) ||
        !decoder_feed(s->own, id, 1, &h, &own, e) || !decoder_feed(s->seeded, id, 1, &h, &seeded, e) ||
        !row_compare(&a, &want, &seeded, e) || !row_compare(&b, &want, &own, e) || !check_step(s->w, 1, e))
        return false;
    bool agree = a.got == a.want, certain = a.margin >= CHECK_MARGIN;
    r->steps++;
    r->agree += agree;
    r->own_agree += b.got == b.want;
    r->certain += certain;
    r->certain_agree += certain && agree;
    r->kl += a.kl;
    r->own_kl += b.kl;
    r->error = fmax(r->error, a.error);
    return true;
}

/* n positions of this text, spread evenly behind its first token. */
static bool run_text(stepping *s, size_t n, err *e) {
    s->ref = decoder_new(s->reference, RT_FAST, e);
    s->own = s->ref ? decoder_new(s->artifact, s->mode, e) : NULL;
    s->seeded = s->own ? decoder_new(s->artifact, s->mode, e) : NULL;
    bool ok = s->seeded;
    for (size_t i = 0, done = 0; ok && i < n; i++) {
        size_t at = 1 + i * (s->t->n - 1) / n;
        ok = advance(s, done, at, e) && step(s, at, e);
        done = at + 1;
    }
    decoder_free(s->ref);
    decoder_free(s->own);
    decoder_free(s->seeded);
    return ok || err_where(e, "%s", s->t->name);
}

bool check_steps_run(check_steps *r, const lm *artifact, const lm *reference, const check_texts *t,
                     rt_mode mode, check_watch *w, err *e) {
    *r = (check_steps){0};
    stepping s = {.r = r, .artifact = artifact, .reference = reference, .mode = mode, .w = w};
    size_t left = CHECK_STEPS;
    check_phase(w, "steps", check_texts_tokens(t));
    for (size_t i = 0; i < t->n; i++) {
        size_t share = (left + t->n - i - 1) / (t->n - i);
        s.t = &t->text[i];
        if (s.t->n < 2) continue;
        if (share > s.t->n - 1) share = s.t->n - 1;
        left -= share;
        if (!run_text(&s, share, e)) return err_where(e, "steps");
    }
    if (r->steps) r->kl /= (double)r->steps, r->own_kl /= (double)r->steps;
    return true;
}
