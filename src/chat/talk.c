#include "base/file.h"
#include "chat/parts.h"
#include <string.h>

bool talk_sampling(const lm *m, sampler_options *o, err *e) {
    *o = m->defaults;
    if (m->form.best) return true;
    arena *a = arena_new();
    const char *path = m->text_path ? arena_printf(a, "%s/generation_config.json", m->text_path) : NULL;
    bool ok = true;
    if (path && file_exists(path)) {
        const json *config = json_object_file(a, path, e);
        ok = config && (sampler_from_config(o, config, e) || err_where(e, "%s", path));
    } else { /* small models that take the best token alone run in circles */
        o->temperature = 0.7f;
        o->top_k = 20;
        o->top_p = 0.95f;
    }
    arena_free(a);
    return ok;
}

talk *talk_open(const lm *m, const talk_options *o, err *e) {
    if (!m->text) {
        err_set(e, ERR_USAGE,
                "a conversation needs a tokenizer, and there is none beside the package: name its "
                "directory with --tokenizer");
        return NULL;
    }
    talk *t = mem_alloc(sizeof *t);
    *t = (talk){.m = m, .o = *o, .size = UNMEASURED};
    t->o.template_name = NULL;
    t->chat = chat_open(m->text_path, o->template_name, e);
    t->prefix = t->chat ? prefix_new(m, o->budget, e) : NULL;
    t->d = t->prefix ? decoder_new(m, o->mode, e) : NULL;
    if (t->d) return t;
    talk_close(t);
    return NULL;
}

void talk_close(talk *t) {
    if (!t) return;
    talk_clear(t);
    prefix_free(t->prefix);
    decoder_free(t->d);
    chat_close(t->chat);
    mem_free(t->message);
    talk_forget(t);
    mem_free(t);
}

talk_options *talk_options_of(talk *t) {
    return &t->o;
}

const chat_template *talk_template(const talk *t) {
    return t->chat;
}

const lm *talk_lm(const talk *t) {
    return t->m;
}

size_t talk_position(const talk *t) {
    return (size_t)decoder_position(t->d);
}

size_t talk_size(const talk *t) {
    return t->size == UNMEASURED ? talk_measure(t) : t->size;
}

void talk_seed(talk *t, uint64_t seed) {
    t->o.sampling.seed = seed;
    t->replies = 0;
}

prefix_figures talk_prefixes(const talk *t) {
    return prefix_figures_of(t->prefix);
}

/* ---- messages ---- */

void talk_message_free(talk_message *m) {
    str_free(&m->content);
    str_free(&m->reasoning);
    *m = (talk_message){0};
}

void talk_clear(talk *t) {
    while (t->n) talk_message_free(&t->message[--t->n]);
    t->size = UNMEASURED;
}

void talk_forget(talk *t) {
    str_free(&t->fed_text);
    token_list_free(&t->fed);
}

size_t talk_count(const talk *t) {
    return t->n;
}

const talk_message *talk_at(const talk *t, size_t i) {
    return &t->message[i];
}

static void remove_at(talk *t, size_t i) {
    talk_message_free(&t->message[i]);
    t->size = UNMEASURED;
    memmove(t->message + i, t->message + i + 1, (--t->n - i) * sizeof *t->message);
}

static talk_message *insert_at(talk *t, size_t i, talk_role role) {
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 16;
        t->message = mem_realloc(t->message, t->cap * sizeof *t->message);
    }
    memmove(t->message + i + 1, t->message + i, (t->n++ - i) * sizeof *t->message);
    t->message[i] = (talk_message){.role = role};
    t->size = UNMEASURED;
    return &t->message[i];
}

void talk_add(talk *t, talk_role role, const char *content, size_t n, const char *reasoning,
              size_t n_reasoning) {
    talk_message *m = insert_at(t, t->n, role);
    str_add(&m->content, content, n);
    if (n_reasoning) str_add(&m->reasoning, reasoning, n_reasoning);
}

static bool has_system(const talk *t) {
    return t->n && t->message[0].role == TALK_SYSTEM;
}

const char *talk_system_text(const talk *t) {
    return has_system(t) ? str_get(&t->message[0].content) : NULL;
}

void talk_system(talk *t, const char *text) {
    if (has_system(t)) remove_at(t, 0);
    if (text) str_adds(&insert_at(t, 0, TALK_SYSTEM)->content, text);
}

void talk_reset(talk *t) {
    while (t->n > has_system(t)) remove_at(t, t->n - 1);
    t->replies = 0;
}

bool talk_undo(talk *t, str *question) {
    size_t i = t->n;
    while (i && t->message[i - 1].role != TALK_USER) i--;
    if (!i) return false;
    if (question) str_add(question, str_get(&t->message[i - 1].content), t->message[i - 1].content.len);
    while (t->n >= i) remove_at(t, t->n - 1);
    return true;
}

/* ---- the context ---- */

size_t talk_most(const talk *t) {
    size_t context = (size_t)t->m->form.context, room = context / 8;
    if (room > 256) room = 256;
    return context > room ? context - room : 1;
}

bool talk_tokens(talk *t, const char *question, size_t n, size_t *tokens, err *e) {
    talk_prompt p = {0};
    bool ok = talk_make_prompt(t, question, n, &p, e);
    *tokens = p.ids.n;
    talk_prompt_free(&p);
    return ok;
}

bool talk_drop(talk *t, const char *question, size_t n, size_t *dropped, err *e) {
    size_t tokens, enough = (size_t)t->m->form.context / 4 * 3;
    for (*dropped = 0;; ++*dropped) {
        if (!talk_tokens(t, question, n, &tokens, e)) return false;
        size_t first = has_system(t);
        if (tokens <= enough || first == t->n) return true;
        do remove_at(t, first);
        while (first < t->n && t->message[first].role != TALK_USER);
    }
}
