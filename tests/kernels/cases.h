/* Rows of cases: what the kernel tests check and the kernel benchmarks time. */
#ifndef TEST_KERNELS_CASES_H
#define TEST_KERNELS_CASES_H
#include "weights.h"

typedef struct {
    int64_t heads, groups, tokens, d, d_v, keys, first;
    char kept; /* see buffers_memory() */
    bool mask, gate;
    bool by_token; /* queries and results [token][head], else [head][token] */
} attention_case;

typedef struct {
    int64_t heads, repeat, dk, dv, tokens;
    char kept;
    bool transposed, unit, weight, gate, decayed;
} delta_case;

extern const weight_case weight_cases[];
extern const attention_case attention_cases[];
extern const delta_case delta_cases[];
extern const int n_weight_cases, n_attention_cases, n_delta_cases;
#endif
