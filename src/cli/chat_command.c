#include "cli/chat_command.h"
#include "base/num.h"
#include "cli/output.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef chat_action command_fn(chat_session *s, const char *rest);

static chat_action fail(chat_session *s, const char *what) {
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

static chat_action do_save(chat_session *s, const char *rest) {
    err e = {0};
    if (!*rest) return fail(s, "/save FILE: a file name is missing");
    if (!talk_save(s->t, rest, &e)) return fail(s, e.msg);
    chat_view_note(&s->view, "saved to %s: %zu messages, %zu tokens", rest, talk_count(s->t),
                   talk_position(s->t));
    return CHAT_DONE;
}

static chat_action do_load(chat_session *s, const char *rest) {
    err e = {0};
    bool reread;
    if (!*rest) return fail(s, "/load FILE: a file name is missing");
    if (!talk_load(s->t, rest, &reread, &e)) return fail(s, e.msg);
    s->last = (talk_turn){0};
    chat_view_note(&s->view, "loaded %s: %zu messages, %zu tokens%s", rest, talk_count(s->t),
                   reread ? 0 : talk_position(s->t),
                   reread ? "; it was saved with another artifact, so the next turn reads it again" : "");
    return CHAT_DONE;
}

static chat_action do_undo(chat_session *s, const char *rest) {
    (void)rest;
    if (!talk_undo(s->t, NULL)) return fail(s, "/undo: there is no question yet");
    chat_view_note(&s->view, "the last question and its reply are gone; %zu messages are left",
                   talk_count(s->t));
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
    if (!talk_drop(s->t, "", 0, &dropped, &e)) return fail(s, e.msg);
    chat_view_note(&s->view,
                   dropped ? "dropped the oldest turns: %zu" : "nothing dropped: there is room (%zu)",
                   dropped ? dropped : talk_count(s->t));
    return CHAT_DONE;
}

static chat_action do_think(chat_session *s, const char *rest) {
    bool on = !strcmp(rest, "on"), off = !strcmp(rest, "off"), hide = !strcmp(rest, "hide");
    if (!on && !off && !hide) return fail(s, "/think takes on, off or hide");
    if (!chat_has_thinking_switch(talk_template(s->t)))
        return fail(s, "/think: this model's chat template has no such switch");
    talk_options_of(s->t)->thinking = off ? CHAT_THINK_OFF : CHAT_THINK_ON;
    s->view.hide = hide;
    return CHAT_DONE;
}

/* Options of the sampler that can be set. */
static float *option_of(sampler_options *o, const char *name, double *low, double *high) {
    const struct {
        const char *name;
        float *to;
        double low, high;
    } known[] = {{"temperature", &o->temperature, 0, 100},
                 {"top-p", &o->top_p, 0, 1},
                 {"min-p", &o->min_p, 0, 1},
                 {"repetition-penalty", &o->repetition_penalty, 0.01, 100},
                 {"presence-penalty", &o->presence_penalty, -100, 100},
                 {"frequency-penalty", &o->frequency_penalty, -100, 100}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name)) continue;
        *low = known[i].low;
        *high = known[i].high;
        return known[i].to;
    }
    return NULL;
}

static chat_action do_set(chat_session *s, const char *rest) {
    char name[40], value[40], extra;
    talk_options *o = talk_options_of(s->t);
    double x, low, high;
    int64_t n;
    if (sscanf(rest, "%39s %39s %c", name, value, &extra) != 2)
        return fail(
            s, "/set NAME VALUE: temperature, top-k, top-p, min-p, repetition-penalty, presence-penalty, "
               "frequency-penalty, seed, max-new-tokens");
    float *to = option_of(&o->sampling, name, &low, &high);
    bool ok = false;
    if (to && str_to_double(value, &x) && (ok = x >= low && x <= high)) *to = (float)x;
    if (!to && str_to_int64(value, &n) && n >= 0) {
        ok = true;
        if (!strcmp(name, "top-k"))
            o->sampling.top_k = n;
        else if (!strcmp(name, "seed"))
            o->sampling.seed = (uint64_t)n;
        else if (!strcmp(name, "max-new-tokens"))
            o->max_new = n ? n : -1;
        else
            ok = false;
    }
    if (!ok) return fail(s, "/set: no such option, or not a value that it takes");
    chat_view_note(&s->view, "%s %s", name, value);
    return CHAT_DONE;
}

static double rate(size_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static void show_turn(const chat_session *s) {
    const talk_turn *l = &s->last;
    const chat_view *v = &s->view;
    if (!l->prompt) return;
    chat_view_note(v, "last prompt    %zu tokens: %zu reused, %zu fed in %.2f s (%.1f tokens/s)", l->prompt,
                   l->reused, l->prompt - l->reused, l->prompt_seconds,
                   rate(l->prompt - l->reused, l->prompt_seconds));
    if (l->moved) chat_view_note(v, "               it parted from what had been fed at token %zu", l->moved);
    chat_view_note(v, "last reply     %zu tokens in %.2f s (%.1f tokens/s): %s", l->written,
                   l->decode_seconds, rate(l->written ? l->written - 1 : 0, l->decode_seconds),
                   talk_end_text(l->end));
}

static chat_action do_stats(chat_session *s, const char *rest) {
    const talk_options *o = talk_options_of(s->t);
    const sampler_options *p = &o->sampling;
    const chat_view *v = &s->view;
    prefix_figures f = talk_prefixes(s->t);
    (void)rest;
    chat_view_note(v, "context        %zu of %" PRId64 " tokens, %zu messages", talk_position(s->t),
                   talk_lm(s->t)->form.context, talk_count(s->t));
    show_turn(s);
    chat_view_note(v,
                   "reused         %" PRIu64 " of %" PRIu64 " prompt tokens in %" PRIu64
                   " turns; %zu points kept, %.1f of %.0f MiB",
                   f.reused_ids, f.prompt_ids, f.seeks, f.points, (double)f.bytes / 1048576,
                   (double)f.budget / 1048576);
    chat_view_note(v, "sampling       temperature %g, top-k %" PRId64 ", top-p %g, min-p %g, seed %" PRIu64,
                   (double)p->temperature, p->top_k, (double)p->top_p, (double)p->min_p, p->seed);
    chat_view_note(v, "penalties      repetition %g, presence %g, frequency %g",
                   (double)p->repetition_penalty, (double)p->presence_penalty, (double)p->frequency_penalty);
    chat_view_note(v, "template       %s; loaded in %.2f s", chat_name(talk_template(s->t)), s->load_seconds);
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
    {"set", "NAME VALUE", "set an option: temperature, top-k, top-p, seed, ...", do_set},
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
    char what[120];
    snprintf(what, sizeof what, "/%.*s is no command; /help lists them, // begins a message with a slash",
             n < 40 ? (int)n : 40, text->s + 1);
    return fail(s, what);
}
