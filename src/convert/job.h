/* One conversion, shared by the files of this module. */
#ifndef CONVERT_JOB_H
#define CONVERT_JOB_H
#include "base/stage.h"
#include "convert/convert.h"
#include "coreml/model.h"
#include "models/models.h"
#include "quantize/quantize.h"

#define PACKAGE_NAME   "model.mlpackage"
#define EMBEDDING_NAME "embed_tokens.bin"
#define METADATA_NAME  "metadata.json"
#define TOKENIZER_NAME "Tokenizer"

/* A weight as it is written: name, and where its bytes end among all bytes. */
typedef struct {
    const char *name;
    uint64_t end;
} job_weight;

typedef struct {
    arena *a;
    const char *dir, *out; /* without trailing slashes */
    const convert_options *o;
    models_options graph_options;
    bool compress;
    quant_recipe recipe;
    quant_report compressed;
    checkpoint *c;
    models_graph g;
    coreml_model *m;
    stage *st;
    /* progress: the weights in the order they are written, the embedding table last */
    job_weight *weight;
    size_t n_weight, at_weight;
    uint64_t total_bytes, parameters;
    /* for the summary */
    uint64_t weight_file_bytes, embedding_bytes;
    const char *tokenizer_files; /* "tokenizer.json, vocab.json"; "" when there were none */
    bool has_tokenizer;          /* tokenizer.json is among them */
} job;

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
