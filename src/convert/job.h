/* One conversion, shared by the files of this module. */
#ifndef CONVERT_JOB_H
#define CONVERT_JOB_H
#include "base/stage.h"
#include "convert/convert.h"
#include "convert/listing.h"
#include "coreai/from_ir.h"
#include "coreai/write.h"
#include "coreml/embedding.h"
#include "coreml/model.h"
#include "models/models.h"
#include "models/widen.h"
#include "quantize/quantize.h"

#define PACKAGE_NAME   "model.mlpackage"
#define METADATA_NAME  "metadata.json"
#define MANIFEST_NAME  "conversion_manifest.json"
#define TOKENIZER_NAME "Tokenizer"

/* A weight as it is written: name, and where its bytes end among all bytes. */
typedef struct {
    const char *name;
    uint64_t end;
} job_weight;

/* Of several variants: what earlier ones wrote, and what all have. */
typedef struct {
    uint64_t done, total;
    size_t weights_done, weights;
} job_progress;

typedef struct {
    const char *name; /* of the directory below OUT */
    models_part part;
    models_graph g;
    coreml_model *m;
    uint64_t weight_bytes; /* of its weight file */
    listing files;         /* once they are written */
} job_package;

typedef struct {
    const char *name;        /* of the file */
    const st_tensor *tensor; /* NULL: there is no table */
    embedding_kind kind;
    listed_file file;
    bool kept; /* the same table was beside OUT already */
} job_table;

typedef struct job {
    arena *a;
    const char *dir, *out; /* without trailing slashes; out NULL: not known yet (into) */
    const char *real_dir;  /* dir without links and dots */
    const char *into;      /* directory that OUT is made in; NULL: OUT was named */
    const convert_options *o;
    models_options graph_options;
    bool coreai; /* the format */
    bool steers; /* coreai: around what fails on iOS 27 */
    bool compress;
    quant_recipe recipe;
    quant_report compressed; /* of all packages */
    const char *const *plan; /* values that must be fp32 */
    size_t n_plan;
    widen_result widened;
    checkpoint *c;
    const char *model_name; /* the checkpoint directory's */
    models_work *work;
    const models_note *note;
    size_t n_note;
    int64_t chunks; /* number asked for; 0: auto */
    uint64_t max_file_size;
    const char *only_package; /* name of a single package; NULL: PACKAGE_NAME */
    job_package *package;
    const struct ai_tree *asset; /* format coreai: what is written */
    size_t n_package, n_chunk;   /* n_chunk: those that are no head_J_of_M */
    job_table table;
    stage *st;
    /* progress: the weights in the order they are written */
    job_weight *weight;
    size_t n_weight, cap_weight, at_weight;
    uint64_t total_bytes, written_bytes, parameters;
    job_progress progress; /* total 0: there are no variants */
    /* for the summary */
    str tokenizer, tokenizer_config; /* of a GGUF file's metadata: the files' texts */
    const char *tokenizer_files;     /* "tokenizer.json, vocab.json"; "" when there were none */
    bool has_tokenizer;              /* tokenizer.json is among them */
    size_t n_shared;                 /* weight files that are links now */
    uint64_t shared_bytes;
    const char *not_shared;      /* why equal files could not be shared; NULL: they were */
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

/* options.c: what the options alone decide. */
bool job_read_options(job *j, err *e);
bool job_read_recipe(job *j, err *e);
/* What only the checkpoint tells: preset, context, table; refuses options that do not apply. */
bool job_settle_options(job *j, err *e);
bool job_is_vocab(const char *name);

/* names.c: the model's name from the checkpoint's place, and names made of it. */
void job_name_model(job *j);
const char *job_scheme_name(const job *j); /* "lut6", "w4-vocab-w8b32", "fp16-recipe" */
const char *job_artifact_name(const job *j);
const char *job_slug(const job *j);           /* the model's name as part of file names */
const char *job_tokenizer_name(const job *j); /* of the directory */
const char *job_table_name(const job *j);
/* s with c for every byte that is not UTF-8: directories may be called anything, strings of a package not. */
const char *job_printable(arena *a, const char *s, char c);

/* places.c: refuses places that can't be, or that would harm the checkpoint or someone's files. Sets j->dir,
 * and j->out or j->into. */
bool job_check_places(job *j, const char *dir, const char *out, err *e);
/* Names OUT below j->into, and checks it. */
bool job_name_output(job *j, err *e);
/* Makes the directories above OUT and the staging directory beside it. */
bool job_begin_output(job *j, err *e);

/* plan.c: looks at the checkpoint's weights, and decides which packages there are. */
bool job_plan(job *j, err *e);
/* build.c: the packages' programs, compressed, described and verified; and the list of their weights. */
bool job_build(job *j, err *e);
/* One program. report NULL: only to measure it: one function, without a precision plan. */
bool job_build_part(job *j, const models_part *part, models_graph *g, quant_report *report, err *e);

void job_list_weights(job *j, const job_package *p);

/* bundle.c: the same of format coreai. */
#define ASSET_PRODUCER "millet " MILLET_VERSION
/* The files of an asset in an existing directory. */
typedef bool written_fn(void *ctx, uint64_t done, uint64_t total); /* bytes; false stops */
bool asset_write(arena *a, const ai_tree *t, const char *dir, written_fn *fn, void *ctx, err *e);
const char *job_asset_name(const job *j);
bool job_build_asset(job *j, err *e);
bool job_write_asset(job *j, err *e);
bool job_write_bundle_metadata(job *j, err *e);

/* artifact.c: tells the caller where the work is; ERR_CANCELLED when he wants no more. total 0: nothing is
 * written yet. */
bool job_report(const job *j, const char *tensor, uint64_t done, uint64_t total, err *e);
/* The same while files are written: done bytes of all files. */
bool job_report_written(job *j, uint64_t done, err *e);
/* The same of one file, as writers call it; ctx is a job_written. */
typedef struct {
    job *j;
    uint64_t before; /* bytes of the files written so far */
    err *e;
} job_written;
bool job_on_written(void *ctx, uint64_t done, uint64_t total);
const char *job_staged(const job *j, const char *name); /* path of OUT/name in the staging directory */
bool job_write_packages(job *j, err *e);
/* Lists their files, with digests. */
bool job_list_packages(job *j, err *e);
/* Before the first weight: a tokenizer that a GGUF file has and we don't is refused. */
bool job_read_tokenizer(job *j, err *e);
bool job_copy_tokenizer(job *j, err *e);

/* table.c: the host table, below the staging directory; and into its place beside OUT when it is shared. */
bool job_write_table(job *j, err *e);
bool job_place_table(job *j, err *e);

/* share.c: makes weight files that lie below o->share_weights already hard links to those. */
bool job_share_weights(job *j, err *e);

/* metadata.c */
bool job_write_metadata(job *j, err *e);
/* report.c: the file options.report names, after the weights were written. */
bool job_write_report(const job *j, err *e);

/* variants.c */
bool job_read_variants(job *j, err *e);
bool job_write_variants(job *j, err *e);

/* manifest.c: hashes what was written, removes what shall not stay, writes conversion_manifest.json. */
bool job_write_manifest(job *j, err *e);

/* import.c: whether path is a program in one of Apple's formats, which becomes one in the other. */
bool convert_is_program(const char *path);
bool convert_program(const char *from, const char *out, const convert_options *o, str *summary, err *e);

/* record.c: members of both documents, as compact JSON. */
void record_string(str *s, const char *key, const char *value); /* "key":"value", or null */
void record_model(str *s, const job *j);                        /* the members of "model" */
bool record_tokenizer(str *s, const job *j, err *e);            /* value of "tokenizer" */
void record_stop_ids(str *s, const job *j);                     /* value of "stop_ids" */

/* source.c: the option source_dtype against the checkpoint. */
bool job_check_source(job *j, err *e);
const char *job_source_dtype(const job *j);

/* summary.c */
const char *job_preset_name(const job *j);
const char *job_precision_name(const job *j);
const char *job_state_name(const job *j);
const char *job_kv_name(const job *j);
uint64_t job_weight_bytes(const job *j); /* of all packages */
double job_bits_per_weight(const job *j);
void job_summary(const job *j, str *s);
#endif
