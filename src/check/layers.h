/* The residual stream behind each layer, artifact against reference, while both are fed the same blocks of
 * tokens: first the reference, then the artifact. For this module only. */
#ifndef CHECK_LAYERS_H
#define CHECK_LAYERS_H
#include "check/check.h"

typedef struct layer_capture layer_capture;

/* Results go to r when it ends. */
layer_capture *layers_new(check_layers *r, const lm *artifact, const lm *reference);
/* Finishes the sums and frees c. NULL is allowed. */
void layers_end(layer_capture *c);
/* From here on the two are observed. */
void layers_watch(layer_capture *c, decoder *reference, decoder *artifact);
/* Another block begins. */
void layers_begin(layer_capture *c);
/* What the artifact's package hands on behind token `first` of the block: n numbers. */
void layers_handed(layer_capture *c, size_t package, size_t first, const float *hidden, size_t n);
#endif
