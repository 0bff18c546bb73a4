#include "base/err.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the analyzer sees instead (err.h). */
#undef err_set
#undef err_errno
#undef err_where

/* Input decides what stands in a message: control characters would break the one-line rule. */
static void one_line(char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127) *s = '?';
}

bool err_set(err *e, err_code code, const char *fmt, ...) {
    if (e->code != ERR_NONE) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    one_line(e->msg);
    e->code = code;
    return false;
}

bool err_errno(err *e, const char *fmt, ...) {
    int no = errno;
    if (e->code != ERR_NONE) return false;
    char what[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(e, no == ENOMEM ? ERR_MEMORY : ERR_IO, "%s: %s", what, strerror(no));
}

bool err_where(err *e, const char *fmt, ...) {
    if (e->code == ERR_NONE) return false;
    char old[sizeof e->msg], where[300];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    if (snprintf(e->msg, sizeof e->msg, "%s: %.690s", where, old) < 0) e->msg[0] = 0;
    one_line(e->msg);
    return false;
}
