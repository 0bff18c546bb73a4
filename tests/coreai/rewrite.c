/* Reads an asset and writes its program again:   rewrite X.aimodel OUT.mlirb    (tests/coreai/gate.py) */
#include "coreai/asset.h"
#include "coreai/write.h"
#include <stdio.h>

int main(int argc, char **argv) {
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    if (argc != 3) return 2;
    ai_asset *x = ai_asset_open(argv[1], &e);
    bool ok = x && ai_tree_write(x->tree, argv[2], NULL, NULL, digest, &e);
    if (!ok) fprintf(stderr, "%s\n", e.msg);
    ai_asset_close(x);
    return !ok;
}
