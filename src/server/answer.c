#include "server/answer.h"
#include "server/answer_parts.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- log-probabilities ---- */

/* A token's text; what is no whole character as "bytes:\xNN...", as the API has it. */
static void add_token_text(str *b, const tokenizer *text, int32_t id) {
    size_t n = 0;
    const uint8_t *bytes = text ? tokenizer_bytes(text, id, &n) : NULL;
    str s = {0};
    if (!bytes) {
        str_printf(&s, "token_id:%d", id);
    } else if (utf8_valid((const char *)bytes, n) == n) {
        str_add(&s, bytes, n);
    } else {
        str_adds(&s, "bytes:");
        for (size_t i = 0; i < n; i++) str_printf(&s, "\\x%02x", bytes[i]);
    }
    str_json_string(b, str_get(&s), s.len);
    str_free(&s);
}

static void add_logprob(str *b, float v) {
    str_json_double(b, isinf(v) ? -9999 : (double)v); /* as the API has what is out of the question */
}

/* {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of scores [from, to). */
static void add_completion_scores(str *b, const task *t, size_t from, size_t to) {
    const tokenizer *text = t->job->m->m->text;
    str_adds(b, "{\"tokens\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from) str_addc(b, ',');
        add_token_text(b, text, t->scores[i].id);
    }
    str_adds(b, "],\"token_logprobs\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from) str_addc(b, ',');
        add_logprob(b, t->scores[i].logprob);
    }
    str_adds(b, "],\"top_logprobs\":");
    if (!t->job->r.top_logprobs) str_adds(b, "null");
    for (size_t i = from; t->job->r.top_logprobs && i < to; i++) {
        const token_scores *s = &t->scores[i];
        str_adds(b, i > from ? "," : "[");
        if (isnan(s->logprob)) str_adds(b, "null");
        for (size_t k = 0; k < s->n_top && !isnan(s->logprob); k++) {
            str_addc(b, k ? ',' : '{');
            add_token_text(b, text, s->top[k].id);
            str_addc(b, ':');
            add_logprob(b, s->top[k].logprob);
        }
        if (!isnan(s->logprob)) str_addc(b, '}');
    }
    if (t->job->r.top_logprobs) str_adds(b, to > from ? "]" : "[]");
    str_adds(b, ",\"text_offset\":[");
    for (size_t i = from; i < to; i++) str_printf(b, "%s%zu", i > from ? "," : "", t->scores[i].start_char);
    str_adds(b, "]}");
}

/* ---- choices ---- */

const char *answer_finish(task_finish f) {
    static const char *const name[] = {"null", "\"stop\"", "\"length\"", "\"tool_calls\""};
    return name[f];
}

/* A choice of a completion: its text from `from` on, scores [first, last). */
static void add_completion_choice(str *b, const task *t, size_t from, size_t first, size_t last,
                                  bool finished) {
    str_printf(b, "{\"index\":%zu,\"text\":", t->index);
    str_json_string(b, str_get(&t->text) + from, t->text.len - from);
    str_adds(b, ",\"logprobs\":");
    if (t->job->r.logprobs)
        add_completion_scores(b, t, first, last);
    else
        str_adds(b, "null");
    str_printf(b, ",\"finish_reason\":%s}", answer_finish(finished ? t->finish : TASK_GOES_ON));
}

void answer_open(str *b, const job *j, const char *object) {
    str_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", j->id, object,
               j->created);
    str_json_string(b, j->r.model, strlen(j->r.model));
    str_adds(b, ",\"system_fingerprint\":\"millet-" MILLET_VERSION "\",\"choices\":[");
}

void answer_usage(str *b, const job *j) {
    const stream_counts *c = &j->counts;
    str_printf(b,
               "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%zu}",
               c->prompt_tokens, c->new_tokens, c->prompt_tokens + c->new_tokens, c->cached_tokens);
    size_t reasoning = 0;
    for (size_t i = 0; i < j->n_task; i++) reasoning += j->task[i].reasoning_tokens;
    if (j->r.chat) str_printf(b, ",\"completion_tokens_details\":{\"reasoning_tokens\":%zu}", reasoning);
    str_addc(b, '}');
}

void answer_event(job *j, const str *b) {
    str e = {0};
    str_adds(&e, "data: ");
    str_add(&e, b->s, b->len);
    str_adds(&e, "\n\n");
    if (!j->answering) stream_head(j->out, 200, true);
    j->answering = true;
    stream_write(j->out, e.s, e.len);
    str_free(&e);
}

/* ---- progress ---- */

void answer_progress(task *t) {
    job *j = t->job;
    if (!j->r.stream || j->over) return;
    if (j->r.chat) {
        answer_chat_progress(t);
        return;
    }
    bool finished = t->finish != TASK_GOES_ON;
    size_t ready = j->r.logprobs ? task_scores_ready(t) : 0;
    if (t->sent == t->text.len && ready == t->scores_sent && !finished) return;
    str b = {0};
    answer_open(&b, j, "text_completion");
    add_completion_choice(&b, t, t->sent, t->scores_sent, ready, finished);
    str_adds(&b, j->r.include_usage ? "],\"usage\":null}" : "]}");
    answer_event(j, &b);
    str_free(&b);
    t->sent = t->text.len;
    t->scores_sent = ready;
}

static void end_events(job *j) {
    str b = {0};
    if (j->r.include_usage) {
        answer_open(&b, j, j->r.chat ? "chat.completion.chunk" : "text_completion");
        str_adds(&b, "],\"usage\":");
        answer_usage(&b, j);
        str_addc(&b, '}');
        answer_event(j, &b);
    }
    str_clear(&b);
    str_adds(&b, "[DONE]");
    answer_event(j, &b);
    str_free(&b);
}

static void end_whole(job *j) {
    str b = {0};
    answer_open(&b, j, j->r.chat ? "chat.completion" : "text_completion");
    for (size_t i = 0; i < j->n_task; i++) {
        if (i) str_addc(&b, ',');
        if (j->r.chat)
            answer_chat_choice(&b, &j->task[i]);
        else
            add_completion_choice(&b, &j->task[i], 0, 0, task_scores_ready(&j->task[i]), true);
    }
    str_adds(&b, "],\"usage\":");
    answer_usage(&b, j);
    str_adds(&b, "}\n");
    stream_head(j->out, 200, false);
    stream_write(j->out, b.s, b.len);
    str_free(&b);
}

void answer_end(job *j) {
    if (j->over) return;
    j->r.stream ? end_events(j) : end_whole(j);
    j->over = true;
    stream_end(j->out, &j->counts);
}

void answer_refusal(stream *to, const api_error *e, const stream_counts *c) {
    str b = {0};
    api_error_json(&b, e);
    str_addc(&b, '\n');
    stream_head(to, e->status, false);
    stream_write(to, b.s, b.len);
    str_free(&b);
    stream_end(to, c);
}

void answer_error(job *j, const api_error *e) {
    if (j->over) return;
    j->over = true;
    if (!j->answering) {
        answer_refusal(j->out, e, &j->counts);
        return;
    }
    str b = {0};
    api_error_json(&b, e);
    answer_event(j, &b);
    str_free(&b);
    stream_end(j->out, &j->counts);
}
