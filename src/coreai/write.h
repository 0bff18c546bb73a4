/* Trees (tree.h) into files. Ops, attributes and types get their numbers in order of first use, so equal
 * trees are equal bytes. Locations are not kept: every op has the same one. */
#ifndef COREAI_WRITE_H
#define COREAI_WRITE_H
#include "coreai/tree.h"
#include "ir/store.h"

/* Writes main.mlirb at path; digest (32 bytes) is its SHA-256. Values' ids are dense and below t->n_value.
 * Resources are streamed: AI_RESOURCE attributes of one constant, or of one place in memory, are one
 * resource. progress may be NULL. */
bool ai_tree_write(const ai_tree *t, const char *path, store_progress_fn *progress, void *ctx,
                   uint8_t digest[SHA256_BYTES], err *e);
/* Bytes of all resources. */
uint64_t ai_tree_resources(const ai_tree *t);
#endif
