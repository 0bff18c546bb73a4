/* Error values. A function that can fail returns bool (or NULL) and takes an err *e as its last argument.
 * The first error wins: a later err_set() on a set error is ignored, so clean-up code can't hide the cause.
 * A message is one line that names the place (file, function, op, tensor or byte offset) and what was
 * expected. */
#ifndef BASE_ERR_H
#define BASE_ERR_H
#include <stdbool.h>

typedef enum {
    ERR_NONE,
    ERR_USAGE,       /* a wrong argument of the caller */
    ERR_IO,          /* the system refused: no such file, disk full, ... */
    ERR_FORMAT,      /* a malformed file */
    ERR_UNSUPPORTED, /* well-formed, but not something that millet does */
    ERR_INVALID,     /* breaks a rule of the format (verifier) */
    ERR_LIMIT,       /* too large, context overflow */
    ERR_NUMERIC,     /* NaN or infinity where a number is needed */
    ERR_MEMORY,
    ERR_CANCELLED
} err_code;

typedef struct {
    err_code code; /* ERR_NONE: no error */
    char msg[1000];
} err;

/* Sets the error if none is set yet. Always returns false, so that `return err_set(e, ...)` reads well. */
bool err_set(err *e, err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* err_set(ERR_IO) with ": " and the text of errno behind the message. */
bool err_errno(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "where: " in front of the message of a set error. Always returns false. */
bool err_where(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* clang-tidy looks at one file at a time: it must be told what is promised above. */
#ifdef __clang_analyzer__
static inline bool err_false(bool set) {
    return (void)set, false;
}
#define err_set(...)   err_false(err_set(__VA_ARGS__))
#define err_errno(...) err_false(err_errno(__VA_ARGS__))
#define err_where(...) err_false(err_where(__VA_ARGS__))
#endif
#endif
