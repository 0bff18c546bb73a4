#include "server/task.h"
#include <math.h>
#include <string.h>

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

/* ---- begin, end ---- */

static size_t most_new(const task *t, const request *r, const served_model *m) {
    int64_t fits = m->m->form.context - (int64_t)t->prompt.n + 1; /* the last id is not fed */
    int64_t most = r->max_new >= 0 ? r->max_new : r->default_new;
    return (size_t)(most < fits ? most : fits);
}

bool task_begin(task *t, const request *r, const served_model *m, err *e) {
    sampler_options o = r->sampling;
    size_t k = t->index % (size_t)r->n;
    t->prompt = r->prompt[t->index / (size_t)r->n];
    o.seed += k; /* choices differ */
    t->most = most_new(t, r, m);
    t->begun = true;
    t->s = sampler_new(&o, lm_sample_limit(m->m), e);
    if (!t->s) return false;
    sampler_prompt(t->s, t->prompt.ids, t->prompt.n);
    stopper_begin(&t->stop, r->stop, r->n_stop);
    if (m->m->text) detokenizer_begin(&t->out, m->m->text, true);
    return !r->echo || echo(t, r, m, e);
}

void task_free(task *t) {
    sampler_free(t->s);
    stopper_free(&t->stop);
    str_free(&t->piece);
    str_free(&t->text);
    mem_free(t->scores);
    mem_free(t->biased);
    t->s = NULL;
    t->scores = NULL;
    t->biased = NULL;
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

bool task_take(task *t, const request *r, const served_model *m, const decoder_row *row, int32_t *id,
               err *e) {
    sampler_row in = {row->score, row->id, row->n, row->largest + 1};
    if (!add_bias(t, r, &in, e)) return false;
    *id = sampler_pick(t->s, in, e);
    if (*id < 0) return false;
    sampler_accept(t->s, *id);
    t->generated++;
    bool end = stop_set_has(&m->m->stop, *id) && !r->ignore_eos;
    if (r->logprobs && !end) {
        token_scores s;
        task_scores(&s, row, *id, (size_t)r->top_logprobs, lm_sample_limit(m->m));
        if (!add_scores(t, &s, e)) return false;
    }
    if (end)
        t->finish = TASK_STOP;
    else if (t->generated >= t->most)
        t->finish = TASK_LENGTH;
    if (m->m->text) decode(t, end ? -1 : *id, t->finish != TASK_GOES_ON);
    return true;
}

size_t task_scores_ready(const task *t) {
    size_t n = t->scores_sent;
    bool all = t->finish != TASK_GOES_ON && !t->stop.found;
    while (n < t->n_scores && (all || t->scores[n].start < t->text.len)) n++;
    return n;
}
