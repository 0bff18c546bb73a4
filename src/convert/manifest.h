/* conversion_manifest.json: the packages that --variants makes. */
#ifndef CONVERT_MANIFEST_H
#define CONVERT_MANIFEST_H
#include "base/json.h"

/* The name of the variant to take, NULL when there is none: of those that are there and whose gate did not
 * fail, the smallest whose weights keep 8 bits or more, or whose gate passed; else the one with the widest
 * weights. variants: the array; vocab: the scheme of embedding and head, "same" or NULL: as the rest. */
const char *manifest_recommended(const json *variants, const char *vocab);

/* Sets the gate entry of a variant, given by name or package, in dir/conversion_manifest.json, and what
 * follows from it for the recommendation; the file is replaced atomically. gate: a JSON object with a boolean
 * "passed". */
bool manifest_record_gate(const char *dir, const char *variant, const char *gate, err *e);
#endif
