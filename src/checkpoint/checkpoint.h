/* A Hugging Face checkpoint directory, or a GGUF file that takes the place of one: tensors by name over one
 * or several files, and the configuration. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H
#include "base/str.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

typedef struct checkpoint checkpoint;

/* Opens config.json and the tensors (model.safetensors.index.json when there is one: shard names are taken
 * from it and every listed tensor must be in its shard; else model.safetensors, else the only *.safetensors).
 * families: as in config_read(); models/ has the table.
 *
 * A path that is a file is a GGUF file (the first part of several, and the others are opened too). */
checkpoint *checkpoint_open(const char *dir, const ckpt_family *const *families, err *e);
void checkpoint_close(checkpoint *c);
const char *checkpoint_dir(const checkpoint *c); /* or file */
bool checkpoint_is_gguf(const checkpoint *c);
/* tokenizer.json and tokenizer_config.json of a GGUF file; both empty when it holds no tokenizer. */
bool checkpoint_tokenizer(const checkpoint *c, str *tokenizer, str *config, err *e);
const ckpt_config *checkpoint_config(const checkpoint *c);
size_t checkpoint_count(const checkpoint *c);
const st_tensor *checkpoint_at(const checkpoint *c, size_t i);           /* sorted by name */
const st_tensor *checkpoint_find(const checkpoint *c, const char *name); /* NULL when absent */
#endif
