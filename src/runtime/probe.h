/* What the functions of any package cost, without knowing what they are for: each is run on made-up inputs
 * and the time of its steps is listed by kernel, with the share of those that have no fast path. */
#ifndef RUNTIME_PROBE_H
#define RUNTIME_PROBE_H
#include "base/str.h"
#include "runtime/model.h"

/* Appends a paragraph for each function of m (of a pipeline: for the whole). Inputs have their declared sizes
 * (integers of open size as many as the function has tokens) and say what they would at this position:
 * integers count from there; floats with "mask" in their name let row r see the positions up to position + r,
 * or choose the one at hand where they are a column; others are random numbers in
 * [-1, 1). States begin as zeros and go on from run to run. */
bool rt_probe(str *out, const rt_model *m, int64_t position, err *e);
#endif
