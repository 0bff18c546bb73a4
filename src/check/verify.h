/* One verification of a document, shared by manifest*.c. */
#ifndef CHECK_VERIFY_H
#define CHECK_VERIFY_H
#include "base/json.h"
#include "check/manifest.h"
#include "coreml/model.h"

typedef struct {
    arena *a;
    const char *dir;
    const json *j; /* the document */
    check_manifest *r;
} verify;

/* --- manifest_state.c: statements and files --- */

void verify_fail(verify *v, const char *file, const char *what, const char *expected, const char *found);
/* The member of o that must be of this kind; NULL after a contradiction of the document. */
const json *verify_member(verify *v, const json *o, const char *key, json_kind kind);
/* What the document states in o, against what is so. file: what has been looked at. */
void verify_int(verify *v, const char *file, const json *o, const char *key, int64_t is);
void verify_text(verify *v, const char *file, const json *o, const char *key, const char *is);
/* A SHA-256 of something that is not here, or null. Whether there is one. */
bool verify_digest(verify *v, const json *o, const char *key);
/* Equal up to the rounding of four decimals. */
void verify_number(verify *v, const char *file, const json *o, const char *key, double is);
/* "files" of owner against what lies below: complete both ways, sizes, digests. Returns the bytes. */
uint64_t verify_files(verify *v, const json *owner, const char *below);
/* A path below dir, or with up in the directory above; a contradiction and false when it is none. */
bool verify_path(verify *v, const char *path, bool up);
void verify_tokenizer(verify *v);
void verify_stop_ids(verify *v);

/* --- manifest_package.c: a package against what is stated about weights --- */

typedef struct {
    const char *weights, *vocab; /* schemes; vocab "same": as the rest */
    int64_t group;               /* lut: channels a table, fewer where rows don't divide; 0: none */
    bool free;                   /* a recipe or a precision plan decides tensor by tensor */
} stated_scheme;

/* Opens and verifies dir/name; NULL after a contradiction. */
coreml_package *verify_open(verify *v, const char *name);
/* From o's "vocab" and "group_size"; free: false. */
stated_scheme verify_stated(verify *v, const json *o, const char *weights);
void verify_weights(verify *v, const char *name, const coreml_model *m, const stated_scheme *s);
/* The package's own metadata against what is said about graph and model. */
void verify_described(verify *v, const char *name, const coreml_model *m, const json *graph);
/* Elements of the constants that lie in the weight file, compressed ones decoded. */
uint64_t verify_parameters(const coreml_model *m);
/* Bytes of the weight files of dir/name, a package. */
uint64_t verify_weight_bytes(const coreml_package *p);

/* --- manifest_set.c: all that metadata.json says about packages, states and table --- */

bool verify_set(verify *v, bool (*keep_going)(void *ctx), void *ctx, err *e);

/* --- manifest_bundle.c: metadata.json of a Core AI bundle, which has other members --- */

/* False: its parts can't be found. */
bool verify_bundle(verify *v, err *e);
#endif
