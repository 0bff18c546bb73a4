/* A turn: prompt, reply, what stays of it. */
#include "chat/loops.h"
#include "chat/parts.h"
#include "text/reply.h"
#include <inttypes.h>
#include <string.h>

/* A reply under way. */
typedef struct {
    talk *t;
    const talk_watch *w;
    reply *split;
    loops loop;
    str content, reasoning;
    bool stopped, looped;
} speech;

static void on_event(void *ctx, const reply_event *event) {
    speech *s = ctx;
    bool reasons = event->kind == REPLY_REASONING;
    if (!reasons && event->kind != REPLY_CONTENT) return; /* without tools there are no calls */
    str_add(reasons ? &s->reasoning : &s->content, event->s, event->n);
    if (s->w && s->w->text &&
        !s->w->text(s->w->ctx, reasons ? TALK_REASONING : TALK_ANSWER, event->s, event->n))
        s->stopped = true;
}

static bool on_token(void *ctx, int32_t id, const char *text, size_t len) {
    speech *s = ctx;
    if (len) reply_push(s->split, text, len);
    if (id >= 0 && loops_add(&s->loop, id)) s->looped = true;
    return !s->stopped && !s->looped;
}

static bool keep_going(void *ctx) {
    const speech *s = ctx;
    return !s->w || !s->w->keep_going || s->w->keep_going(s->w->ctx);
}

const char *talk_end_text(talk_end end) {
    static const char *const text[] = {"complete", "cut at the largest number of tokens",
                                       "the context is full", "stopped", "stopped, for it repeated itself"};
    return text[end];
}

static talk_end end_of(const speech *s, const generate_result *r, bool fits_all) {
    if (r->finish == GENERATE_STOP) return TALK_END;
    if (s->looped) return TALK_LOOP;
    if (s->stopped || r->finish == GENERATE_STOPPED) return TALK_STOPPED;
    return fits_all ? TALK_FULL : TALK_LENGTH;
}

/* Ids that have a text: without the one that ended the reply. */
static size_t spoken(const talk *t, const generate_result *r) {
    return r->n_ids - (r->n_ids && stop_set_has(&t->m->stop, r->ids[r->n_ids - 1]));
}

/* Remembers which ids the prompt and the reply are, for the prompts of later turns. */
static void remember(talk *t, const talk_prompt *p, const generate_result *r) {
    size_t n = spoken(t, r);
    err none = {0};
    talk_forget(t);
    str_add(&t->fed_text, str_get(&p->p.text), p->p.text.len);
    tokenizer_decode(t->m->text, r->ids, n, false, &t->fed_text);
    bool ok = true;
    for (size_t i = 0; ok && i < p->ids.n; i++) ok = token_list_add(&t->fed, p->ids.ids[i], &none);
    for (size_t i = 0; ok && i < n; i++) ok = token_list_add(&t->fed, r->ids[i], &none);
    if (!ok) talk_forget(t);
}

static void report(talk_turn *turn, const generate_result *r) {
    const prefix_place *at = &r->place;
    turn->prompt = r->prompt_tokens;
    turn->reused = r->reused_tokens;
    turn->fed = r->fed_tokens;
    turn->written = r->n_ids;
    turn->moved = at->same < at->had ? at->same : 0;
    turn->prompt_seconds = r->prompt_seconds;
    turn->decode_seconds = r->decode_seconds;
}

static bool check_room(const talk *t, const talk_prompt *p, err *e) {
    return p->ids.n <= talk_most(t) ||
           err_set(e, ERR_LIMIT,
                   "the context is full: the conversation has %zu tokens, and of the context's %" PRId64
                   " positions %zu may be used for it",
                   p->ids.n, t->m->form.context, talk_most(t));
}

/* What holds the reply to a form; NULL without an error: nothing. */
static matcher *hold(const talk *t, bool thinking, err *e) {
    grammar *g = thinking ? t->o.form_behind : t->o.form;
    const vocabulary *tokens = g ? lm_vocabulary(t->m, e) : NULL;
    return tokens ? matcher_new(g, tokens, e) : NULL;
}

static bool speak(talk *t, const talk_prompt *p, speech *s, talk_turn *turn, err *e) {
    int64_t fits = t->m->form.context - (int64_t)p->ids.n + 1, most = t->o.max_new;
    bool all = most < 0 || most >= fits;
    const size_t keep[] = {p->first, p->stable, p->ids.n};
    generate_options o = {.mode = t->o.mode,
                          .sampling = t->o.sampling,
                          .max_new = all ? fits : most,
                          .on_token = on_token,
                          .keep_going = keep_going,
                          .ctx = s,
                          .cancel = s->w ? s->w->cancel : NULL,
                          .prefix = t->prefix,
                          .keep = keep,
                          .n_keep = 3};
    generate_result r = {0};
    o.sampling.seed = sampler_seed_of(o.sampling.seed, t->replies);
    o.constraint = hold(t, p->p.thinking, e);
    if (e->code) return false;
    s->split = reply_new(&(reply_options){.thinking = p->p.thinking, .may_think = chat_can_think(t->chat)},
                         on_event, s);
    bool ok = generate_continue(t->d, p->ids.ids, p->ids.n, &o, &r, e);
    if (ok) reply_end(s->split);
    if (ok) remember(t, p, &r);
    if (ok) report(turn, &r);
    if (ok) turn->end = end_of(s, &r, all);
    if (!ok) talk_forget(t);
    generate_result_free(&r);
    reply_free(s->split);
    matcher_free(o.constraint);
    return ok;
}

/* Question and reply become messages. */
static void keep(talk *t, const char *question, size_t n, const speech *s, const talk_turn *turn) {
    talk_add(t, TALK_USER, question, n, NULL, 0);
    talk_add(t, TALK_ASSISTANT, str_get(&s->content), s->content.len, str_get(&s->reasoning),
             s->reasoning.len);
    t->replies++;
    t->size = turn->prompt + turn->written - (turn->written > 0); /* the last token is not fed */
}

bool talk_ask(talk *t, const char *question, size_t n, const talk_watch *w, talk_turn *turn, err *e) {
    talk_prompt p = {0};
    speech s = {.t = t, .w = w};
    *turn = (talk_turn){0};
    bool ok = talk_make_prompt(t, question, n, &p, e) && check_room(t, &p, e) && speak(t, &p, &s, turn, e);
    if (ok && (turn->end != TALK_STOPPED || s.content.len || s.reasoning.len)) keep(t, question, n, &s, turn);
    str_free(&s.content);
    str_free(&s.reasoning);
    talk_prompt_free(&p);
    return ok;
}

bool talk_again(talk *t, const talk_watch *w, talk_turn *turn, err *e) {
    str question = {0};
    size_t i = t->n;
    while (i && t->message[i - 1].role != TALK_USER) i--;
    talk_message old = {0};
    if (i && i < t->n) { /* the reply, in case that no other comes */
        str_add(&old.content, str_get(&t->message[i].content), t->message[i].content.len);
        str_add(&old.reasoning, str_get(&t->message[i].reasoning), t->message[i].reasoning.len);
    }
    bool had = i && i < t->n;
    bool ok = talk_undo(t, &question) || err_set(e, ERR_USAGE, "there is no question yet");
    size_t left = t->n;
    bool asked = ok && talk_ask(t, str_get(&question), question.len, w, turn, e);
    if (ok && t->n == left && had) {
        talk_add(t, TALK_USER, str_get(&question), question.len, NULL, 0);
        talk_add(t, TALK_ASSISTANT, str_get(&old.content), old.content.len, str_get(&old.reasoning),
                 old.reasoning.len);
    }
    talk_message_free(&old);
    str_free(&question);
    return asked;
}

bool talk_scores(talk *t, const char *question, size_t n, const char *begin, const talk_watch *w,
                 decoder_row *row, err *e) {
    decoder_hooks h = {0};
    if (w) h = (decoder_hooks){.keep_going = w->keep_going, .ctx = w->ctx, .cancel = w->cancel};
    talk_prompt p = {0};
    prefix_place at;
    bool ok = talk_make_prompt(t, question, n, &p, e) &&
              tokenizer_encode(t->m->text, begin, strlen(begin), TOKENIZER_PLAIN, &p.ids, e);
    if (ok && p.ids.n > (size_t)t->m->form.context) ok = check_room(t, &p, e);
    ok = ok && prefix_feed(t->prefix, t->d, p.ids.ids, p.ids.n, &p.stable, 1, &h, row, &at, e);
    talk_forget(t);
    if (!ok) prefix_recover(t->prefix, t->d);
    talk_prompt_free(&p);
    return ok;
}
