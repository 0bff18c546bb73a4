#define _GNU_SOURCE
#include "cli/line.h"
#include "base/heap.h"
#include "cli/console.h"
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define KEPT        1000               /* messages of the history */
#define LONGEST     ((size_t)16 << 20) /* bytes of a message: more than fits any context, where no line ends */
#define BRACKET_ON  "\033[?2004h"
#define BRACKET_OFF "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   L"\033[201~"

struct line_reader {
    bool typed;     /* standard input and output are a terminal */
    FILE *prompts;  /* NULL: nobody types */
    bool bracketed; /* it marks what is pasted */
    EditLine *el;   /* NULL: lines are read as they come */
    History *history;
    const char *file;
    char prompt[200];
    mbstate_t state;
};

int line_columns(void) {
    struct winsize w;
    return isatty(1) && !ioctl(1, TIOCGWINSZ, &w) ? w.ws_col : 0;
}

/* ---- the editor ---- */

/* Asks the terminal to mark what is pasted: from the first prompt to the end, since a paste during a reply,
 * too, is one message of the next prompt. */
static void bracket(bool on) {
    fputs(on ? BRACKET_ON : BRACKET_OFF, stdout);
    fflush(stdout);
    console_on_leave(on ? BRACKET_OFF "\n" : NULL, on ? BRACKET_ON : NULL);
}

static char *prompt_of(EditLine *el) {
    line_reader *r = NULL;
    el_get(el, EL_CLIENTDATA, &r);
    return r->prompt;
}

/* A byte of standard input; signals come only here, while nothing else is going on. 0: the end, -1: a signal
 * that ends the line. */
static int next_byte(EditLine *el, char *c) {
    sigset_t none;
    struct pollfd p = {.fd = 0, .events = POLLIN};
    sigemptyset(&none);
    for (;;) {
        if (console_terminated() || console_interrupted()) return -1;
        bool resized = console_resized(), resumed = console_resumed();
        if (resized) el_resize(el);
        if (resumed) { /* whoever had the terminal meanwhile has left it in a state of its own */
            el_set(el, EL_PREP_TERM, 0);
            el_set(el, EL_PREP_TERM, 1);
            bracket(true);
        }
        if (resized || resumed) { /* libedit takes it that the cursor is where the prompt begins */
            fputs("\r\033[J", stdout);
            fflush(stdout);
            el_set(el, EL_REFRESH);
        }
        int n = ppoll(&p, 1, NULL, &none);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        ssize_t got = read(0, c, 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        return got < 0 ? 0 : (int)got; /* a terminal that hung up is an end */
    }
}

static int next_char(EditLine *el, wchar_t *w) {
    line_reader *r = NULL;
    el_get(el, EL_CLIENTDATA, &r);
    for (;;) {
        char c;
        int n = next_byte(el, &c);
        if (n <= 0) return n;
        size_t k = mbrtowc(w, &c, 1, &r->state);
        if (k == (size_t)-2) continue;
        if (k == (size_t)-1) {
            memset(&r->state, 0, sizeof r->state);
            *w = 0xFFFD;
        }
        return 1;
    }
}

static unsigned char insert(EditLine *el, const wchar_t *text) {
    return el_winsertstr(el, text) ? CC_ERROR : CC_REFRESH;
}

static unsigned char new_line(EditLine *el, int c) {
    (void)c;
    return insert(el, L"\n");
}

/* What is pasted comes between two marks: its newlines don't end the line. */
static unsigned char paste(EditLine *el, int c) {
    wchar_t part[2] = {0}, *text = NULL;
    size_t n = 0, cap = 0, end = wcslen(PASTE_END);
    unsigned char result = CC_REFRESH;
    (void)c;
    while (next_char(el, part) == 1) {
        if (n + 2 > cap) text = mem_realloc(text, (cap = 2 * cap + 256) * sizeof *text);
        text[n++] = *part == L'\r' ? L'\n' : *part;
        if (n < end || wmemcmp(text + n - end, PASTE_END, end)) continue;
        n -= end;
        break;
    }
    if (n) {
        text[n] = 0;
        result = insert(el, text);
    }
    mem_free(text);
    return result;
}

static bool plain_terminal(void) {
    const char *term = getenv("TERM");
    return !term || !*term || !strcmp(term, "dumb");
}

static void open_history(line_reader *r) {
    HistEvent ev;
    r->history = history_init();
    if (!r->history) return;
    history(r->history, &ev, H_SETSIZE, KEPT);
    history(r->history, &ev, H_SETUNIQUE, 1);
    if (r->file) history(r->history, &ev, H_LOAD, r->file);
    el_set(r->el, EL_HIST, history, r->history);
}

static void open_editor(line_reader *r) {
    r->el = el_init("millet", stdin, stdout, stderr);
    if (!r->el) return;
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_SIGNAL, 0);
    el_set(r->el, EL_PROMPT_ESC, prompt_of, '\1');
    el_wset(r->el, EL_GETCFN, next_char);
    el_wset(r->el, EL_ADDFN, L"millet-newline", L"begin a line", new_line); /* el_set() leaks the words */
    el_wset(r->el, EL_ADDFN, L"millet-paste", L"insert what is pasted", paste);
    el_set(r->el, EL_BIND, "\033\n", "millet-newline", NULL);
    el_set(r->el, EL_BIND, "\033\r", "millet-newline", NULL);
    el_set(r->el, EL_BIND, PASTE_BEGIN, "millet-paste", NULL);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(r->el, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
    el_set(r->el, EL_BIND, "\033[1;5D", "ed-prev-word", NULL);
    el_set(r->el, EL_BIND, "\033[1;5C", "em-next-word", NULL);
    el_source(r->el, NULL); /* the user's own .editrc */
    open_history(r);
}

line_reader *line_open(const char *history_file) {
    line_reader *r = mem_alloc(sizeof *r);
    *r = (line_reader){.typed = isatty(0) && isatty(1), .file = history_file};
    /* characters; numbers stay as they are everywhere */
    const char *name = setlocale(LC_CTYPE, "");
    if (!name || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    if (isatty(0)) r->prompts = isatty(1) ? stdout : isatty(2) ? stderr : NULL;
    console_open(r->prompts != NULL);
    if (r->typed && !plain_terminal()) open_editor(r);
    console_hush(r->el);
    return r;
}

void line_close(line_reader *r) {
    if (!r) return;
    if (r->bracketed) bracket(false);
    console_close();
    if (r->el) el_end(r->el);
    if (r->history) history_end(r->history);
    mem_free(r);
}

bool line_is_terminal(const line_reader *r) {
    return r->prompts != NULL;
}

static void show(const line_reader *r, const char *text) {
    if (!r->prompts) return;
    fputs(text, r->prompts);
    fflush(r->prompts);
}

void line_leave(line_reader *r) {
    show(r, "\n");
}

/* ---- reading ---- */

static line_status after_failure(const line_reader *r) {
    if (console_terminated()) return LINE_TERMINATED;
    if (!console_interrupted()) return LINE_END;
    show(r, r->el ? "^C\n" : "\n"); /* without the editor the terminal has shown it */
    return LINE_INTERRUPT;
}

static void set_prompt(line_reader *r, const char *prompt, const char *style) {
    size_t n = strlen(prompt);
    if (style && n) /* libedit keeps what isn't shown for the next character: there must be one */
        snprintf(r->prompt, sizeof r->prompt, "\1%s\1%.*s\1\033[0m\1%s", style, (int)n - 1, prompt,
                 prompt + n - 1);
    else
        snprintf(r->prompt, sizeof r->prompt, "%s", prompt);
}

static line_status edited(line_reader *r, str *text) {
    sigset_t block, old;
    sigemptyset(&block);
    for (const int *w = console_signals; *w; w++) sigaddset(&block, *w);
    sigprocmask(SIG_BLOCK, &block, &old);
    bracket(r->bracketed = true);
    int n = 0;
    const char *line = el_gets(r->el, &n);
    if (line && n > 0) str_add(text, line, (size_t)n);
    const LineInfo *left = line ? NULL : el_line(r->el); /* what was typed so far */
    if (left && console_interrupted() && left->lastchar > left->buffer)
        str_add(text, left->buffer, (size_t)(left->lastchar - left->buffer));
    if (!line) el_reset(r->el);
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (line && n > 0) return LINE_TEXT;
    return after_failure(r);
}

static line_status unedited(line_reader *r, str *text) {
    show(r, r->prompt);
    size_t before = text->len;
    int c;
    while ((c = getc(stdin)) != EOF && c != '\n' && text->len < LONGEST) str_addc(text, (char)c);
    if (c != EOF || (text->len > before && !console_interrupted() && !console_terminated())) return LINE_TEXT;
    if (ferror(stdin)) clearerr(stdin);
    return after_failure(r);
}

/* One line, its newline taken off. */
static line_status one_line(line_reader *r, const char *prompt, const char *style, str *text) {
    size_t before = text->len;
    set_prompt(r, prompt, r->el ? style : NULL);
    if (console_terminated()) return LINE_TERMINATED;
    console_show();
    line_status s = r->el ? edited(r, text) : unedited(r, text);
    console_hush(r->el);
    while (text->len > before && (text->s[text->len - 1] == '\n' || text->s[text->len - 1] == '\r'))
        text->s[--text->len] = 0;
    return s;
}

static bool ends_with(const str *t, const char *end) {
    size_t n = strlen(end);
    return t->len >= n && !memcmp(t->s + t->len - n, end, n);
}

static void cut_tail(str *t, size_t n) {
    t->len -= n;
    t->s[t->len] = 0;
}

/* Further lines of a message that asks for them. */
static line_status rest(line_reader *r, const char *more, const char *style, str *text) {
    bool block = text->len >= 3 && !memcmp(text->s, "\"\"\"", 3);
    line_status s = LINE_TEXT;
    if (block) {
        memmove(text->s, text->s + 3, text->len - 2);
        text->len -= 3;
        while (!ends_with(text, "\"\"\"")) {
            str_addc(text, '\n');
            if ((s = one_line(r, more, style, text)) != LINE_TEXT) return s;
        }
        cut_tail(text, 3);
        while (text->len && text->s[0] == '\n') memmove(text->s, text->s + 1, text->len--);
        while (ends_with(text, "\n")) cut_tail(text, 1);
        return s;
    }
    while (s == LINE_TEXT && ends_with(text, "\\")) {
        text->s[text->len - 1] = '\n';
        s = one_line(r, more, style, text);
    }
    return s;
}

/* Bytes that are not UTF-8 as U+FFFD. */
static void mend(str *text) {
    str good = {0};
    for (size_t i = 0; i < text->len;) {
        size_t n = utf8_valid(text->s + i, text->len - i);
        str_add(&good, text->s + i, n);
        i += n;
        if (i < text->len) str_adds(&good, "\xEF\xBF\xBD"), i++;
    }
    str_clear(text);
    str_add(text, str_get(&good), good.len);
    str_free(&good);
}

line_status line_read(line_reader *r, const char *prompt, const char *more, const char *style, str *text) {
    str_clear(text);
    line_status s = one_line(r, prompt, style, text);
    if (s == LINE_TEXT && text->len) s = rest(r, more, style, text);
    if (s == LINE_END && text->len) s = LINE_TEXT; /* a block without an end */
    mend(text);
    HistEvent ev;
    if (s == LINE_TEXT && r->history && text->len && strspn(text->s, " \t\n") < text->len) {
        history(r->history, &ev, H_ENTER, str_get(text));
        if (r->file) history(r->history, &ev, H_SAVE, r->file);
    }
    return s;
}

line_status line_ask(line_reader *r, const char *question, str *text) {
    str_clear(text);
    if (r->prompts) console_forget();
    return one_line(r, question, NULL, text);
}
