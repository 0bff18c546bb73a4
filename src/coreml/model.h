/* A Core ML model in memory: specification version, feature descriptions, metadata and the ML Program.
 * One coreml_package is one .mlpackage directory: Manifest, model.mlmodel and its mapped weight files. */
#ifndef COREML_MODEL_H
#define COREML_MODEL_H
#include "ir/program.h"

typedef struct {
    int64_t lower, upper; /* inclusive; upper -1: unbounded */
} coreml_range;

typedef struct {
    const char *name, *description;
    ir_type type;  /* kind IR_TENSOR or IR_STATE; the default shape. rank 0 and no_shape when the shape is
                      absent */
    bool no_shape; /* outputs with unknown sizes have none; rank-0 tensors too */
    bool optional;
    bool has_default;      /* default value of an optional input */
    uint8_t default_dtype; /* how it is written: DT_INT32, DT_FP32 or DT_FP64; 0: as type.dtype asks */
    double default_value;
    const int64_t (*shapes)[IR_MAX_RANK]; /* enumerated shapes, the default first */
    size_t n_shapes;
    const coreml_range *range; /* one a dimension; NULL: not ranged */
    const char
        *other; /* "image", "string", "dictionary"... for a feature that is no multi-array; else NULL */
    ir_string other_type; /* and its serialized FeatureType */
} coreml_feature;

typedef struct {
    const char *name; /* "main" for a model without a function list */
    coreml_feature *in, *out, *state;
    size_t n_in, n_out, n_state;
    const char *predicted,
        *probabilities; /* classifiers: which outputs hold the class and its table; else NULL */
} coreml_function;

typedef struct {
    const char *key, *value;
} coreml_pair;

typedef struct coreml_model {
    arena *a;
    int spec;                     /* specificationVersion */
    bool multifunction;           /* the description lists functions (fields 20, 21) */
    const char *default_function; /* "main" when not multifunction */
    coreml_function *func;
    size_t n_func;
    const char *short_description, *version, *author, *license; /* NULL when absent */
    coreml_pair *user; /* metadata.userDefined, sorted by key when written */
    size_t n_user;
    ir_program *program;        /* NULL for a pipeline */
    struct coreml_model **part; /* pipeline: its models, in order */
    const char **part_name;
    size_t n_part;
} coreml_model;

typedef struct coreml_package {
    arena *a;
    const char *path;
    coreml_model *model;
    struct coreml_files *files; /* the maps that constants point into */
} coreml_package;

/* Opens and maps a .mlpackage directory (a trailing slash is fine). Weights stay in the mapped files. */
coreml_package *coreml_open(const char *path, err *e);
/* The same from memory, without weight files (fuzzing): a serialized Model message. */
coreml_package *coreml_open_memory(const void *model, size_t n, err *e);
void coreml_close(coreml_package *p);
const coreml_function *coreml_function_find(const coreml_model *m, const char *name);

/* Rules about the description, and about description against program (facts/coreml.md section 6), then
 * ir_verify(). As ir_verify(): report may be NULL. */
typedef bool coreml_report_fn(void *ctx, const char *rule, const char *message);
bool coreml_verify(const coreml_model *m, coreml_report_fn *report, void *ctx, err *e);

typedef struct {
    bool overwrite; /* replace an existing package */
    /* Called now and then with the weight bytes written so far and in all; false cancels (ERR_CANCELLED). */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
    uint64_t max_weight_bytes; /* of a weight file; a larger one is ERR_LIMIT before anything is written. 0:
                                  no limit */
    uint64_t weight_bytes;     /* out: size of the weight file */
} coreml_write_options;

/* Size that the weight file of a package with this program has; 0: no constants, no file. */
bool coreml_weight_bytes(const ir_program *p, uint64_t *bytes, err *e);

/* Writes a package directory at exactly path: deterministic and streaming (at most 64 MiB of weights in
 * memory). The caller is responsible for atomicity: it writes into a staging directory (base/stage.h) and
 * commits that. A const goes to weight.bin when in_blob is set; equal ir_const pointers, and equal
 * (blob_file, blob_offset) origins, are written once, in order of first use. The model must verify. */
bool coreml_write(const char *path, const coreml_model *m, coreml_write_options *o, err *e);

/* A model around a freshly built program: descriptions made from its functions' inputs, states and outputs;
 * flexible inputs get their ranges through coreml_feature afterwards. One function "main": single-function
 * form. */
coreml_model *coreml_model_new(arena *a, ir_program *p, int spec);
void coreml_add_user(coreml_model *m, const char *key, const char *value);
#endif
