/* Where things lie in a weight. */
#ifndef KERNELS_WEIGHT_H
#define KERNELS_WEIGHT_H
#include "base/num.h"
#include "kernels/kernels.h"

static inline float kern_half_at(const void *p, int64_t i) {
    return num_f16_f32(num_get16((const char *)p + 2 * i));
}

/* Element i of an array. */
static inline float kern_at(const void *p, kern_type type, int64_t i) {
    float f;
    int nibble = type == KERN_I4 || type == KERN_U4 ? ((const uint8_t *)p)[i / 2] >> (i % 2 * 4) & 15 : 0;
    switch (type) {
    case KERN_F32: memcpy(&f, (const char *)p + 4 * i, 4); return f;
    case KERN_F16: return kern_half_at(p, i);
    case KERN_I8: return ((const int8_t *)p)[i];
    case KERN_U8: return ((const uint8_t *)p)[i];
    case KERN_I4: return (float)num_sign_extend((unsigned)nibble, 4);
    case KERN_U4: return (float)nibble;
    }
    return 0;
}

/* The first block of row r; element c is in block first + c / block_cols. */
static inline int64_t kern_row_block(const kern_weight *w, int64_t r) {
    return r / w->block_rows * (w->cols / w->block_cols);
}

/* The codes of row r, for palettes whose rows start at a byte. */
static inline const uint8_t *kern_codes(const kern_weight *w, int64_t r) {
    return (const uint8_t *)w->data + r * w->cols * w->bits / 8;
}

/* The table of row r, for palettes with tables for whole rows of fp16. */
static inline const uint16_t *kern_table_of(const kern_weight *w, int64_t r) {
    return (const uint16_t *)w->table + (r / w->block_rows << w->bits);
}

/* kern_table.decode of plain C, for the ends of rows. */
void kern_decode(const kern_weight *w, int64_t r, int64_t c, int64_t n, float *out);
#endif
