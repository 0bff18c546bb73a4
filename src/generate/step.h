/* A call of a decoder in two halves, for batch.c: decoder_call() is what lies between, run by the decoder
 * alone. */
#ifndef GENERATE_STEP_H
#define GENERATE_STEP_H
#include "generate/call.h"

/* Decides on the next call of a feed under way. It is made with decoder_caller(). */
bool decoder_call_begin(decoder *d, const decoder_hooks *h, err *e);
const call *decoder_call_at(const decoder *d);
caller *decoder_caller(decoder *d);
/* Once it has been run: its rows, and where d stands then. */
bool decoder_call_end(decoder *d, const decoder_hooks *h, decoder_row *last, err *e);
#endif
