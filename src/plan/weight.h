/* Constants as weights of kernels: the package's own bytes, nothing expanded. */
#ifndef PLAN_WEIGHT_H
#define PLAN_WEIGHT_H
#include "ir/program.h"
#include "kernels/kernels.h"

/* v as a matrix of [rows][cols]: a constant, or the result of a constexpr op over constants. False when
 * kernels can't read it as it lies. */
bool plan_weight(const ir_value *v, int64_t rows, int64_t cols, kern_weight *w);
uint64_t plan_weight_bytes(const kern_weight *w);
#endif
