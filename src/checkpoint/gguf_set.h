/* A model as one GGUF file or several (NAME-00001-of-00003.gguf ...): metadata of the first, tensors of all;
 * and what a checkpoint is made of: configuration, tensors under the names and in the order of a Hugging Face
 * checkpoint, tokenizer files. */
#ifndef CHECKPOINT_GGUF_SET_H
#define CHECKPOINT_GGUF_SET_H
#include "base/str.h"
#include "checkpoint/config.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor.h"

typedef struct {
    arena *a;
    const char *path; /* of the first part */
    gguf **part;
    size_t n_part, n_tensor;
} gguf_set;

/* path: the only file, or the first part; the others are opened too. */
gguf_set *gguf_set_open(const char *path, err *e);
gguf_set *gguf_set_open_memory(const char *what, const void *data, size_t n,
                               err *e); /* one file; borrows data */
void gguf_set_close(gguf_set *s);
const gguf_value *gguf_set_get(const gguf_set *s, const char *key);    /* NULL when absent */
const gguf_tensor *gguf_set_find(const gguf_set *s, const char *name); /* NULL when absent */

/* The metadata as a configuration (config_gguf.c). Refuses what config_read() refuses. */
bool gguf_config(ckpt_config *c, arena *a, const gguf_set *s, const ckpt_family *const *families, err *e);
/* The n_tensor tensors, in file order (gguf_tensors.c). Everything lives in a. */
const st_tensor *gguf_tensors(arena *a, const gguf_set *s, const ckpt_config *c);
/* tokenizer.json and tokenizer_config.json (gguf_tokenizer.c); both empty when the file holds no tokenizer.
 */
bool gguf_tokenizer(str *tokenizer, str *config, const gguf_set *s, err *e);
#endif
