/* Standard output, errors and interrupts of the commands. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H
#include "base/err.h"
#include <stdatomic.h>
#include <stddef.h>

/* Writes to standard output. False once the reader is gone or a write failed: stop working then; the
 * command's exit code is settled at the end by main (a closed pipe is no failure, a full disk is). */
bool cli_out(const void *data, size_t n);
bool cli_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Hands everything written so far to the reader. */
bool cli_flush(void);

/* "millet: message" on stderr, one line: control characters and bytes that are not UTF-8 come out as \xNN. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, begun with "millet command: ". */
void cli_error_in(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the error; returns CLI_FAILED, or 128 + the signal's number after an interrupt. */
int cli_fail(const err *e);
/* Exit code of a command that ended well, perhaps early: 128 + the signal's number after an interrupt. */
int cli_done(void);

/* From here on SIGINT, SIGTERM and SIGHUP do not end the process but are remembered; a second one ends it. */
void cli_catch_interrupts(void);
void cli_catch_two_interrupts(void); /* the third one ends it */
int cli_interrupts(void);            /* how many there were */
bool cli_interrupted(void);
/* Set by the same signals: cuts work under way where it stands. */
const atomic_bool *cli_cancel(void);

/* Start and end of the process: makes sure that descriptors 0..2 are open and SIGPIPE does not kill; flushes
 * standard output and returns the exit code to use in place of code. */
void cli_begin(void);
int cli_end(int code);
#endif
