/* A .aimodel directory: main.mlirb (program and weights), main.hash (its SHA-256, 32 bytes), metadata.json.
 * In a bundle it lies beside a metadata.json of its own, which says how long a context may be. */
#ifndef COREAI_ASSET_H
#define COREAI_ASSET_H
#include "base/file.h"
#include "coreai/tree.h"

typedef struct {
    arena *a;
    const char *path;
    file_map code;               /* main.mlirb */
    const struct json *metadata; /* of the asset; never NULL */
    const ai_tree *tree;
    int64_t context; /* the bundle's max_context_length; 0: no bundle, or it doesn't say */
} ai_asset;

/* Whether the directory looks like one: it holds main.mlirb. */
bool ai_asset_is(const char *path);
/* Maps and reads it. NULL on error. */
ai_asset *ai_asset_open(const char *path, err *e);
void ai_asset_close(ai_asset *x);
/* main.hash says what main.mlirb is, or is absent: then *absent. */
bool ai_asset_check_hash(const ai_asset *x, bool *absent, err *e);
#endif
