/* Lines that a person types: edited, with history, in a terminal; as they come elsewhere.
 *
 *     line_reader *r = line_open(history_file);
 *     while (line_read(r, "> ", ". ", &text) == LINE_TEXT) ...
 *     line_close(r);
 *
 * A message may have several lines: those that end in a backslash go on with the next one; from """ to """
 * all counts; in a terminal Alt-Enter begins a line, and what is pasted is one piece. */
#ifndef CLI_LINE_H
#define CLI_LINE_H
#include "base/str.h"

typedef struct line_reader line_reader;

typedef enum {
    LINE_TEXT,
    LINE_END,       /* no more input: Ctrl-D, end of a file */
    LINE_INTERRUPT, /* Ctrl-C; text: what had been typed */
    LINE_TERMINATED /* SIGTERM or SIGHUP */
} line_status;

/* history: a file to read it from and to keep it in (mode 0600); NULL: as long as the process lives. Catches
 * signals (cli/console.h); what is typed while no line is read isn't shown, and is read by the next one. */
line_reader *line_open(const char *history);
void line_close(line_reader *r);
/* Someone types, and sees prompts: on standard output, or, where that isn't a terminal, on standard error. */
bool line_is_terminal(const line_reader *r);
/* Behind the last line: what comes next in the terminal begins a line. */
void line_leave(line_reader *r);
/* Replaces text, without the newline at its end. prompt, and the one of further lines; plain text, shown with
 * the escape sequences `style` around it (NULL: none). Not UTF-8: LINE_TEXT with what is well-formed replaced
 * by U+FFFD. */
line_status line_read(line_reader *r, const char *prompt, const char *more, const char *style, str *text);
/* One line for a question, typed after it was asked; it doesn't go into the history. */
line_status line_ask(line_reader *r, const char *question, str *text);

/* Columns of the terminal on standard output; 0: it is none. */
int line_columns(void);
#endif
