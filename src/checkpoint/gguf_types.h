/* The number formats of GGUF tensors: single numbers, and blocks of codes with scales.
 *
 * Decoded values are those of the public gguf package, bit for bit: the same fp32 operations in the same
 * order. */
#ifndef CHECKPOINT_GGUF_TYPES_H
#define CHECKPOINT_GGUF_TYPES_H
#include "ir/type.h"
#include <stddef.h>
#include <stdint.h>

enum { GGUF_MAX_BLOCK = 256, GGUF_KEPT_BLOCK = 32 };

typedef struct {
    uint32_t id;
    const char *name;       /* "Q4_K" */
    uint16_t values, bytes; /* of a block; single numbers: a block of one */
    ir_dtype plain;         /* single numbers; DT_NONE: blocks */
    void (*decode)(float *out, const uint8_t *block, size_t blocks); /* NULL: known by name only */
    /* Where every value is an integer of kept_bits (4 or 8) times one fp16 scale for 32 of them: code and
     * scale of a block. 0 and NULL elsewhere. */
    unsigned kept_bits;
    void (*keep)(int8_t code[GGUF_KEPT_BLOCK], uint16_t *scale, const uint8_t *block);
} gguf_type;

/* NULL: there is no such type (that this version knows of). */
const gguf_type *gguf_type_by_id(uint32_t id);
#endif
