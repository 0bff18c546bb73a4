/* What metadata.json or conversion_manifest.json states, made anew and compared. */
#ifndef CHECK_MANIFEST_H
#define CHECK_MANIFEST_H
#include "base/arena.h"
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *file; /* what is wrong: a file or package below the directory, or the document itself */
    const char *what; /* "sha256", "context", ... */
    const char *expected, *found; /* what is stated; what is so */
} check_contradiction;

typedef struct {
    const char *document; /* "metadata.json" or "conversion_manifest.json" */
    check_contradiction *bad;
    size_t n_bad, cap_bad;
    size_t packages, files, statements; /* that were looked at */
    uint64_t bytes;                     /* of the files */
    bool signature;                     /* it was made anew */
    bool tokenizer_unstated;            /* a bundle that says nothing about its tokenizer's files */
    /* A bundle that runs, but as no language model known here: what it lacks; NULL. */
    const char *no_contract;
} check_manifest;

/* Verifies the artifact directory dir; everything in r lives in a. source (may be NULL): the checkpoint,
 * for the signature. false: there is no such document, or it or the checkpoint can't be read; what is wrong
 * with the artifact is a contradiction, no error. keep_going may be NULL; false: ERR_CANCELLED. */
bool check_manifest_run(check_manifest *r, arena *a, const char *dir, const char *source,
                        bool (*keep_going)(void *ctx), void *ctx, err *e);
#endif
