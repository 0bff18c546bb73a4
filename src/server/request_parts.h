/* What both kinds of requests share. */
#ifndef SERVER_REQUEST_PARTS_H
#define SERVER_REQUEST_PARTS_H
#include "server/fields.h"

/* Text that can't fit isn't worth reading: few tokens are longer. */
#define REQUEST_LONGEST_TOKEN 256

const json *request_parse(arena *a, const void *body, size_t n, api_error *e); /* an object; NULL */
bool request_too_long(const served_model *m, size_t tokens, const char *param, api_error *e);
/* Behind prompts: what was asked for fits, and can be had; prompts are cut. */
bool request_complete(fields *f, api_error *e);
#endif
