#include "server/error.h"
#include <stdio.h>
#include <string.h>

bool api_fail(api_error *e, int status, const char *code, const char *param, const char *fmt, ...) {
    if (e->status) return false;
    e->status = status;
    e->code = code;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return false;
}

bool api_fail_from(api_error *e, const err *from) {
    bool theirs = from->code == ERR_USAGE || from->code == ERR_LIMIT || from->code == ERR_UNSUPPORTED ||
                  from->code == ERR_INVALID || from->code == ERR_FORMAT;
    return api_fail(e, theirs ? 400 : 500, NULL, NULL, "%s", from->msg);
}

static const char *type_of(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void add_text(str *out, const char *s) {
    if (s)
        str_json_string(out, s, strlen(s));
    else
        str_adds(out, "null");
}

void api_error_json(str *out, const api_error *e) {
    str_adds(out, "{\"error\":{\"message\":");
    add_text(out, e->message);
    str_printf(out, ",\"type\":\"%s\",\"param\":", type_of(e->status));
    add_text(out, *e->param ? e->param : NULL);
    str_adds(out, ",\"code\":");
    add_text(out, e->code);
    str_adds(out, "}}");
}
