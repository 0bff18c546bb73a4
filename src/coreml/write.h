/* Serializing a model: write.c: models and descriptions; write_program.c: functions, blocks, ops, constants.
 */
#ifndef COREML_WRITE_H
#define COREML_WRITE_H
#include "base/wire.h"
#include "coreml/blob.h"
#include "coreml/model.h"

typedef struct {
    wire_out *o;
    const blob_plan *weights; /* of the model that is being written */
    err *e;
} writer;

/* Each constant that goes to the weight file, in program order. */
typedef bool write_const_fn(void *ctx, const ir_const *c, err *e);
bool write_each_blob(const ir_program *p, write_const_fn *f, void *ctx, err *e);
/* The program as field MODEL_PROGRAM. */
bool write_program(writer *w, const ir_program *p);
/* The model's serialized Model message alone, as coreml_write() puts it into the model file. Free o also on
 * failure. */
bool write_model(wire_out *o, const coreml_model *m, err *e);
#endif
