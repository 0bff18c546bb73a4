/* Answers to chats: messages and their deltas. */
#include "server/answer_parts.h"
#include "text/detokenize.h"
#include <math.h>
#include <string.h>

/* ---- log-probabilities ---- */

static void add_token(str *b, const tokenizer *text, int32_t id, float logprob) {
    size_t n = 0;
    const uint8_t *bytes = text ? tokenizer_bytes(text, id, &n) : NULL;
    str_adds(b, "{\"token\":");
    str_json_string(b, bytes ? (const char *)bytes : "",
                    n); /* what is no character as U+FFFD: bytes has it */
    str_adds(b, ",\"logprob\":");
    str_json_double(b, isinf(logprob) ? -9999 : (double)logprob);
    str_adds(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) str_printf(b, "%s%u", i ? "," : "", bytes[i]);
    str_addc(b, ']');
}

static void add_scores(str *b, const task *t, size_t from, size_t to) {
    const tokenizer *text = t->job->m->m->text;
    str_adds(b, "{\"content\":[");
    for (size_t i = from; i < to; i++) {
        const token_scores *s = &t->scores[i];
        if (i > from) str_addc(b, ',');
        add_token(b, text, s->id, s->logprob);
        str_adds(b, ",\"top_logprobs\":[");
        for (size_t k = 0; k < s->n_top; k++) {
            if (k) str_addc(b, ',');
            add_token(b, text, s->top[k].id, s->top[k].logprob);
            str_addc(b, '}');
        }
        str_adds(b, "]}");
    }
    str_adds(b, "],\"refusal\":null}");
}

/* ---- whole ---- */

static void add_text(str *b, const str *s, size_t from) {
    str_json_string(b, str_get(s) + from, s->len - from);
}

static void add_message(str *b, const task *t) {
    str_adds(b, "{\"role\":\"assistant\",\"content\":");
    if (t->n_call && !t->content.len)
        str_adds(b, "null");
    else
        add_text(b, &t->content, 0);
    str_adds(b, ",\"refusal\":null");
    if (t->reasoning.len) {
        str_adds(b, ",\"reasoning_content\":");
        add_text(b, &t->reasoning, 0);
    }
    for (size_t i = 0; i < t->n_call; i++) {
        const task_call *c = &t->call[i];
        str_printf(b, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
                   i ? "," : ",\"tool_calls\":[", c->id);
        add_text(b, &c->name, 0);
        str_adds(b, ",\"arguments\":");
        add_text(b, &c->arguments, 0);
        str_adds(b, "}}");
    }
    str_adds(b, t->n_call ? "]}" : "}");
}

void answer_chat_choice(str *b, const task *t) {
    str_printf(b, "{\"index\":%zu,\"message\":", t->index);
    add_message(b, t);
    str_adds(b, ",\"logprobs\":");
    if (t->job->r.logprobs)
        add_scores(b, t, 0, task_scores_ready(t));
    else
        str_adds(b, "null");
    str_printf(b, ",\"finish_reason\":%s}", answer_finish(t->finish));
}

/* ---- deltas ---- */

/* Calls that are new, and new pieces of arguments. */
static void add_call_deltas(str *b, task *t) {
    bool first = true;
    for (size_t i = 0; i < t->n_call; i++) {
        task_call *c = &t->call[i];
        if (c->told && c->sent == c->arguments.len) continue;
        str_printf(b, "%s{\"index\":%zu,", first ? "\"tool_calls\":[" : ",", i);
        first = false;
        if (!c->told) {
            str_printf(b, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", c->id);
            add_text(b, &c->name, 0);
            str_addc(b, ',');
        } else {
            str_adds(b, "\"function\":{");
        }
        str_adds(b, "\"arguments\":");
        add_text(b, &c->arguments, c->sent);
        str_adds(b, "}}");
        c->told = true;
        c->sent = c->arguments.len;
    }
    if (!first) str_addc(b, ']');
}

/* The members of the delta that say what is new; nothing where nothing is. */
static void add_delta(str *b, task *t) {
    size_t begin = b->len;
    if (!t->told) str_adds(b, "\"role\":\"assistant\",\"content\":\"\"");
    if (!t->told) {
        t->told = true;
        return; /* an event of its own: the content is in the next */
    }
    if (t->reasoning_sent < t->reasoning.len) {
        str_adds(b, "\"reasoning_content\":");
        add_text(b, &t->reasoning, t->reasoning_sent);
        t->reasoning_sent = t->reasoning.len;
    }
    if (t->content_sent < t->content.len) {
        if (b->len > begin) str_addc(b, ',');
        str_adds(b, "\"content\":");
        add_text(b, &t->content, t->content_sent);
        t->content_sent = t->content.len;
    }
    str calls = {0};
    add_call_deltas(&calls, t);
    if (calls.len && b->len > begin) str_addc(b, ',');
    if (calls.len) str_add(b, calls.s, calls.len);
    str_free(&calls);
}

/* One event; false: there was nothing to tell. */
static bool send_delta(task *t, bool finished) {
    job *j = t->job;
    size_t ready = j->r.logprobs && t->told ? task_scores_ready(t) : t->scores_sent;
    str delta = {0}, b = {0};
    if (!finished) add_delta(&delta, t);
    bool some = delta.len || ready > t->scores_sent || finished;
    if (some) {
        answer_open(&b, j, "chat.completion.chunk");
        str_printf(&b, "{\"index\":%zu,\"delta\":{%s},\"logprobs\":", t->index, str_get(&delta));
        if (ready > t->scores_sent)
            add_scores(&b, t, t->scores_sent, ready);
        else
            str_adds(&b, "null");
        str_printf(&b, ",\"finish_reason\":%s}", answer_finish(finished ? t->finish : TASK_GOES_ON));
        str_adds(&b, j->r.include_usage ? "],\"usage\":null}" : "]}");
        answer_event(j, &b);
        t->scores_sent = ready;
    }
    str_free(&delta);
    str_free(&b);
    return some;
}

void answer_chat_progress(task *t) {
    while (send_delta(t, false)) {
    }
    if (t->finish != TASK_GOES_ON) send_delta(t, true);
}
