#include "text/chat.h"
#include "base/file.h"
#include "base/sha256.h"
#include "text/chat_forms.h"
#include <string.h>

#define CHAT_FORM(name, render, calls, flags, by_default, off, on, system)                                   \
    {name, render, calls, flags, {by_default, off, on}, system},
#define CHAT_KNOWN(sha, name)
static const chat_form forms[] = {
#include "text/chat_templates.def"
};
#undef CHAT_FORM
#undef CHAT_KNOWN

#define CHAT_FORM(name, render, calls, flags, by_default, off, on, system)
#define CHAT_KNOWN(sha, name) {sha, name},
static const struct {
    const char *sha, *name;
} known[] = {
#include "text/chat_templates.def"
};
#undef CHAT_FORM
#undef CHAT_KNOWN

#define CHAT_FORM(name, render, calls, flags, by_default, off, on, system) ", " name
#define CHAT_KNOWN(sha, name)
static const char names[] =
#include "text/chat_templates.def"
    ;
#undef CHAT_FORM
#undef CHAT_KNOWN

struct chat_template {
    chat_form form;
    char *note, *system; /* may be NULL */
};

/* ---- Choosing ---- */

const char *chat_template_names(void) {
    return names + strlen(", ");
}

const chat_form *chat_form_find(const char *name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(forms[i].name, name)) return &forms[i];
    return NULL;
}

static char *copy(const char *s, size_t n) {
    char *c = mem_alloc(n + 1);
    memcpy(c, s, n);
    c[n] = 0;
    return c;
}

static chat_template *make(const chat_form *form) {
    chat_template *c = mem_alloc(sizeof *c);
    *c = (chat_template){.form = *form};
    return c;
}

static void digest(const char *s, size_t n, const char *more, char hex[SHA256_HEX]) {
    sha256 h;
    sha256_init(&h);
    sha256_update(&h, s, n);
    sha256_update(&h, more, strlen(more));
    sha256_final(&h, hex);
}

/* The form of a template that is known byte for byte but for a newline at its end. */
static const chat_form *by_digest(const char *s, size_t n, char hex[SHA256_HEX]) {
    size_t bare = n;
    while (bare && s[bare - 1] == '\n') bare--;
    char other[2][SHA256_HEX];
    digest(s, n, "", hex);
    digest(s, bare, "", other[0]);
    digest(s, bare, "\n", other[1]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].sha, hex) || !strcmp(known[i].sha, other[0]) || !strcmp(known[i].sha, other[1]))
            return chat_form_find(known[i].name);
    return NULL;
}

chat_template *chat_open_text(const char *jinja, size_t n, err *e) {
    char hex[SHA256_HEX];
    const chat_form *form = by_digest(jinja, n, hex);
    if (form) return make(form);
    chat_form guess;
    chat_view system;
    if (chat_by_marks(&guess, jinja, n, &system)) {
        chat_template *c = make(&guess);
        str note = {0};
        str_printf(&note,
                   "the chat template (SHA-256 %.16s...) is not one that is known byte for byte; by what is "
                   "in it, it is "
                   "taken for %s%s",
                   hex, guess.name, system.n ? " with a system message" : "");
        c->note = copy(note.s, note.len);
        if (system.n) c->form.system = c->system = copy(system.s, system.n);
        str_free(&note);
        return c;
    }
    err_set(e, ERR_UNSUPPORTED, "the chat template (SHA-256 %s) is not known; choose one of %s", hex,
            chat_template_names());
    return NULL;
}

/* "chat_template" of tokenizer_config.json: a text, or a list of named ones. */
static const json *config_template(const json *config) {
    const json *t = json_get(config, "chat_template");
    if (t && t->kind == JSON_STRING) return t;
    if (t && t->kind == JSON_ARRAY) JSON_EACH(c, t) {
            if (!strcmp(json_str(c, "name", ""), "default")) return json_get_kind(c, "template", JSON_STRING);
        }
    return NULL;
}

static chat_template *open_file(const char *path, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return NULL;
    chat_template *c = chat_open_text((const char *)m.data, m.size, e);
    file_unmap(&m);
    if (!c) err_where(e, "%s", path);
    return c;
}

static chat_template *open_config(arena *a, const char *path, err *e) {
    const json *config = json_object_file(a, path, e);
    if (!config) return NULL;
    const json *t = config_template(config);
    chat_template *c = NULL;
    if (t)
        c = chat_open_text(t->s, t->len, e);
    else
        err_set(e, ERR_UNSUPPORTED, "no \"chat_template\"; choose one of %s", chat_template_names());
    if (!c) err_where(e, "%s", path);
    return c;
}

chat_template *chat_open(const char *dir, const char *name, err *e) {
    if (name) {
        const chat_form *form = chat_form_find(name);
        if (form) return make(form);
        err_set(e, ERR_USAGE, "there is no chat template \"%.60s\"; choose one of %s", name,
                chat_template_names());
        return NULL;
    }
    arena *a = arena_new();
    const char *file = arena_printf(a, "%s/chat_template.jinja", dir);
    const char *config = arena_printf(a, "%s/tokenizer_config.json", dir);
    chat_template *c = NULL;
    if (file_exists(file))
        c = open_file(file, e);
    else if (file_exists(config))
        c = open_config(a, config, e);
    else
        err_set(e, ERR_UNSUPPORTED, "%s: no chat template; choose one of %s", dir, chat_template_names());
    arena_free(a);
    return c;
}

void chat_close(chat_template *c) {
    if (!c) return;
    mem_free(c->note);
    mem_free(c->system);
    mem_free(c);
}

const char *chat_name(const chat_template *c) {
    return c->form.name;
}

const char *chat_note(const chat_template *c) {
    return c->note;
}

chat_calls chat_calls_of(const chat_template *c) {
    return c->form.calls;
}

bool chat_can_think(const chat_template *c) {
    return c->form.flags & CHAT_THINKS;
}

bool chat_has_thinking_switch(const chat_template *c) {
    return c->form.end[CHAT_THINK_OFF] != c->form.end[CHAT_THINK_ON];
}

bool chat_thinks_by_default(const chat_template *c) {
    return c->form.flags & CHAT_THINKS && c->form.end[CHAT_THINK_DEFAULT] != CHAT_END_EMPTY;
}

/* ---- Rendering ---- */

static bool read_flag(const json *options, const char *key, bool *set, bool *value, err *e) {
    const json *v = json_get(options, key);
    *set = v && v->kind != JSON_NULL;
    if (*set && v->kind != JSON_BOOL) return err_set(e, ERR_USAGE, "%s: expected true or false", key);
    *value = *set && v->i;
    return true;
}

bool chat_options_read(chat_options *o, const json *options, err *e) {
    bool set, value, keep, generation;
    *o = (chat_options){.tools = json_get(options, "tools")};
    if (o->tools && o->tools->kind == JSON_NULL) o->tools = NULL;
    if (o->tools && o->tools->kind != JSON_ARRAY) return err_set(e, ERR_USAGE, "tools: expected an array");
    if (!read_flag(options, "preserve_thinking", &set, &keep, e) ||
        !read_flag(options, "add_generation_prompt", &set, &generation, e) ||
        !read_flag(options, "enable_thinking", &set, &value, e))
        return false;
    o->keep_thinking = keep;
    o->generation = generation;
    o->thinking = !set ? CHAT_THINK_DEFAULT : value ? CHAT_THINK_ON : CHAT_THINK_OFF;
    return true;
}

static bool check_messages(const json *messages, err *e) {
    if (!messages || messages->kind != JSON_ARRAY)
        return err_set(e, ERR_USAGE, "messages: expected an array");
    if (!messages->len) return err_set(e, ERR_USAGE, "messages: the conversation is empty");
    size_t i = 0;
    JSON_EACH(m, messages) {
        if (!json_get_kind(m, "role", JSON_STRING))
            return err_set(e, ERR_USAGE, "messages[%zu]: expected an object with a \"role\"", i);
        i++;
    }
    return true;
}

void chat_prompt_free(chat_prompt *p) {
    str_free(&p->text);
    mem_free(p->control);
    *p = (chat_prompt){0};
}

bool chat_render(const chat_template *c, const json *messages, const chat_options *o, chat_prompt *p,
                 err *e) {
    static const char *const ends[] = {"", "<think>\n\n</think>\n\n", "<think>\n"};
    str_clear(&p->text);
    p->count = 0;
    p->thinking = false;
    if (!check_messages(messages, e)) return false;
    chat_writer w = {.form = &c->form, .messages = messages, .o = o, .p = p, .e = e};
    if (c->form.calls == CHAT_CALLS_NONE && chat_tools(&w))
        return err_set(e, ERR_UNSUPPORTED, "tools: the chat template %s has no place for them", c->form.name);
    w.a = arena_new();
    bool ok = c->form.render(&w);
    if (ok && o->generation) {
        chat_end end = c->form.end[o->thinking];
        chat_own(&w, "<|im_start|>assistant\n");
        chat_own(&w, ends[end]);
        p->thinking = end == CHAT_END_OPEN;
    }
    arena_free(w.a);
    return ok;
}

bool chat_encode(const chat_prompt *p, const tokenizer *t, bool allow_special, token_list *out, err *e) {
    if (allow_special) return tokenizer_encode(t, str_get(&p->text), p->text.len, 0, out, e);
    return tokenizer_encode_spans(t, str_get(&p->text), p->text.len, p->control, p->count, out, e);
}
