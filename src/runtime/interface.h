/* Inputs of a function: checked against its description and turned into tensors of the evaluator. */
#ifndef RUNTIME_INTERFACE_H
#define RUNTIME_INTERFACE_H
#include "reference/tensor.h"
#include "runtime/session.h"

/* Whether all inputs and outputs are tensors, so that something can run it. */
bool rt_only_tensors(const coreml_function *f, err *e);
/* Names, dtypes and shapes (fixed, enumerated, ranged) of in[0..n); missing ones too. */
bool rt_check_inputs(const coreml_function *f, const rt_tensor *in, size_t n, err *e);
/* The described input from in[0..n), or its default value. */
bool rt_make_input(ref_tensor *t, const coreml_feature *f, const rt_tensor *in, size_t n, err *e);
bool rt_unpack(ref_tensor *t, const rt_tensor *from, err *e);
#endif
