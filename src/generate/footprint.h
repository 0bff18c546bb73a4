/* The files that opening an artifact for generation reads: how large they are, and how to make it read them
 * from the disk again. */
#ifndef GENERATE_FOOTPRINT_H
#define GENERATE_FOOTPRINT_H
#include "generate/lm.h"

/* Paths; they live in an arena. */
typedef struct {
    const char *const *weights; /* packages, and the embedding table */
    size_t n;
    const char *tokenizer; /* the directory; NULL: none */
} footprint;

/* m: the artifact, opened. */
void footprint_of(footprint *f, arena *a, const lm *m);
/* Bytes of packages and table. */
bool footprint_bytes(const footprint *f, uint64_t *bytes, err *e);
/* Asks the system to forget its cached copies of all files. *left: bytes that stay in memory, because someone
 * maps them, or the file system keeps everything there (or does not say). */
bool footprint_drop(const footprint *f, uint64_t *left, err *e);
#endif
