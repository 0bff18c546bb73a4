/* Signals and the terminal's modes while a person talks with a program. What is typed during a reply isn't
 * shown: it stays where the next prompt reads it. Every way out leaves the terminal as it was, also signals
 * and a stop (Ctrl-Z); only SIGKILL doesn't. */
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H
#include <stdatomic.h>
#include <stdbool.h>

/* Catches signals. typed: there is a terminal on standard input, whose modes are minded. */
void console_open(bool typed);
/* Leaves the terminal as it was found. */
void console_close(void);

/* From here on nothing that is typed is shown. raw: keys come as they are, for an editor to read later; else
 * as lines. */
void console_hush(bool raw);
/* The terminal as it was found: what is typed is shown. */
void console_show(void);
/* Forgets what has been typed but not read. */
void console_forget(void);
/* What is written to the terminal when a signal or a stop leaves it, and when a stop has ended (escape
 * sequences; NULL: nothing). */
void console_on_leave(const char *text, const char *back);

/* ---- signals ---- */

extern const int console_signals[]; /* those caught that a line editor minds; 0 at the end */

/* SIGINT came since console_calm(). */
bool console_interrupted(void);
/* SIGTERM or SIGHUP came: its number; else 0. */
int console_terminated(void);
void console_calm(void);
/* A window changed, or the program goes on after a stop, since the last call. */
bool console_resized(void);
bool console_resumed(void);
/* Set when work under way should be cut where it stands: at once by SIGTERM and SIGHUP; by SIGINT a little
 * later, so that what takes no time ends whole. Until console_calm(). */
const atomic_bool *console_cancel(void);
#endif
