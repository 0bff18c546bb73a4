/* A Core AI asset as a package: what the runtime takes, whichever format it came in. */
#ifndef COREAI_PACKAGE_H
#define COREAI_PACKAGE_H
#include "coreai/asset.h"
#include "coreml/model.h"

typedef struct {
    bool decompose;   /* read composites from their own decompositions, whatever they say they are */
    int64_t capacity; /* of dimensions of states that the caller chooses; 0: the bundle's context, else
                         COREAI_CAPACITY */
} coreai_options;

#define COREAI_CAPACITY 4096

/* Opens path and reads every public graph as a function (o may be NULL); spec is IR_SPEC_COREAI.
 * coreml_close() frees it. NULL on error. */
coreml_package *coreai_open(const char *path, const coreai_options *o, err *e);

/* A composite that an asset calls. */
typedef struct {
    const char *kind, *graph;
    bool declared; /* it was taken by what it declares */
} coreai_composite;

/* Each composite that a graph calls as a function of its own, named after its graph: what its first call
 * hands to it, but for constants, goes in. list: one for each function, lives in the package. NULL without an
 * error: there are none. */
coreml_package *coreai_open_composites(const char *path, bool decompose, const coreai_composite **list,
                                       err *e);

/* As coreai_open(), of a main.mlirb in memory, which must stay (fuzzing). */
coreml_package *coreai_open_memory(const void *code, size_t n, const coreai_options *o, err *e);
#endif
