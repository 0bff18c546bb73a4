#include "cli/chat_view.h"
#include "cli/line.h"
#include "cli/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIM     "\033[2m"
#define THOUGHT "\033[2;3m"
#define PROMPT  "\033[1;32m"
#define PLAIN   "\033[0m"
#define GAUGE   20 /* columns */
#define WAIT    "thinking..."

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

chat_view chat_view_of_stdout(bool hide) {
    const char *term = getenv("TERM");
    chat_view v = {.terminal = isatty(1), .hide = hide};
    v.erases = v.terminal && term && *term && strcmp(term, "dumb") != 0;
    v.styled = v.erases && !is_set("NO_COLOR");
    return v;
}

const char *chat_view_prompt_style(const chat_view *v) {
    return v->styled ? PROMPT : NULL;
}

/* ---- replies ---- */

/* Control characters, C1 ones too, are for the terminal's owner: they come out as U+FFFD. */
static void put_visible(const char *s, size_t n) {
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool c1 = c == 0xC2 && i + 1 < n && (unsigned char)s[i + 1] < 0xA0;
        if (c == '\n' || c == '\t' || (!c1 && c >= 32 && c != 127)) continue;
        cli_out(s + from, i - from);
        cli_out("\xEF\xBF\xBD", 3);
        i += c1;
        from = i + 1;
    }
    cli_out(s + from, n - from);
}

static void put(chat_view *v, const char *s, size_t n) {
    if (!n) return;
    if (v->terminal)
        put_visible(s, n);
    else
        cli_out(s, n);
    v->fresh_line = s[n - 1] == '\n';
}

static void say(const char *s) {
    cli_out(s, strlen(s));
}

void chat_view_begin(chat_view *v) {
    v->any = v->busy = false;
    v->fresh_line = true;
    v->kind = TALK_ANSWER;
}

static void stop_waiting(chat_view *v) {
    if (v->busy) say("\r\033[K");
    v->busy = false;
}

static void begin_reasoning(chat_view *v) {
    if (v->hide) {
        v->busy = v->erases;
        if (v->busy) cli_printf("%s" WAIT "%s", v->styled ? DIM : "", v->styled ? PLAIN : "");
    } else {
        say(v->styled ? THOUGHT : "[thinking]\n");
    }
}

static void end_reasoning(chat_view *v) {
    stop_waiting(v);
    if (v->hide) return;
    if (v->styled) say(PLAIN);
    if (!v->fresh_line) say("\n");
    say(v->styled ? "\n" : "[answer]\n");
    v->fresh_line = true;
}

bool chat_view_text(void *view, talk_kind kind, const char *s, size_t n) {
    chat_view *v = view;
    if (kind != v->kind) {
        if (kind == TALK_REASONING)
            begin_reasoning(v);
        else
            end_reasoning(v);
        v->kind = kind;
    }
    v->any = true;
    if (kind == TALK_ANSWER || !v->hide) put(v, s, n);
    return cli_flush();
}

void chat_view_end(chat_view *v) {
    stop_waiting(v);
    if (v->kind == TALK_REASONING && v->styled && !v->hide) say(PLAIN);
    if (!v->fresh_line || !v->terminal) say("\n");
    v->fresh_line = true;
    cli_flush();
}

/* ---- remarks ---- */

void chat_view_note(const chat_view *v, const char *fmt, ...) {
    char text[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!v->terminal) {
        cli_error("%s", text);
        return;
    }
    if (v->styled) say(DIM);
    put_visible(text, strlen(text));
    if (v->styled) say(PLAIN);
    say("\n");
    cli_flush();
}

void chat_view_cost(const chat_view *v, const talk_turn *turn, size_t used, size_t context) {
    if (!v->terminal) return;
    size_t share = used * GAUGE / (context ? context : 1), columns = (size_t)line_columns();
    char rate[40] = "", gauge[GAUGE + 1], line[160];
    if (turn->written > 1 && turn->decode_seconds > 0)
        snprintf(rate, sizeof rate, "%.1f tokens/s", (double)(turn->written - 1) / turn->decode_seconds);
    memset(gauge, '.', GAUGE);
    memset(gauge, '#', share < GAUGE ? share : GAUGE);
    gauge[GAUGE] = 0;
    if (columns && columns < 60)
        snprintf(line, sizeof line, "%zu/%zu", used, context);
    else
        snprintf(line, sizeof line, "%zu token%s%s%s, context [%s] %zu of %zu", turn->written,
                 str_plural(turn->written), *rate ? ", " : "", rate, gauge, used, context);
    chat_view_note(v, "%s", line);
}
