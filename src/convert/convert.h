/* checkpoint directory -> artifact directory OUT:
 *   OUT/model.mlpackage  OUT/embed_tokens.bin (preset chunks)  OUT/metadata.json  OUT/Tokenizer/...
 * with variants:
 *   OUT/<Model>-TopK64-W8.mlpackage ...  OUT/conversion_manifest.json  OUT/Tokenizer/... */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H
#include "base/err.h"
#include "base/str.h"

typedef struct {
    const char *preset;       /* "chunks", "single"; NULL: the family's default */
    const char *precision;    /* "mixed" (NULL), "float16", "float32" */
    const char *state;        /* "split", "fp16"; NULL: split, in precision float16 fp16 */
    int64_t context;          /* 0: 2048 */
    int64_t top_k;            /* -1: 64; 0: logits */
    const char *prefill;      /* chunks: sizes of prefill functions beside "decode", "4,16,64"; NULL: none */
    const char *quantize;     /* scheme of the weights (quantize/scheme.h); NULL: none */
    const char *vocab;        /* scheme of embedding and head; "same" (NULL): as the others */
    const char *recipe;       /* file of rules by name pattern; NULL: none */
    int64_t group_size;       /* lut schemes: output channels a table; 0: 32 */
    const char *variants;     /* single: schemes, "fp16,w8,w4": a package each; NULL: one package */
    bool remove_fp16;         /* with variants: the fp16 package goes once the others are complete */
    const char *source_dtype; /* "float16", "bfloat16", "float32": the checkpoint must be readable in it
                                 without loss; NULL: whatever it has */
    const char *report;       /* JSON file to write: scheme, bits and error of every weight; NULL: none */
    const char *precision_plan; /* file that names what must be fp32 (convert/precision_plan.h); NULL: none */
    bool overwrite;
    /* Called now and then; false cancels: ERR_CANCELLED, OUT as it was before. tensor: the one being written;
     * at first, with a total of 0, the one whose values are being looked at. */
    bool (*progress)(void *ctx, const char *tensor, uint64_t done_bytes, uint64_t total_bytes,
                     uint64_t tensors_done, uint64_t tensors);
    void *ctx;
} convert_options;

/* Converts. summary (may be NULL) receives lines for people: files, sizes, bits per weight, what was skipped,
 * warnings. */
bool convert_checkpoint(const char *dir, const char *out, const convert_options *o, str *summary, err *e);
#endif
