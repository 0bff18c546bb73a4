/* checkpoint directory or GGUF file -> artifact directory OUT:
 *
 *   preset chunks  model.mlpackage, or chunk_I_of_N.mlpackage (and head_J_of_M.mlpackage where the head is
 * too large for them); <model>_embed_tokens.<kind>.bin, metadata.json, Tokenizer/ preset single
 * model.mlpackage, metadata.json, Tokenizer/ with variants  <Model>-TopK64-W8.mlpackage ...,
 * conversion_manifest.json, Tokenizer/
 *
 * format coreai  <model>.aimodel, metadata.json, tokenizer/
 *
 * What is a program already, an .mlpackage or .aimodel, becomes one of the other format at exactly OUT.
 *
 * With into set, OUT is a directory below the given one whose name tells model and options, and the table
 * lies beside it, shared by all of the model's artifacts there. */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H
#include "base/err.h"
#include "base/str.h"

/* Text options are NULL, numbers 0 where the default is meant. What does not apply to the preset is refused.
 */
typedef struct {
    const char *format;       /* "coreml" (NULL), "coreai": a bundle, in place of packages */
    const char *steer_around; /* coreai: "ios27" (NULL): what is known to fail there is not made; "none" */
    const char *preset;       /* "chunks", "single"; NULL: the family's default */
    const char *precision;    /* "mixed" (NULL), "float16", "float32" */
    const char *state;        /* "split", "fp16"; NULL: split, in precision float16 fp16 */
    int64_t context;          /* 0: 2048, or what the model has where that is less */
    int64_t top_k;            /* single: candidates; -1: 64; 0: logits */
    const char *prefill;      /* chunks: sizes of prefill functions beside "decode", "4,16,64"; NULL: none */
    const char *chunks;       /* chunks: packages, "6"; "auto" (NULL): as few as files may be large */
    const char *kv;    /* chunks: "split" (NULL): a state for each layer's keys and values; "stacked" */
    const char *table; /* chunks: kind of the host table, "int8", "fp16", "fp32"; NULL: int8 with a scheme
                          other than fp16, else fp32 in precision float32, else fp16 */
    uint64_t max_file_size;     /* chunks: bytes of a weight file; 0: 2 GiB - 16 MiB */
    const char *quantize;       /* scheme of the weights (quantize/scheme.h); coreai: also int8lin, int8hu,
                                   int4lin; NULL: none */
    const char *vocab;          /* scheme of embedding and head; "same" (NULL): as the others */
    const char *recipe;         /* file of rules by name pattern; NULL: none */
    int64_t group_size;         /* lut schemes: output channels a table; 0: 32 */
    const char *variants;       /* single: schemes, "fp16,w8,w4": a package each; NULL: one package */
    bool remove_fp16;           /* with variants: the fp16 package goes once the others are complete */
    const char *source_dtype;   /* "float16", "bfloat16", "float32": the checkpoint must be readable in it
                                   without loss; NULL: whatever it has */
    const char *report;         /* JSON file to write: scheme, bits and error of every weight; NULL: none */
    const char *precision_plan; /* file that names what must be fp32 (convert/precision_plan.h); NULL: none */
    const char *tokenizer;     /* directory to take tokenizer files from; NULL: the checkpoint; of a GGUF file
                                  its metadata */
    bool into;                 /* OUT is made below the directory given, with a name of its own */
    const char *share_weights; /* directory of artifacts: equal weight files become hard links to theirs */
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
