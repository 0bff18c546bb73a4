#define _GNU_SOURCE /* clock_gettime */
#include "base/clock.h"
#include "cli/chat_command.h"
#include "cli/console.h"
#include "cli/constraint.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sampling.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static bool go_on(void *ctx) {
    (void)ctx;
    return !console_interrupted() && !console_terminated();
}

/* A seed of its own for each start, unless one is given. */
static uint64_t fresh_seed(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return ((uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec) & 0xFFFFFFFF;
}

static bool read_options(const cli_args *a, const lm *m, talk_options *o, err *e) {
    const char *think = cli_text(a, "think");
    *o = (talk_options){.mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT,
                        .max_new = cli_given(a, "max-new-tokens") ? cli_int(a, "max-new-tokens") : -1,
                        .keep_thinking = cli_flag(a, "keep-thinking"),
                        .template_name = cli_text(a, "template"),
                        .budget = (size_t)cli_int(a, "cache") << 20};
    if (think) o->thinking = strcmp(think, "off") ? CHAT_THINK_ON : CHAT_THINK_OFF;
    if (!talk_sampling(m, &o->sampling, e)) return false;
    o->sampling.seed = fresh_seed();
    cli_sampling(a, &o->sampling);
    return cli_forms(a, o, e);
}

/* ---- turns ---- */

/* Asks until the answer is one. */
static bool is_agreed(line_reader *in, const char *question) {
    str answer = {0};
    int agreed = -1;
    while (agreed < 0 && line_ask(in, question, &answer) == LINE_TEXT) {
        const char *s = str_get(&answer);
        if (!strcasecmp(s, "y") || !strcasecmp(s, "yes")) agreed = 1;
        if (!*s || !strcasecmp(s, "n") || !strcasecmp(s, "no")) agreed = 0;
    }
    str_free(&answer);
    return agreed > 0;
}

/* Makes room by the oldest turns, if that is wanted. */
static bool make_room(chat_session *s, const cli_args *a, const str *question) {
    size_t dropped = 0;
    err e = {0};
    if (!cli_flag(a, "drop-oldest") &&
        !(line_is_terminal(s->in) && is_agreed(s->in, "Drop the oldest turns to make room? [y/n] ")))
        return false;
    if (!talk_drop(s->t, str_get(question), question->len, &dropped, &e)) {
        cli_error("%s", e.msg);
        return false;
    }
    chat_view_note(&s->view, "dropped the oldest turns: %zu", dropped);
    return dropped > 0;
}

static void after_turn(chat_session *s, const talk_turn *turn) {
    chat_view_end(&s->view);
    s->last = *turn;
    if (!cli_flush()) return; /* nobody reads */
    if (turn->end == TALK_STOPPED && !s->view.any)
        chat_view_note(&s->view, "stopped; the question is taken back");
    else if (turn->end == TALK_FULL)
        chat_view_note(&s->view,
                       "the context is full: the reply ends here. /drop makes room by the oldest turns, "
                       "/reset begins anew");
    else if (turn->end != TALK_END)
        chat_view_note(&s->view, "(%s)", talk_end_text(turn->end));
    chat_view_cost(&s->view, turn, talk_size(s->t), (size_t)talk_lm(s->t)->form.context);
}

/* A question and its reply; again: the last one. */
static bool turn(chat_session *s, const cli_args *a, const str *question, bool again) {
    const talk_watch w = {chat_view_text, go_on, &s->view, console_cancel()};
    talk_turn done;
    err e = {0};
    console_calm();
    chat_view_begin(&s->view);
    bool ok = again ? talk_again(s->t, &w, &done, &e)
                    : talk_ask(s->t, str_get(question), question->len, &w, &done, &e);
    if (!ok && e.code == ERR_LIMIT && !again) {
        cli_error("%s", e.msg);
        if (make_room(s, a, question)) return turn(s, a, question, false);
        chat_view_note(&s->view, "/drop makes room by the oldest turns, /reset begins anew");
        return false;
    }
    if (ok)
        after_turn(s, &done);
    else
        cli_error("%s", e.msg);
    console_calm();
    bool cut = done.end == TALK_LENGTH || done.end == TALK_FULL || done.end == TALK_LOOP;
    return ok && !(cut && talk_options_of(s->t)->form); /* a document that was cut is none */
}

/* ---- the conversation ---- */

static bool blank(const str *text) {
    return strspn(str_get(text), " \t\r\n") == text->len;
}

/* Ctrl-C twice at an empty prompt ends, once says so. */
static bool ends(chat_session *s, line_status status, const str *text, int *interrupts) {
    if (status == LINE_END || status == LINE_TERMINATED) return true;
    console_calm();
    if (status == LINE_TEXT || text->len) {
        *interrupts = 0;
        return false;
    }
    if (++*interrupts > 1) return true;
    chat_view_note(&s->view, "Ctrl-C again or Ctrl-D ends");
    return false;
}

static void converse(chat_session *s, const cli_args *a) {
    const char *style = chat_view_prompt_style(&s->view);
    str text = {0};
    int interrupts = 0;
    for (bool on = true; on;) {
        line_status status = line_read(s->in, "> ", ". ", style, &text);
        if (ends(s, status, &text, &interrupts)) break;
        if (status != LINE_TEXT || blank(&text)) continue;
        chat_action action = chat_command(s, &text);
        on = action != CHAT_QUIT;
        if (action == CHAT_TEXT || action == CHAT_RETRY)
            s->failed |= !turn(s, a, &text, action == CHAT_RETRY);
        on = on && cli_flush() && !console_terminated();
        if (s->failed && !line_is_terminal(s->in)) break; /* a script's next line counts on this one */
    }
    line_leave(s->in);
    str_free(&text);
}

static void greet(const chat_session *s, const lm *m) {
    const char *note = chat_note(talk_template(s->t));
    if (note) cli_error("warning: %s", note);
    if (!line_is_terminal(s->in)) return;
    const char *name = m->name[m->n_model - 1], *dir = strrchr(m->dir, '/');
    chat_view_note(&s->view, "%s, context of %lld tokens, template %s. /help lists commands, Ctrl-D ends.",
                   m->n_model > 1 || m->ours ? (dir && dir[1] ? dir + 1 : m->dir) : name,
                   (long long)m->form.context, chat_name(talk_template(s->t)));
}

static bool begin(chat_session *s, const cli_args *a, err *e) {
    bool reread = false;
    str system = {0};
    const char *from = cli_text(a, "load");
    if (from && !talk_load(s->t, from, &reread, e)) return false;
    if (from && reread) chat_view_note(&s->view, "loaded %s" CHAT_REREAD, from);
    if (cli_given(a, "system")) talk_system(s->t, cli_text(a, "system"));
    if (cli_given(a, "system-file")) {
        if (!cli_read_text(&system, cli_text(a, "system-file"), e)) return false;
        talk_system(s->t, str_get(&system));
    }
    str_free(&system);
    return true;
}

int cmd_chat(const cli_args *a) {
    if (cli_given(a, "json-schema") && cli_flag(a, "json-object"))
        return cli_usage(a, "give one of --json-object and --json-schema");
    if (cli_given(a, "json-schema") && !strcmp(cli_text(a, "json-schema"), "-"))
        return cli_usage(a, "--json-schema: standard input is the conversation");
    if (cli_given(a, "system") && cli_given(a, "system-file"))
        return cli_usage(a, "give one of --system and --system-file");
    err e = {0};
    talk_options o = {0};
    const char *think = cli_text(a, "think");
    chat_session s = {.view = chat_view_of_stdout(think && !strcmp(think, "hide"))};
    double start = clock_seconds();
    s.in = line_open(cli_text(a, "history"));
    lm *m = lm_open_as(cli_arg(a, "PACKAGE"), cli_text(a, "tokenizer"), cli_text(a, "contract"), &e);
    bool ok = m && read_options(a, m, &o, &e) && (s.t = talk_open(m, &o, &e)) && begin(&s, a, &e);
    s.load_seconds = clock_seconds() - start;
    if (ok) greet(&s, m);
    if (ok) converse(&s, a);
    bool script = !line_is_terminal(s.in);
    talk_close(s.t);
    grammar_free(o.form);
    grammar_free(o.form_behind);
    lm_close(m);
    line_close(s.in);
    if (console_terminated()) return 128 + console_terminated();
    if (!ok) return cli_fail(&e);
    return s.failed && script ? CLI_FAILED : CLI_OK;
}
