/* The files below a place with their sizes and digests: what metadata.json and conversion_manifest.json
 * state, and what `millet verify-manifest` makes anew. */
#ifndef CONVERT_LISTING_H
#define CONVERT_LISTING_H
#include "base/arena.h"
#include "base/sha256.h"
#include "base/str.h"

typedef struct {
    const char *path; /* below root, in the arena */
    uint64_t bytes;
    char sha256[SHA256_HEX];
} listed_file;

typedef struct {
    listed_file *file; /* by path */
    size_t n;
    uint64_t bytes; /* of all */
} listing;

/* Every file of the directory (or the file) root/below, hashed on all cores. Links are followed. ERR_IO when
 * below is not there, or holds something that is no file. */
bool listing_make(listing *l, arena *a, const char *root, const char *below, err *e);
/* As a JSON array of {"path", "bytes", "sha256"}. */
void listing_json(str *s, const listing *l);
#endif
