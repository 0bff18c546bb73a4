#include "cli/chat_command.h"
#include "base/num.h"
#include "cli/options.h"
#include "cli/output.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef chat_action command_fn(chat_session *s, const char *rest);

static chat_action fail(chat_session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static chat_action fail(chat_session *s, const char *fmt, ...) {
    char what[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    cli_error("%s", what);
    s->failed = true;
    return CHAT_DONE;
}

static chat_action do_reset(chat_session *s, const char *rest) {
    (void)rest;
    talk_reset(s->t);
    s->last = (talk_turn){0};
    chat_view_note(&s->view, "a new conversation");
    return CHAT_DONE;
}

static chat_action do_system(chat_session *s, const char *rest) {
    const char *now = talk_system_text(s->t);
    if (!*rest && now) chat_view_note(&s->view, "system: %s", now);
    if (!*rest && !now)
        chat_view_note(&s->view, "no system message; /system TEXT sets one, /system - removes it");
    if (!*rest) return CHAT_DONE;
    talk_system(s->t, strcmp(rest, "-") ? rest : NULL);
    chat_view_note(&s->view, strcmp(rest, "-") ? "system message set" : "system message removed");
    return CHAT_DONE;
}

enum { EXTENT = 80 };

/* "3 messages, 41 tokens" */
static const char *extent(const chat_session *s, char text[EXTENT]) {
    size_t n = talk_count(s->t), tokens = talk_size(s->t);
    snprintf(text, EXTENT, "%zu message%s, %zu token%s", n, str_plural(n), tokens, str_plural(tokens));
    return text;
}

static chat_action do_save(chat_session *s, const char *rest) {
    err e = {0};
    char text[EXTENT];
    if (!*rest) return fail(s, "/save FILE: a file name is missing");
    if (!talk_save(s->t, rest, &e)) return fail(s, "%s", e.msg);
    chat_view_note(&s->view, "saved to %s: %s", rest, extent(s, text));
    return CHAT_DONE;
}

static chat_action do_load(chat_session *s, const char *rest) {
    err e = {0};
    bool reread;
    char text[EXTENT];
    if (!*rest) return fail(s, "/load FILE: a file name is missing");
    if (!talk_load(s->t, rest, &reread, &e)) return fail(s, "%s", e.msg);
    s->last = (talk_turn){0};
    chat_view_note(&s->view, "loaded %s: %s%s", rest, extent(s, text), reread ? CHAT_REREAD : "");
    return CHAT_DONE;
}

static chat_action do_undo(chat_session *s, const char *rest) {
    (void)rest;
    if (!talk_undo(s->t, NULL)) return fail(s, "/undo: there is no question yet");
    size_t left = talk_count(s->t);
    chat_view_note(&s->view, "the last question and its reply are gone; %zu message%s left", left,
                   left == 1 ? " is" : "s are");
    return CHAT_DONE;
}

static chat_action do_retry(chat_session *s, const char *rest) {
    (void)rest;
    for (size_t i = 0; i < talk_count(s->t); i++)
        if (talk_at(s->t, i)->role == TALK_USER) return CHAT_RETRY;
    return fail(s, "/retry: there is no question yet");
}

static chat_action do_drop(chat_session *s, const char *rest) {
    size_t dropped;
    err e = {0};
    (void)rest;
    if (!talk_drop(s->t, "", 0, &dropped, &e)) return fail(s, "%s", e.msg);
    chat_view_note(&s->view,
                   dropped ? "dropped the oldest turns: %zu"
                           : "nothing dropped: there is room (messages: %zu)",
                   dropped ? dropped : talk_count(s->t));
    return CHAT_DONE;
}

static const char *thinking_of(const chat_session *s) {
    const chat_template *c = talk_template(s->t);
    chat_thinking now = talk_options_of(s->t)->thinking;
    if (!chat_can_think(c)) return "this model doesn't think";
    bool on = now == CHAT_THINK_ON || (now == CHAT_THINK_DEFAULT && chat_thinks_by_default(c));
    if (!chat_has_thinking_switch(c)) return s->view.hide ? "always on, hidden" : "always on, shown";
    return !on ? "off" : s->view.hide ? "on, hidden" : "on, shown";
}

static chat_action do_think(chat_session *s, const char *rest) {
    bool on = !strcmp(rest, "on"), off = !strcmp(rest, "off"), hide = !strcmp(rest, "hide");
    if (*rest && !on && !off && !hide) return fail(s, "/think takes on, off or hide, not '%s'", rest);
    if (*rest && !chat_has_thinking_switch(talk_template(s->t)))
        return fail(s, "/think: the chat template %s has no such switch", chat_name(talk_template(s->t)));
    if (*rest) {
        talk_options_of(s->t)->thinking = off ? CHAT_THINK_OFF : CHAT_THINK_ON;
        s->view.hide = hide;
    }
    chat_view_note(&s->view, "thinking: %s%s", thinking_of(s), *rest ? "" : "; /think on, off or hide");
    return CHAT_DONE;
}

/* ---- options ---- */

/* What /set takes. One of the pointers says where it is kept. */
typedef struct {
    const char *name;
    double low, high; /* as the option's */
    float *real;
    int64_t *whole; /* below 0: no bound */
    uint64_t *seed;
    bool sampling, open; /* without effect where the most likely token is taken; 0 means no bound */
    const char *zero;    /* what 0 means, where that isn't plain */
} setting;

enum { N_SETTINGS = 9 };

/* The range of the command's option of that name. */
static void set_range(setting *s) {
    const cli_option *o = cli_options;
    while (o->name && (o->command != cli_command_find("chat") || strcmp(o->name, s->name) != 0)) o++;
    assert(o->name);
    s->low = s->open ? 0 : o->low;
    s->high = o->high;
}

static void settings_of(chat_session *s, setting list[N_SETTINGS]) {
    talk_options *o = talk_options_of(s->t);
    sampler_options *p = &o->sampling;
    const setting all[N_SETTINGS] = {
        {"temperature", .real = &p->temperature, .zero = "the most likely token is taken"},
        {"top-k", .whole = &p->top_k, .sampling = true, .zero = "all"},
        {"top-p", .real = &p->top_p, .sampling = true},
        {"min-p", .real = &p->min_p, .sampling = true},
        {"repetition-penalty", .real = &p->repetition_penalty},
        {"presence-penalty", .real = &p->presence_penalty},
        {"frequency-penalty", .real = &p->frequency_penalty},
        {"seed", .seed = &p->seed, .sampling = true},
        {"max-new-tokens", .whole = &o->max_new, .open = true}};
    memcpy(list, all, sizeof all);
    for (size_t i = 0; i < N_SETTINGS; i++) set_range(&list[i]);
}

/* "temperature 0.7" */
static void add_setting(str *out, const setting *o) {
    bool zero = o->real ? *o->real == 0 : o->whole && !*o->whole;
    str_printf(out, "%s ", o->name);
    if (o->real)
        str_printf(out, "%.6g", (double)*o->real);
    else if (o->seed)
        str_printf(out, "%" PRIu64, *o->seed);
    else if (*o->whole < 0)
        str_adds(out, "as many as fit");
    else
        str_printf(out, "%" PRId64, *o->whole);
    if (zero && o->zero) str_printf(out, " (%s)", o->zero);
}

static void show_settings(chat_session *s) {
    setting list[N_SETTINGS];
    str text = {0};
    settings_of(s, list);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (i) str_adds(&text, ", ");
        add_setting(&text, &list[i]);
    }
    chat_view_note(&s->view, "%s", str_get(&text));
    str_free(&text);
}

static bool change(chat_session *s, const setting *o, const char *value) {
    double x = 0;
    int64_t n = 0;
    bool ok = o->real ? str_to_double(value, &x) : str_to_int64(value, &n);
    if (!o->real) x = (double)n;
    if (!ok || !(x >= o->low && x <= o->high)) return false;
    if (o->real) *o->real = (float)x;
    if (o->seed) talk_seed(s->t, (uint64_t)n);
    if (o->whole) *o->whole = !n && o->open ? -1 : n;
    return true;
}

/* What is in force now, and what stands in its way. */
static void confirm(const chat_session *s, const setting *o) {
    bool greedy = talk_options_of(s->t)->sampling.temperature < 1e-5f;
    str text = {0};
    add_setting(&text, o);
    chat_view_note(&s->view, "%s%s", str_get(&text),
                   greedy && o->sampling ? " (without effect while temperature is 0)" : "");
    str_free(&text);
}

static chat_action no_such_setting(chat_session *s, const setting list[N_SETTINGS], const char *name) {
    str all = {0};
    for (size_t i = 0; i < N_SETTINGS; i++) str_printf(&all, "%s%s", i ? ", " : "", list[i].name);
    fail(s, "/set: there is no option '%s'; there are %s", name, str_get(&all));
    str_free(&all);
    return CHAT_DONE;
}

static chat_action do_set(chat_session *s, const char *rest) {
    setting list[N_SETTINGS];
    char name[40] = "", value[40], extra;
    int n = sscanf(rest, "%39s %39s %c", name, value, &extra);
    settings_of(s, list);
    if (n < 1) return show_settings(s), CHAT_DONE;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const setting *o = &list[i];
        if (strcmp(o->name, name) != 0) continue;
        if (n == 1) return confirm(s, o), CHAT_DONE;
        if (n == 2 && change(s, o, value)) return confirm(s, o), CHAT_DONE;
        return fail(s, "/set %s takes a %s from %.17g to %.17g, not '%s'", name,
                    o->real ? "number" : "whole number", o->low, o->high,
                    rest + strcspn(rest, " \t") + strspn(rest + strcspn(rest, " \t"), " \t"));
    }
    return no_such_setting(s, list, name);
}

/* ---- figures ---- */

static double rate(size_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static void show_turn(const chat_session *s) {
    const talk_turn *l = &s->last;
    const chat_view *v = &s->view;
    if (!l->prompt) return;
    char left[60] = "";
    if (l->reused + l->fed < l->prompt)
        snprintf(left, sizeof left, "; stopped there, %zu left", l->prompt - l->reused - l->fed);
    chat_view_note(v, "last prompt    %zu token%s: %zu reused, %zu fed in %.2f s (%.1f tokens/s)%s",
                   l->prompt, str_plural(l->prompt), l->reused, l->fed, l->prompt_seconds,
                   rate(l->fed, l->prompt_seconds), left);
    if (l->moved) chat_view_note(v, "               it parted from what had been fed at token %zu", l->moved);
    chat_view_note(v, "last reply     %zu token%s in %.2f s (%.1f tokens/s): %s", l->written,
                   str_plural(l->written), l->decode_seconds,
                   rate(l->written ? l->written - 1 : 0, l->decode_seconds), talk_end_text(l->end));
}

static chat_action do_stats(chat_session *s, const char *rest) {
    const chat_view *v = &s->view;
    prefix_figures f = talk_prefixes(s->t);
    (void)rest;
    chat_view_note(v, "context        %zu of %" PRId64 " tokens, %zu message%s", talk_size(s->t),
                   talk_lm(s->t)->form.context, talk_count(s->t), str_plural(talk_count(s->t)));
    show_turn(s);
    chat_view_note(v,
                   "reused         %" PRIu64 " of %" PRIu64 " prompt tokens in %" PRIu64
                   " turn%s; %zu point%s kept, %.1f of %.0f MiB",
                   f.reused_ids, f.prompt_ids, f.seeks, str_plural(f.seeks), f.points, str_plural(f.points),
                   (double)f.bytes / 1048576, (double)f.budget / 1048576);
    chat_view_note(v, "template       %s, thinking %s; loaded in %.2f s", chat_name(talk_template(s->t)),
                   thinking_of(s), s->load_seconds);
    show_settings(s);
    return CHAT_DONE;
}

static chat_action do_quit(chat_session *s, const char *rest) {
    (void)s, (void)rest;
    return CHAT_QUIT;
}

static command_fn do_help;

static const struct {
    const char *name, *args, *what;
    command_fn *fn;
} commands[] = {
    {"help", "", "this list", do_help},
    {"reset", "", "begin a new conversation; the system message stays", do_reset},
    {"system", "[TEXT]", "show or set the system message; - removes it", do_system},
    {"undo", "", "take the last question and its reply back", do_undo},
    {"retry", "", "let the model reply to the last question once more", do_retry},
    {"drop", "", "drop the oldest turns until a quarter of the context is free", do_drop},
    {"think", "on|off|hide", "let the model think before it answers; hide: without showing it", do_think},
    {"set", "[NAME VALUE]", "show all options, or set one: temperature, top-k, ...", do_set},
    {"save", "FILE", "keep the conversation, with the model's states", do_save},
    {"load", "FILE", "go on with it, without reading it again", do_load},
    {"stats", "", "tokens, rates, what was reused, settings", do_stats},
    {"quit", "", "end; so does Ctrl-D", do_quit},
    {"exit", "", NULL, do_quit},
    {"bye", "", NULL, do_quit},
    {"?", "", NULL, do_help},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static chat_action do_help(chat_session *s, const char *rest) {
    (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].what)
            chat_view_note(&s->view, "/%-6s %-12s %s", commands[i].name, commands[i].args, commands[i].what);
    chat_view_note(&s->view,
                   "Several lines: end one with a backslash, put \"\"\" before and behind, or press "
                   "Alt-Enter. Ctrl-C stops a reply. // begins a message with a slash.");
    return CHAT_DONE;
}

chat_action chat_command(chat_session *s, str *text) {
    if (!text->len || text->s[0] != '/') return CHAT_TEXT;
    if (text->len > 1 && text->s[1] == '/') {
        memmove(text->s, text->s + 1, text->len--);
        return CHAT_TEXT;
    }
    size_t n = strcspn(text->s + 1, " \t\n"), end = text->len;
    while (end && strchr(" \t\n", text->s[end - 1])) text->s[--end] = 0;
    const char *rest = n + 1 < end ? text->s + 1 + n + strspn(text->s + 1 + n, " \t\n") : "";
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == n && !memcmp(commands[i].name, text->s + 1, n))
            return commands[i].fn(s, rest);
    return fail(s, "/%.*s is no command; /help lists them, // begins a message with a slash",
                n < 40 ? (int)n : 40, text->s + 1);
}
