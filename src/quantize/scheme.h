/* The compression schemes by name, and which tensor gets which. */
#ifndef QUANTIZE_SCHEME_H
#define QUANTIZE_SCHEME_H
#include "base/arena.h"
#include "base/err.h"

typedef enum {
    QUANT_NONE,
    QUANT_LUT,
    QUANT_INT8_CHANNEL,
    QUANT_INT8_BLOCK,
    QUANT_INT4_BLOCK,
    QUANT_KEEP
} quant_kind;

typedef struct {
    const char *name; /* "fp16", "lut4", "lut6", "lut8", "w8", "w8b32", "w4"; "keep": codes and scales as the
                         source has them */
    quant_kind kind;
    unsigned bits; /* of a code */
    int64_t
        group; /* LUT: consecutive output channels that share a table; blocks: weights along the input axis */
} quant_scheme;

/* By name, with the default group (32); false when there is none of that name (the error lists them). */
bool quant_scheme_by_name(quant_scheme *s, const char *name, err *e);

/* What keep makes of codes of 8 or 4 bits. */
const quant_scheme *quant_scheme_kept(bool four_bits);

typedef struct {
    const char
        *pattern; /* shell pattern over the constant's name, as fnmatch(): "layer_*_mlp_down_proj_weight" */
    quant_scheme scheme;
} quant_rule;

typedef struct {
    quant_scheme weights;
    bool vocab_apart; /* embedding and head follow vocab instead */
    quant_scheme vocab;
    const quant_rule *rule; /* the first that matches wins over both */
    size_t n_rule;
    unsigned threads; /* 0: all cores */
} quant_recipe;

/* A scheme by name, as quant_scheme_by_name(): a format may have names of its own, or fewer schemes. */
typedef bool quant_scheme_fn(quant_scheme *s, const char *name, err *e);
/* Reads {"rules": [{"match": PATTERN, "scheme": NAME, "group_size": N}, ...]} in place of r's rules. */
bool quant_recipe_read(quant_recipe *r, arena *a, const char *path, quant_scheme_fn *by_name, err *e);
#endif
