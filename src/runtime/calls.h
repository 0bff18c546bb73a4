/* millet predict: runs a package on tensors from a safetensors file, once, or as a calls file asks. (The one
 * part of this module that knows checkpoint files.) */
#ifndef RUNTIME_CALLS_H
#define RUNTIME_CALLS_H
#include "runtime/session.h"

/* A calls file: {"calls": [{"function", "state", "inputs": {name: key}, "outputs": {name: ..},
 * "states_after": {name: ..}}]} Other members, and what outputs and states_after say about a name, do not
 * matter here. */
typedef struct {
    const char *name, *key; /* key: inputs only */
} calls_name;

typedef struct {
    const char *function; /* NULL: the default one */
    const char *state;    /* calls of one label share their states; NULL: fresh states */
    calls_name *in, *out, *state_after;
    size_t n_in, n_out, n_state_after;
} calls_call;

typedef struct {
    calls_call *call;
    size_t n;
} calls_file;

/* what names the text in errors. Everything lives in a. */
const calls_file *calls_parse(arena *a, const char *what, const void *text, size_t n, err *e);

typedef struct {
    const char *package;
    const char *function;      /* without a calls file; NULL: the default one */
    const char *inputs;        /* safetensors */
    const char *output;        /* safetensors, written at the end */
    const char *calls;         /* text of a calls file; NULL: one call, inputs by feature name */
    size_t n_calls;            /* its bytes */
    const char *calls_name;    /* what errors call it */
    const char *const *values; /* inner values to return as well */
    size_t n_values;
    rt_mode mode;
} calls_options;

/* One call: the output file holds the outputs and values under their names. A calls file: callN.out.NAME for
 * every output, callN.state.NAME for the states that it lists, callN.value.NAME for the values. Input tensors
 * may have another dtype than the package declares where every value survives: floats are rounded (an
 * overflow is an error), integers must be in range, integers become floats when exact. */
bool calls_predict(const calls_options *o, err *e);
#endif
