/* millet inspect on a Core AI asset. */
#ifndef CLI_INSPECT_ASSET_H
#define CLI_INSPECT_ASSET_H
#include "base/str.h"
#include "coreai/asset.h"

/* What is in it, for people; ops: the whole program instead. */
void inspect_asset(str *out, const ai_asset *x, bool ops);
void inspect_asset_json(str *out, const ai_asset *x);
#endif
