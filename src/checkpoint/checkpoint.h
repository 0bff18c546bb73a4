/* A Hugging Face checkpoint directory: tensors by name over one or several safetensors files, and the
 * configuration. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

typedef struct checkpoint checkpoint;

/* Opens config.json and the tensors (model.safetensors.index.json when there is one: shard names are taken
 * from it and every listed tensor must be in its shard; else model.safetensors, else the only *.safetensors).
 * families: as in config_read(); models/ has the table. */
checkpoint *checkpoint_open(const char *dir, const ckpt_family *const *families, err *e);
void checkpoint_close(checkpoint *c);
const char *checkpoint_dir(const checkpoint *c);
const ckpt_config *checkpoint_config(const checkpoint *c);
size_t checkpoint_count(const checkpoint *c);
const st_tensor *checkpoint_at(const checkpoint *c, size_t i);           /* sorted by name */
const st_tensor *checkpoint_find(const checkpoint *c, const char *name); /* NULL when absent */
#endif
