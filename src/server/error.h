/* An error as the API gives it: HTTP status and {"error": {message, type, param, code}}. */
#ifndef SERVER_ERROR_H
#define SERVER_ERROR_H
#include "base/err.h"
#include "base/str.h"

typedef struct {
    int status;       /* of HTTP; 0: no error */
    const char *code; /* a constant; NULL: null */
    char param[160];  /* the field of the request that is to blame; "": null */
    char message[1000];
} api_error;

/* Sets the error if none is set yet; param NULL: none. Always returns false. */
bool api_fail(api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same of an error of the layers below: 400 where the caller is to blame, else 500. */
bool api_fail_from(api_error *e, const err *from);
/* The body. */
void api_error_json(str *out, const api_error *e);
#endif
