/* One conversion, shared by the files of this module. */
#ifndef CONVERT_JOB_H
#define CONVERT_JOB_H
#include "base/stage.h"
#include "convert/convert.h"
#include "convert/listing.h"
#include "coreml/model.h"
#include "models/models.h"
#include "models/widen.h"
#include "quantize/quantize.h"

#define PACKAGE_NAME   "model.mlpackage"
#define EMBEDDING_NAME "embed_tokens.bin"
#define METADATA_NAME  "metadata.json"
#define MANIFEST_NAME  "conversion_manifest.json"
#define TOKENIZER_NAME "Tokenizer"

/* A weight as it is written: name, and where its bytes end among all bytes. */
typedef struct {
    const char *name;
    uint64_t end;
} job_weight;

/* Of several packages: what earlier ones wrote, and what all have. */
typedef struct {
    uint64_t done, total;
    size_t weights_done, weights;
} job_progress;

typedef struct job {
    arena *a;
    const char *dir, *out; /* without trailing slashes */
    const char *real_dir;  /* dir without links and dots */
    const char *package;   /* file name */
    const convert_options *o;
    models_options graph_options;
    bool compress;
    quant_recipe recipe;
    quant_report compressed;
    const char *const *plan; /* values that must be fp32 */
    size_t n_plan;
    widen_result widened;
    checkpoint *c;
    models_graph g;
    coreml_model *m;
    stage *st;
    /* progress: the weights in the order they are written, the embedding table last */
    job_weight *weight;
    size_t n_weight, at_weight;
    uint64_t total_bytes, parameters;
    job_progress progress; /* total 0: there is one package */
    /* for the summary */
    uint64_t weight_file_bytes, embedding_bytes;
    const char *tokenizer_files; /* "tokenizer.json, vocab.json"; "" when there were none */
    bool has_tokenizer;          /* tokenizer.json is among them */
    struct job_variant *variant; /* --variants: packages with options of their own */
    size_t n_variant;
    const char *recommended; /* name of one of them */
} job;

typedef struct job_variant {
    const char *scheme, *name; /* "w8", "W8" */
    const char *package;       /* file name */
    bool removed;              /* it is deleted once all are complete */
    job *j;
} job_variant;

/* convert.c */
bool job_read_recipe(job *j, err *e);
/* The graph, compressed, described and verified; and the list of its weights. */
bool job_build(job *j, err *e);
/* s with c for every byte that is not UTF-8: directories may be called anything, strings of a package not. */
const char *job_printable(arena *a, const char *s, char c);

/* variants.c */
bool job_read_variants(job *j, err *e);
bool job_write_variants(job *j, err *e);

/* manifest.c: hashes what was written, removes what shall not stay, writes conversion_manifest.json. */
bool job_write_manifest(job *j, err *e);

/* record.c: members of both documents, as compact JSON. */
void record_string(str *s, const char *key, const char *value); /* "key":"value", or null */
void record_model(str *s, const job *j);                        /* the members of "model" */
bool record_tokenizer(str *s, const job *j, err *e);            /* value of "tokenizer" */
void record_stop_ids(str *s, const job *j);                     /* value of "stop_ids" */
/* source.c: the option source_dtype against the checkpoint. */
bool job_check_source(job *j, err *e);
const char *job_source_dtype(const job *j);
double job_bits_per_weight(const job *j);

/* places.c: refuses places that can't be, or that would harm the checkpoint or someone's files. Sets j->dir,
 * j->out. */
bool job_check_places(job *j, const char *dir, const char *out, err *e);
/* Makes the directories above OUT. */
bool job_make_parent(job *j, err *e);

/* artifact.c: tells the caller where the work is; ERR_CANCELLED when he wants no more. total 0: nothing is
 * written yet. */
bool job_report(const job *j, const char *tensor, uint64_t done, uint64_t total, err *e);
/* The parts of the artifact, below the staging directory. */
bool job_write_package(job *j, err *e);
bool job_write_embedding(job *j, err *e);
bool job_write_metadata(job *j, err *e);
bool job_copy_tokenizer(job *j, err *e);
/* report.c: the file options.report names, after the weights were written. */
bool job_write_report(const job *j, err *e);

/* summary.c */
const char *job_preset_name(const job *j);
const char *job_precision_name(const job *j);
const char *job_state_name(const job *j);
void job_summary(const job *j, str *s);
#endif
