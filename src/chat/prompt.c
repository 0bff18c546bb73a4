/* From messages to ids. */
#include "chat/parts.h"
#include <string.h>

static const char *const roles[] = {"system", "user", "assistant"};

static void add_message(str *b, talk_role role, const char *s, size_t n, const str *reasoning) {
    str_printf(b, "%s{\"role\":\"%s\",\"content\":", b->s[b->len - 1] == '[' ? "" : ",", roles[role]);
    str_json_string(b, s, n);
    if (reasoning && reasoning->len) {
        str_adds(b, ",\"reasoning_content\":");
        str_json_string(b, reasoning->s, reasoning->len);
    }
    str_addc(b, '}');
}

static void add_messages(const talk *t, str *b) {
    str_addc(b, '[');
    for (size_t i = 0; i < t->n; i++) {
        const talk_message *m = &t->message[i];
        add_message(b, m->role, str_get(&m->content), m->content.len, &m->reasoning);
    }
}

void talk_write_messages(const talk *t, str *out) {
    str b = {0};
    add_messages(t, &b);
    str_addc(&b, ']');
    str_add(out, b.s, b.len);
    str_free(&b);
}

/* reply: with the beginning of a reply behind the messages. */
static bool render_as(const talk *t, str *messages, bool reply, chat_prompt *p, err *e) {
    const chat_options o = {
        .generation = reply, .thinking = t->o.thinking, .keep_thinking = t->o.keep_thinking};
    arena *a = arena_new();
    str_addc(messages, ']');
    const json *j = json_parse(a, "messages", messages->s, messages->len, e);
    bool ok = j && chat_render(t->chat, j, &o, p, e);
    arena_free(a);
    return ok;
}

static bool render(const talk *t, str *messages, chat_prompt *p, err *e) {
    return render_as(t, messages, true, p, e);
}

/* The ids of what stands behind the first `from` bytes, where a part of the template begins. */
static bool encode_rest(const talk *t, const chat_prompt *p, size_t from, token_list *ids, err *e) {
    text_span *span = mem_alloc((p->count + 1) * sizeof *span);
    size_t n = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->control[i].start >= from)
            span[n++] = (text_span){p->control[i].start - from, p->control[i].end - from};
    bool ok = tokenizer_encode_spans(t->m->text, p->text.s + from, p->text.len - from, span, n, ids, e);
    mem_free(span);
    return ok;
}

static bool part_begins_at(const chat_prompt *p, size_t at) {
    for (size_t i = 0; i < p->count; i++)
        if (p->control[i].start == at) return true;
    return false;
}

/* The ids of a prompt: where its text begins with what was fed, and the template goes on there, the ids that
 * were fed; so what the model wrote stays what it chose to write. */
static bool encode(const talk *t, const chat_prompt *p, token_list *ids, err *e) {
    const str *fed = &t->fed_text;
    if (!fed->len || fed->len >= p->text.len || memcmp(p->text.s, fed->s, fed->len) ||
        !part_begins_at(p, fed->len))
        return chat_encode(p, t->m->text, false, ids, e);
    for (size_t i = 0; i < t->fed.n; i++)
        if (!token_list_add(ids, t->fed.ids[i], e)) return false;
    return encode_rest(t, p, fed->len, ids, e);
}

/* How many ids of the prompt stand in the next turn's too, whatever the reply: those that it shares with one
 * in which the reply is a single word, thought about, and a question follows. */
static bool find_stable(const talk *t, const str *messages, talk_prompt *p, err *e) {
    str b = {0}, thought = {0};
    talk_prompt next = {0};
    str_add(&b, messages->s, messages->len - 1); /* without the closing bracket */
    str_adds(&thought, "x");
    add_message(&b, TALK_ASSISTANT, "x", 1, chat_can_think(t->chat) ? &thought : NULL);
    add_message(&b, TALK_USER, "x", 1, NULL);
    bool ok = render(t, &b, &next.p, e) && encode(t, &next.p, &next.ids, e);
    p->stable = 0;
    while (ok && p->stable < p->ids.n && p->stable < next.ids.n &&
           p->ids.ids[p->stable] == next.ids.ids[p->stable])
        p->stable++;
    talk_prompt_free(&next);
    str_free(&thought);
    str_free(&b);
    return ok;
}

/* How many ids stand in front of the first question, whatever that is: a conversation that begins anew, or
 * whose oldest turns go, goes on from there. */
static bool find_first(const talk *t, talk_prompt *p, err *e) {
    bool system = t->n && t->message[0].role == TALK_SYSTEM;
    p->first = 0;
    if (!system) return true;
    str b = {0};
    talk_prompt other = {0};
    str_addc(&b, '[');
    add_message(&b, TALK_SYSTEM, str_get(&t->message[0].content), t->message[0].content.len, NULL);
    add_message(&b, TALK_USER, "x", 1, NULL);
    bool ok = render(t, &b, &other.p, e) && encode(t, &other.p, &other.ids, e);
    while (ok && p->first < p->ids.n && p->first < other.ids.n &&
           p->ids.ids[p->first] == other.ids.ids[p->first])
        p->first++;
    talk_prompt_free(&other);
    str_free(&b);
    return ok;
}

bool talk_make_prompt(const talk *t, const char *question, size_t n, talk_prompt *p, err *e) {
    str b = {0};
    add_messages(t, &b);
    if (question) add_message(&b, TALK_USER, question, n, NULL);
    bool ok = render(t, &b, &p->p, e) && encode(t, &p->p, &p->ids, e) && find_stable(t, &b, p, e) &&
              find_first(t, p, e);
    str_free(&b);
    return ok;
}

size_t talk_measure(const talk *t) {
    str b = {0};
    talk_prompt p = {0};
    err none = {0};
    size_t tokens;
    if (t->n > (t->n && t->message[0].role == TALK_SYSTEM)) {
        add_messages(t, &b);
        bool ok = render_as(t, &b, false, &p.p, &none) && encode(t, &p.p, &p.ids, &none);
        tokens = ok ? p.ids.n : 0;
    } else { /* a template may refuse what has no question */
        tokens = talk_make_prompt(t, "y", 1, &p, &none) ? p.first : 0;
    }
    talk_prompt_free(&p);
    str_free(&b);
    return tokens;
}

void talk_prompt_free(talk_prompt *p) {
    chat_prompt_free(&p->p);
    token_list_free(&p->ids);
    *p = (talk_prompt){0};
}
