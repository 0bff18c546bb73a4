/* One token for each of several decoders. */
#ifndef SERVER_ADVANCE_H
#define SERVER_ADVANCE_H
#include "generate/decoder.h"

typedef struct {
    decoder *d;
    int32_t id;
    decoder_row row; /* result */
    err e;           /* result: code 0 when it went well */
} advance_step;

void advance(advance_step *step, size_t n);
#endif
