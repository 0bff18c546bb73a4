/* Fields of a request's JSON object: a table says which there are, of which kinds, and what takes them. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H
#include "server/request.h"

enum {
    IS_BOOL = 1 << JSON_BOOL,
    IS_INT = 1 << JSON_INT,
    IS_NUMBER = 1 << JSON_INT | 1 << JSON_REAL,
    IS_STRING = 1 << JSON_STRING,
    IS_ARRAY = 1 << JSON_ARRAY,
    IS_OBJECT = 1 << JSON_OBJECT
};

typedef struct fields fields;
typedef bool field_take(fields *f, const json *v, api_error *e);
typedef struct {
    const char *name;
    unsigned kinds;      /* that it may have, beside null, which says nothing; 0: refused */
    field_take *take;    /* NULL: known, without effect here */
    const char *refused; /* why */
} field;

/* A request being read. */
struct fields {
    request *r;
    const served_model *m;
    const char *name; /* of the field at hand */
    const json *root;
    int64_t top; /* top_logprobs, -1: not given */
    chat_thinking thinking;
    const json *prompt, *messages, *tools, *tool_choice, *format, *template_options, *parallel,
        *stream_options;
};

/* Takes every member of f->root by the rows of two tables (the second may be NULL). Unknown ones are refused
 * by name. */
bool fields_take(fields *f, const field *own, size_t n_own, api_error *e);
bool fields_wrong_kind(const char *name, unsigned kinds, const json *v, api_error *e);
/* A whole number within [low, high]; a number within. */
bool fields_int(const char *name, const json *v, int64_t low, int64_t high, int64_t *out, api_error *e);
bool fields_number(const char *name, const json *v, double low, double high, float *out, api_error *e);
bool fields_max_new(fields *f, const json *v, api_error *e); /* max_tokens by any name */
#endif
