#include "server/task.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- log-probabilities ---- */

static int32_t id_of(const decoder_row *row, size_t i) {
    return row->id ? row->id[i] : (int32_t)i;
}

/* Puts a score into the n likeliest so far, best first, lower ids first among equals. */
static void rank(token_scores *s, size_t n, int32_t id, float score) {
    size_t at = s->n_top;
    while (at &&
           (s->top[at - 1].logprob < score || (s->top[at - 1].logprob == score && s->top[at - 1].id > id)))
        at--;
    if (at >= n) return;
    if (s->n_top < n) s->n_top++;
    memmove(&s->top[at + 1], &s->top[at], (s->n_top - 1 - at) * sizeof *s->top);
    s->top[at].id = id;
    s->top[at].logprob = score;
}

void task_scores(token_scores *out, const decoder_row *row, int32_t id, size_t n_top, int32_t limit) {
    float most = row->score[row->largest];
    double sum = 0;
    *out = (token_scores){.id = id, .logprob = -INFINITY};
    for (size_t i = 0; i < row->n; i++) {
        sum += sampler_exp((double)row->score[i] - (double)most);
        int32_t k = id_of(row, i);
        if (k == id) out->logprob = row->score[i];
        if (n_top && k < limit) rank(out, n_top, k, row->score[i]);
    }
    double all = (double)most + log(sum);
    out->logprob = (float)((double)out->logprob - all);
    for (size_t i = 0; i < out->n_top; i++) out->top[i].logprob = (float)((double)out->top[i].logprob - all);
}

static bool add_scores(task *t, const token_scores *s, err *e) {
    if (t->n_scores == t->cap_scores) {
        size_t cap = t->cap_scores ? 2 * t->cap_scores : 32;
        token_scores *more = mem_try_realloc(t->scores, cap * sizeof *more);
        if (!more) return err_set(e, ERR_MEMORY, "no memory for the scores of %zu tokens", cap);
        t->scores = more;
        t->cap_scores = cap;
    }
    t->scores[t->n_scores] = *s;
    t->scores[t->n_scores].start = t->produced;
    t->scores[t->n_scores++].start_char = t->chars;
    return true;
}

/* ---- text ---- */

static void count(task *t, const char *s, size_t n) {
    t->produced += n;
    for (size_t i = 0; i < n; i++) t->chars += ((unsigned char)s[i] & 0xC0) != 0x80;
}

/* Text of the prompt comes back as it was, end ids and all; a BOS that the tokenizer put there doesn't. */
static bool echo(task *t, const request *r, const served_model *m, err *e) {
    const tokenizer *text = m->m->text;
    if (!text) return true;
    detokenizer d;
    detokenizer_begin(&d, text, false);
    for (size_t i = 0; i < t->prompt.n; i++) {
        size_t from = t->text.len;
        bool bos = !i && t->prompt.ids[0] == tokenizer_bos(text);
        token_scores s = {.id = t->prompt.ids[i], .logprob = NAN};
        if (r->logprobs && !add_scores(t, &s, e)) return false;
        if (!bos) detokenizer_push(&d, t->prompt.ids[i], &t->text);
        count(t, t->text.s + from, t->text.len - from);
    }
    size_t from = t->text.len;
    detokenizer_flush(&d, &t->text);
    count(t, t->text.s + from, t->text.len - from);
    return true;
}

/* ---- replies of a chat ---- */

static task_call *add_call(task *t) {
    uint64_t bits[2] = {0, t->n_call};
    if (t->n_call == t->cap_call) {
        t->cap_call = t->cap_call ? 2 * t->cap_call : 4;
        t->call = mem_realloc(t->call, t->cap_call * sizeof *t->call);
    }
    task_call *c = &t->call[t->n_call++];
    *c = (task_call){0};
    if (getrandom(bits, sizeof bits, 0) < 0) bits[0] = t->generated;
    snprintf(c->id, sizeof c->id, "call_%016" PRIx64 "%08" PRIx32, bits[0], (uint32_t)bits[1]);
    return c;
}

static void on_reply(void *ctx, const reply_event *v) {
    task *t = ctx;
    switch (v->kind) {
    case REPLY_REASONING: str_add(&t->reasoning, v->s, v->n); break;
    case REPLY_CONTENT:
        if (!t->broken) str_add(&t->content, v->s, v->n);
        break;
    case REPLY_CALL: str_add(&add_call(t)->name, v->s, v->n); break;
    case REPLY_ARGUMENTS: str_add(&t->call[v->call].arguments, v->s, v->n); break;
    case REPLY_CALL_END: break;
    case REPLY_CALL_BROKEN: t->broken = true; break;
    }
}

/* Calls are told as they come where a grammar makes them, else once they are known to be well-formed. */
static void begin_reply(task *t, const request *r) {
    const reply_options o = {.thinking = r->thinking,
                             .may_think = r->may_think,
                             .calls = r->calls,
                             .tools = r->tools,
                             .whole_calls = !r->constraint};
    t->reply = reply_new(&o, on_reply, t);
}

static void read_reply(task *t) {
    if (!t->reply) return;
    t->reasoning_tokens += reply_in_reasoning(t->reply);
    reply_push(t->reply, str_get(&t->text) + t->read, t->text.len - t->read);
    t->read = t->text.len;
    if (t->finish == TASK_GOES_ON) return;
    reply_end(t->reply);
    if (t->finish == TASK_STOP && !t->stop.found && reply_calls(t->reply)) t->finish = TASK_CALLS;
}

/* ---- begin, end ---- */

static size_t most_new(const task *t, const request *r, const served_model *m) {
    int64_t fits = m->m->form.context - (int64_t)t->prompt.n + 1; /* the last id is not fed */
    int64_t most = r->max_new >= 0 ? r->max_new : r->default_new;
    return (size_t)(most < fits ? most : fits);
}

static bool begin_constraint(task *t, const request *r, const served_model *m, err *e) {
    if (!r->constraint) return true;
    const vocabulary *v = lm_vocabulary(m->m, e);
    t->constraint = v ? matcher_new(r->constraint, v, e) : NULL;
    if (!t->constraint) return false;
    t->allowed = mem_try(vocabulary_words(v), sizeof *t->allowed);
    return t->allowed ||
           err_set(e, ERR_MEMORY, "no memory for a mask of %d tokens", (int)vocabulary_limit(v));
}

bool task_begin(task *t, const request *r, const served_model *m, err *e) {
    sampler_options o = r->sampling;
    size_t k = t->index % (size_t)r->n;
    t->prompt = r->prompt[t->index / (size_t)r->n];
    o.seed += k; /* choices differ, and each can be made alone */
    t->most = most_new(t, r, m);
    t->begun = true;
    t->s = sampler_new(&o, lm_sample_limit(m->m), e);
    if (!t->s) return false;
    sampler_prompt(t->s, t->prompt.ids, t->prompt.n);
    stopper_begin(&t->stop, r->stop, r->n_stop);
    if (m->m->text) detokenizer_begin(&t->out, m->m->text, true);
    if (r->chat) begin_reply(t, r);
    return begin_constraint(t, r, m, e) && (!r->echo || echo(t, r, m, e));
}

void task_free(task *t) {
    sampler_free(t->s);
    stopper_free(&t->stop);
    str_free(&t->piece);
    str_free(&t->text);
    mem_free(t->scores);
    mem_free(t->biased);
    mem_free(t->allowed);
    matcher_free(t->constraint);
    if (t->reply) reply_free(t->reply);
    str_free(&t->content);
    str_free(&t->reasoning);
    token_list_free(&t->close);
    for (size_t i = 0; i < t->n_call; i++) {
        str_free(&t->call[i].name);
        str_free(&t->call[i].arguments);
    }
    mem_free(t->call);
}

bool task_wants_prompt_rows(const request *r) {
    return r->echo && r->logprobs;
}

bool task_prompt_row(task *t, const request *r, size_t index, const decoder_row *row, err *e) {
    (void)e;
    if (index + 1 >= t->prompt.n || index + 1 >= t->n_scores) return true;
    token_scores s, *to = &t->scores[index + 1];
    task_scores(&s, row, to->id, (size_t)r->top_logprobs, INT32_MAX);
    s.start = to->start;
    s.start_char = to->start_char;
    *to = s;
    return true;
}

/* ---- a token ---- */

/* The row with logit_bias added. */
static bool add_bias(task *t, const request *r, sampler_row *row, err *e) {
    if (!r->n_bias) return true;
    if (row->n > t->cap_biased) {
        float *more = mem_try_realloc(t->biased, row->n * sizeof *more);
        if (!more) return err_set(e, ERR_MEMORY, "no memory for %zu scores", row->n);
        t->biased = more;
        t->cap_biased = row->n;
    }
    memcpy(t->biased, row->values, row->n * sizeof *row->values);
    for (size_t i = 0; i < r->n_bias; i++) {
        size_t at = (size_t)r->bias[i].id;
        if (row->ids)
            for (at = 0; at < row->n && row->ids[at] != r->bias[i].id;) at++;
        if (at < row->n) t->biased[at] += r->bias[i].value;
    }
    row->values = t->biased;
    row->known = 0;
    return true;
}

/* Text of the id through the stop strings. */
static void decode(task *t, int32_t id, bool last) {
    str_clear(&t->piece);
    if (id >= 0) detokenizer_push(&t->out, id, &t->piece);
    if (last) detokenizer_flush(&t->out, &t->piece);
    count(t, t->piece.s, t->piece.len);
    if (stopper_push(&t->stop, str_get(&t->piece), t->piece.len, &t->text))
        t->finish = TASK_STOP;
    else if (last)
        stopper_flush(&t->stop, &t->text);
}

/* Reasoning that has had its budget is closed: *id is the next of the ids that do so, -1 when there is none.
 */
static bool close_reasoning(task *t, const request *r, const served_model *m, int32_t *id, err *e) {
    static const char end[] = "\n</think>\n\n";
    bool spent = t->reply && r->budget >= 0 && reply_in_reasoning(t->reply) &&
                 t->reasoning_tokens >= (uint64_t)r->budget;
    if (spent && !t->close.n && !tokenizer_encode(m->m->text, end, sizeof end - 1, 0, &t->close, e))
        return false;
    *id = t->n_close < t->close.n ? t->close.ids[t->n_close++] : -1;
    return true;
}

/* The next id by the row, among those that the constraint allows. */
static bool pick(task *t, const request *r, const served_model *m, const decoder_row *row, int32_t *id,
                 err *e) {
    sampler_row in = {row->score, row->id, row->n, row->largest + 1};
    if (!close_reasoning(t, r, m, id, e)) return false;
    if (t->constraint && *id < 0) {
        if (!matcher_mask(t->constraint, t->allowed, e)) return false;
        sampler_allow(t->s, t->allowed, matcher_limit(t->constraint));
        in.known = 0;
    }
    if (*id < 0 && (!add_bias(t, r, &in, e) || (*id = sampler_pick(t->s, in, e)) < 0)) return false;
    sampler_accept(t->s, *id);
    return !t->constraint || matcher_accept(t->constraint, *id) ||
           err_set(e, ERR_MEMORY, "no memory to follow the constraint");
}

bool task_take(task *t, const request *r, const served_model *m, const decoder_row *row, int32_t *id,
               err *e) {
    if (!pick(t, r, m, row, id, e)) return false;
    t->generated++;
    bool end =
        t->constraint ? matcher_ended(t->constraint) : stop_set_has(&m->m->stop, *id) && !r->ignore_eos;
    if (r->logprobs && !end) {
        token_scores s;
        task_scores(&s, row, *id, (size_t)r->top_logprobs, lm_sample_limit(m->m));
        if (!add_scores(t, &s, e)) return false;
    }
    if (end || (t->constraint && matcher_must_end(t->constraint)))
        t->finish = TASK_STOP;
    else if (t->generated >= t->most)
        t->finish = TASK_LENGTH;
    if (m->m->text) decode(t, end ? -1 : *id, t->finish != TASK_GOES_ON);
    read_reply(t);
    return true;
}

size_t task_scores_ready(const task *t) {
    size_t n = t->scores_sent;
    bool all = t->finish != TASK_GOES_ON && !t->stop.found;
    while (n < t->n_scores && (all || t->scores[n].start < t->text.len)) n++;
    return n;
}
