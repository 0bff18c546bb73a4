/* The conversion signature: what went into an artifact, as one SHA-256. */
#ifndef CONVERT_SIGNATURE_H
#define CONVERT_SIGNATURE_H
#include "base/json.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"

/* The digest of
 *
 *   the canonical form (json_canonical) of those of keys that document has, as one object, and a newline;
 *   for each tensor of the checkpoint, by name: NAME DTYPE [D0,D1,...] SHA-256 and a newline
 *
 * with dtypes as in millet (bf16, fp16, fp32, ...) and the digest of the tensor's bytes. keys:
 * NULL-terminated, in ascending order. Tensors are hashed on all cores. */
void signature_make(char hex[SHA256_HEX], const checkpoint *c, const json *document, const char *const *keys);
/* The keys of each document. */
extern const char *const signature_metadata_keys[]; /* converter, graph, scheme */
extern const char *const signature_manifest_keys[]; /* converter, options */

/* Puts the signature in place of the member "signature" (a string of 64 characters) of the document in text,
 * and lays it out for people. false: text is no such document. */
bool signature_seal(str *text, const checkpoint *c, const char *const *keys, err *e);
#endif
