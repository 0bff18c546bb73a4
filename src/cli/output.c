#define _GNU_SOURCE
#include "cli/output.h"
#include "base/stage.h"
#include "base/str.h"
#include "cli/options.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_errno; /* of the first write that failed */
static volatile sig_atomic_t interrupt, interrupts, caught = 1;
static atomic_bool cancel;

static bool out_failed(void) {
    if (!out_errno) out_errno = errno ? errno : EIO;
    return false;
}

bool cli_out(const void *data, size_t n) {
    if (out_errno) return false;
    return !n || fwrite(data, 1, n, stdout) == n || out_failed(); /* data may be NULL then */
}

bool cli_printf(const char *fmt, ...) {
    if (out_errno) return false;
    va_list ap;
    va_start(ap, fmt);
    int n = vprintf(fmt, ap);
    va_end(ap);
    return n >= 0 || out_failed();
}

bool cli_flush(void) {
    if (out_errno) return false;
    return !fflush(stdout) || out_failed();
}

/* Text for a terminal: control characters and bytes that are not UTF-8 as \xNN. */
static void add_visible(str *out, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i + utf8_valid(text + i, n - i);
        for (; i < end; i++)
            if ((unsigned char)text[i] < 32 || text[i] == 127)
                str_printf(out, "\\x%02x", (unsigned char)text[i]);
            else
                str_addc(out, text[i]);
        if (i < n) str_printf(out, "\\x%02x", (unsigned char)text[i++]);
    }
}

static void print_error(const char *command, const char *fmt, va_list ap) {
    char text[2000];
    vsnprintf(text, sizeof text, fmt, ap);
    str line = {0};
    str_printf(&line, "millet%s%s: ", *command ? " " : "", command);
    add_visible(&line, text, strlen(text));
    str_addc(&line, '\n');
    fflush(stdout); /* what was printed before comes first */
    fwrite(line.s, 1, line.len, stderr);
    str_free(&line);
}

void cli_error(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_error("", fmt, ap);
    va_end(ap);
}

void cli_error_in(const char *command, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_error(command, fmt, ap);
    va_end(ap);
}

int cli_fail(const err *e) {
    cli_error("%s", e->msg);
    return interrupt ? 128 + (int)interrupt : CLI_FAILED;
}

int cli_done(void) {
    return interrupt ? 128 + (int)interrupt : CLI_OK;
}

static void on_interrupt(int sig) {
    interrupt = sig;
    atomic_store(&cancel, true);
    if (++interrupts >= caught) signal(sig, SIG_DFL);
}

void cli_catch_two_interrupts(void) {
    caught = 2;
    cli_catch_interrupts();
}

int cli_interrupts(void) {
    return interrupts;
}

void cli_catch_interrupts(void) {
    struct sigaction sa = {.sa_handler = on_interrupt};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct sigaction old; /* under nohup, work goes on without a terminal */
    if (!sigaction(SIGHUP, NULL, &old) && old.sa_handler != SIG_IGN) sigaction(SIGHUP, &sa, NULL);
}

bool cli_interrupted(void) {
    return interrupt;
}

const atomic_bool *cli_cancel(void) {
    return &cancel;
}

void cli_begin(void) {
    /* A file opened for output must never get number 1 or 2. Writing to these read-only descriptors fails. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd ? O_RDONLY : O_RDWR);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is a failed write like a full disk */
}

int cli_end(int code) {
    bool ok = cli_flush() && (!fclose(stdout) || out_failed());
    if (ok || out_errno == EPIPE) return code;
    errno = out_errno;
    cli_error("standard output: %s", strerror(errno));
    return code ? code : CLI_FAILED;
}
