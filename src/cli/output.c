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
static volatile sig_atomic_t interrupt;

static bool out_failed(void) {
    if (!out_errno) out_errno = errno ? errno : EIO;
    return false;
}

bool cli_out(const void *data, size_t n) {
    if (out_errno) return false;
    return fwrite(data, 1, n, stdout) == n || out_failed();
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

void cli_error(const char *fmt, ...) {
    char text[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    str line = {0};
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t ok = utf8_valid(text + i, n - i), end = i + ok;
        for (; i < end; i++)
            if ((unsigned char)text[i] < 32 || text[i] == 127)
                str_printf(&line, "\\x%02x", (unsigned char)text[i]);
            else
                str_addc(&line, text[i]);
        if (i < n) str_printf(&line, "\\x%02x", (unsigned char)text[i++]);
    }
    fflush(stdout); /* what was printed before comes first */
    fprintf(stderr, "millet: %s\n", str_get(&line));
    str_free(&line);
}

int cli_fail(const err *e) {
    cli_error("%s", e->msg);
    return interrupt ? 128 + (int)interrupt : CLI_FAILED;
}

static void on_interrupt(int sig) {
    interrupt = sig;
}

void cli_catch_interrupts(void) {
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

bool cli_interrupted(void) {
    return interrupt;
}

void cli_begin(void) {
    /* A file opened for output must never get number 1 or 2. Writing to these read-only descriptors fails. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd ? O_RDONLY : O_RDWR);
    signal(SIGPIPE, SIG_IGN);
}

int cli_end(int code) {
    bool ok = cli_flush() && (!fclose(stdout) || out_failed());
    if (ok || out_errno == EPIPE) return code;
    errno = out_errno;
    cli_error("standard output: %s", strerror(errno));
    return code ? code : CLI_FAILED;
}
