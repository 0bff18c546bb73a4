/* One tensor being compressed, shared by the files of this module. */
#ifndef QUANTIZE_JOB_H
#define QUANTIZE_JOB_H
#include "quantize/quantize.h"

typedef struct quant_job quant_job;

/* The scales found while a tensor's codes were made, kept until they are written themselves: those of one
 * tensor at a time, in memory that all jobs of a program share. */
typedef struct {
    uint16_t *scale; /* room for most; made at the first use */
    uint64_t most;
    const quant_job *owner; /* whose scales they are, */
    uint64_t n;             /* and how many of them, from the first on */
} quant_scales;

struct quant_job {
    const ir_const *source; /* fp16 [rows, cols] */
    int64_t rows, cols;
    quant_scheme scheme;
    unsigned threads;
    arena *a; /* the program's */
    quant_result *result;
    uint16_t *table;      /* LUT: [rows / group][2^bits] halves, made as codes or tables are asked for */
    uint64_t fitted;      /* how many of the tables are there, from the first on */
    quant_scales *scales; /* integers */
    double square, error; /* sums of the weights' and the errors' squares, kept by the filler of the codes */
};

/* Halves [first, first + n) of the source: a pointer into the map, or buf filled. NULL on error. */
const uint16_t *quant_source(const quant_job *j, uint64_t first, uint64_t n, uint16_t *buf, err *e);
/* Before the pieces of a range are counted: a range from 0 starts the figures anew. */
void quant_begin(quant_job *j, uint64_t first);
/* What n weights and their decoded values differ by. */
typedef struct {
    double square, error,
        largest; /* sums of squares of the weights and of the differences; largest difference */
} quant_sum;
void quant_measure(quant_sum *s, const float *weight, const float *decoded, size_t n);
/* Adds a piece's sums to the job; called in a fixed order, so that the figures don't depend on threads. */
void quant_count(quant_job *j, const quant_sum *s);

/* Operands of the constexpr op. */
const ir_const *lut_codes(quant_job *j);     /* uintN [rows, cols] */
const ir_const *lut_tables(quant_job *j);    /* fp16 [rows / group, 1, 2^bits, 1] */
const ir_const *affine_codes(quant_job *j);  /* int8 or int4 [rows, cols] */
const ir_const *affine_scales(quant_job *j); /* fp16 [rows, 1] or [rows, cols / group] */
#endif
