#!/usr/bin/env python3
"""Types that coremltools infers for single ops: the golden file of tests/unit/test_infer.c.

    python tests/oracle/make_infer_cases.py > tests/data/infer_cases.json      (coremltools 9.0, numpy < 2.4)

A row: {"op", "spec", "in": {operand: value or [value, ...]}, "out": [[dtype, shape], ...]}, or "refused": true where
coremltools raises an error. A value is [dtype, shape] (run-time) or [dtype, shape, elements] (constant); size -1 is
unknown at conversion.
"""
import json
import logging
import random
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import coremltools as ct  # noqa: E402
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import Function, get_new_symbol, types  # noqa: E402
from coremltools.converters.mil.mil.types.symbolic import is_symbolic  # noqa: E402

TARGET = {6: ct.target.iOS15, 7: ct.target.iOS16, 8: ct.target.iOS17, 9: ct.target.iOS18, 10: ct.target.iOS26}
MIL = {"fp16": types.fp16, "fp32": types.fp32, "int32": types.int32, "bool": types.bool, "int8": types.int8,
       "uint8": types.uint8, "int16": types.int16, "uint16": types.uint16}
NP = {"fp16": np.float16, "fp32": np.float32, "int32": np.int32, "bool": np.bool_, "int8": np.int8,
      "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "uint32": np.uint32}
SUB = {"int4": types.np_int4_dtype, "uint1": types.np_uint1_dtype, "uint2": types.np_uint2_dtype,
       "uint3": types.np_uint3_dtype, "uint4": types.np_uint4_dtype, "uint6": types.np_uint6_dtype}
NP.update(SUB)


def v(dtype, *shape):
    return [dtype, list(shape)]


def k(dtype, data):
    if dtype == "string":
        return ["string", [], [data]]
    a = np.array(data)
    return [dtype, list(a.shape), [x.item() for x in a.reshape(-1)]]


def z(dtype, *shape):
    """A constant of zeros, listed short: only the first element is given."""
    return [dtype, list(shape), [0]]


def i32(data):
    return k("int32", data)


def b1(data):
    return k("bool", data)


def s(text):
    return k("string", text)


CASES = []


def case(op, spec=9, **operands):
    CASES.append((op, spec, operands))


def run(op, spec, operands):
    inputs = {}

    def collect(name, val):
        if len(val) == 2:
            shape = [get_new_symbol() if d == -1 else d for d in val[1]]
            inputs[name] = mb.placeholder(shape=shape, dtype=MIL[val[0]], allow_rank0_input=True)

    for name, val in operands.items():
        for i, one in enumerate(val if isinstance(val[0], list) else [val]):
            collect(f"{name}_{i}", one)
    with Function(inputs, opset_version=TARGET[spec]) as f:
        def get(name, val):
            if len(val) == 2:
                return f.inputs[name]
            if val[0] == "string":
                return val[2][0]
            data = val[2] if len(val[2]) > 1 else val[2] * int(np.prod(val[1]))
            a = np.array(data).reshape(val[1]).astype(NP[val[0]])
            return a if val[1] else a[()]

        kwargs = {}
        for name, val in operands.items():
            if isinstance(val[0], list):
                kwargs[name] = [get(f"{name}_{i}", one) for i, one in enumerate(val)]
            else:
                kwargs[name] = get(f"{name}_0", val)
        r = getattr(mb, op)(**kwargs)
    out = []
    for var in r if isinstance(r, (tuple, list)) else [r]:
        shape = [-1 if is_symbolic(d) else int(d) for d in var.shape]
        out.append([types.builtin_to_string(var.dtype), shape])
    return out


# ---- element-wise
UNARY = ["silu", "sigmoid", "tanh", "relu", "softplus", "exp", "sqrt", "erf", "floor", "ceil", "round", "sin", "cos",
         "abs", "square", "sign", "exp2", "log", "rsqrt", "inverse"]
for op in UNARY:
    case(op, x=v("fp16", 2, -1, 4))
for op in ["abs", "square", "sign", "exp2"]:
    case(op, x=v("int32", 3))
case("relu", x=v("int32", 3))
case("silu", x=v("fp32"))
case("logical_not", x=v("bool", 3))
case("logical_not", x=v("fp16", 3))
case("rsqrt", 7, x=v("fp16", 3), epsilon=k("fp32", 1e-5))
case("rsqrt", 8, x=v("fp16", 3), epsilon=k("fp32", 1e-5))
case("log", 7, x=v("fp16", 3), epsilon=k("fp16", 0.5))
case("clip", x=v("fp16", 3), alpha=k("fp16", 0.0), beta=k("fp16", 1.0))
case("clip", x=v("fp16", 3), alpha=k("fp32", 0.0), beta=k("fp16", 1.0))
case("threshold", x=v("fp32", 3, -1), alpha=k("fp32", 1.0))
case("leaky_relu", 7, x=v("fp16", 3), alpha=k("fp32", 1.0))
case("leaky_relu", 8, x=v("fp16", 3), alpha=k("fp32", 1.0))
case("elu", x=v("fp16", 3), alpha=k("fp16", 1.0))
for mode in ["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION", "OTHER"]:
    case("gelu", x=v("fp16", 3), mode=s(mode))
case("softplus_parametric", x=v("fp16", 1, 3, 4), alpha=k("fp16", [1.0] * 3), beta=k("fp16", [1.0] * 3))
case("softplus_parametric", x=v("fp16", 1, 3, 4), alpha=k("fp16", [1.0] * 2), beta=k("fp16", [1.0] * 3))
for to in ["fp16", "fp32", "int32", "bool", "int8", "uint8", "int16", "uint16", "int64", "fp64", "nonsense"]:
    case("cast", 9, x=v("fp16", 2, -1), dtype=s(to))
    case("cast", 7, x=v("fp32", 2), dtype=s(to))
BINARY = ["add", "sub", "mul", "real_div", "floor_div", "mod", "pow", "maximum", "minimum", "less", "less_equal",
          "greater", "greater_equal", "equal", "not_equal"]
SHAPES = [((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((), (2,)), ((-1, 3), (1, 3)), ((-1, 3), (4, 1)), ((-1,), (-1,)),
          ((2, 3), (4,)), ((1, -1), (5, -1)), ((0, 3), (1, 3))]
rng = random.Random(1)
for op in BINARY:
    for a, b in SHAPES if op == "add" else rng.sample(SHAPES, 3):
        dtype = rng.choice(["fp16", "fp32", "int32"])
        case(op, x=v(dtype, *a), y=v(dtype, *b))
for op in ["logical_and", "logical_or", "logical_xor"]:
    case(op, x=v("bool", 2, 3), y=v("bool", 3))
    case(op, x=v("int32", 3), y=v("int32", 3))
case("add", x=v("fp16", 3), y=v("fp32", 3))
case("less", x=v("int32", 3), y=v("fp32", 3))
case("add", x=v("bool", 3), y=v("bool", 3))
case("select", cond=v("bool", 2, 3), a=v("fp16", 2, 3), b=v("fp16", 3))
case("select", cond=v("bool", 3), a=v("int32", 3), b=v("int32"))
case("select", cond=v("bool", 3), a=v("fp32", 3), b=v("fp16", 3))
case("select", cond=v("bool", -1, 3), a=v("bool", 1, 3), b=v("bool", 5, 3))
case("select", cond=v("int32", 3), a=v("bool", 3), b=v("bool", 3))

# ---- products
case("linear", x=v("fp16", 2, 5, 8), weight=z("fp16", 4, 8), bias=z("fp16", 4))
case("linear", x=v("fp32", 8), weight=z("fp32", 4, 8))
case("linear", x=v("fp32", -1, 8), weight=z("fp16", 4, 8), bias=z("fp16", 4))
case("linear", 7, x=v("fp32", -1, 8), weight=z("fp16", 4, 8), bias=z("fp16", 4))
case("linear", x=v("fp32", 3, 7), weight=z("fp32", 4, 8))
case("linear", x=v("fp32", 3, 8), weight=z("fp32", 4, 8), bias=z("fp32", 8))
case("linear", x=v("fp32", 3, 8), weight=z("fp32", 2, 4, 8))
for tx in [False, True]:
    for ty in [False, True]:
        case("matmul", x=v("fp16", 2, 3, 3), y=v("fp16", 3, 3), transpose_x=b1(tx), transpose_y=b1(ty))
        case("matmul", x=v("fp16", 1, 4, 2, 3), y=v("fp16", 5, 1, 3, 7), transpose_x=b1(tx), transpose_y=b1(ty))
case("matmul", x=v("fp16", 2, 3), y=v("fp16", 3, -1))
case("matmul", x=v("fp16", 3), y=v("fp16", 3, 2))  # with a batch coremltools loses it
case("matmul", x=v("fp16", -1, 2, 3), y=v("fp16", 6, 3, 2))
case("matmul", x=v("int32", 2, 3), y=v("int32", 3, 2))
case("matmul", x=v("fp16", 2, 3), y=v("fp32", 3, 2))
case("matmul", x=v("fp16", 2, 3), y=z("fp32", 3, 2))
case("matmul", x=z("fp32", 2, 3), y=v("fp16", 3, 2))
case("matmul", 7, x=v("fp16", 2, 3), y=z("fp32", 3, 2))
case("matmul", x=v("fp16", 2, 3), y=v("fp16", 4, 2))
case("matmul", x=v("fp16", 2, 2, 3), y=v("fp16", 3, 3, 2))
case("einsum", values=[v("fp16", 1, 2, 3, 4), v("fp16", 1, 4, 3, 5)], equation=s("nchw,nwhu->nchu"))
case("einsum", values=[v("fp16", 2, 3, 4), v("fp16", 4, 3, 5)], equation=s("chw,whu->chu"))
case("einsum", values=[v("fp16", 2, 3, 4), v("fp16", 5, 3, 5)], equation=s("chw,whu->chu"))
case("einsum", values=[v("fp16", 2, 3, 4), v("fp32", 4, 3, 5)], equation=s("chw,whu->chu"))
for mask in [None, v("fp16", 4, 6), v("bool", 2, 1, 4, 6), v("fp16", 1, 1, 1, 6), v("fp16", 4, 5), v("fp16", 3, 1, 4, 6)]:
    extra = {} if mask is None else {"attn_mask": mask}
    case("scaled_dot_product_attention", query=v("fp16", 2, 3, 4, 8), key=v("fp16", 2, 3, 6, 8),
         value=v("fp16", 2, 3, 6, 5), **extra) if mask != v("fp16", 3, 1, 4, 6) else None
case("scaled_dot_product_attention", query=v("fp16", 2, -1, 8), key=v("fp16", 2, -1, 8), value=v("fp16", 2, -1, 8))
case("scaled_dot_product_attention", query=v("fp16", 2, 3, 8), key=v("fp16", 2, 3, 7), value=v("fp16", 2, 3, 8))
case("scaled_dot_product_attention", query=v("fp16", 2, 3, 8), key=v("fp16", 2, 4, 8), value=v("fp16", 2, 3, 8))
case("scaled_dot_product_attention", query=v("fp16", 2, 3, 8), key=v("fp16", 1, 3, 8), value=v("fp16", 1, 3, 8))
case("scaled_dot_product_attention", query=v("fp16", 3, 8), key=v("fp16", 3, 8), value=v("fp16", 3, 8))
case("scaled_dot_product_attention", 8, query=v("fp16", 2, 3, 8), key=v("fp16", 2, 3, 8), value=v("fp16", 2, 3, 8))

# ---- convolution
for n in [1, 2, 3]:
    for pad in ["valid", "same", "same_lower", "custom"]:
        for stride in [1, 2, 3]:
            extra = {"pad": i32(list(range(2 * n)))} if pad == "custom" else {}
            case("conv", x=v("fp16", 1, 4, *[9, 8, 7][:n]), weight=z("fp16", 6, 4, *[3, 2, 1][:n]), pad_type=s(pad),
                 strides=i32([stride] * n), **extra)
case("conv", x=v("fp16", -1, 4, -1), weight=z("fp16", 6, 4, 3))
case("conv", x=v("fp16", 1, 4, 9), weight=z("fp16", 6, 4, 3), dilations=i32([3]))
case("conv", x=v("fp16", 1, 4, 5), weight=z("fp16", 6, 4, 3), dilations=i32([3]))
case("conv", x=v("fp16", 1, 4, 9), weight=z("fp16", 8, 1, 3), groups=i32(4), bias=z("fp16", 8))
case("conv", x=v("fp16", 1, 4, 9), weight=z("fp16", 8, 1, 3), groups=i32(2))
case("conv", x=v("fp16", 1, 4, 9), weight=z("fp16", 8, 4, 3), bias=z("fp16", 7))
case("conv", x=v("fp16", 1, 4, 9), weight=v("fp16", 8, 4, 3))
case("conv", x=v("fp16", 1, 4, 9), weight=z("fp32", 8, 4, 3))
case("conv", 7, x=v("fp16", 1, 4, 9), weight=z("fp32", 8, 4, 3))
for pad in ["valid", "same", "custom"]:
    extra = {"pad": i32([1, 0])} if pad == "custom" else {}
    case("conv_transpose", x=v("fp16", 1, 4, 9), weight=z("fp16", 4, 3, 5), pad_type=s(pad), strides=i32([2]), **extra)
case("conv_transpose", x=v("fp16", 1, 4, 9, 3), weight=z("fp16", 4, 3, 2, 2), groups=i32(2), dilations=i32([2, 1]))
case("conv_transpose", x=v("fp16", 1, 4, 9), weight=z("fp16", 4, 3, 5), output_shape=i32([1, 3, 11]))

# ---- gather, scatter
for shape in [(), (2,), (2, 3), (-1,)]:
    for axis in [0, 1, -1, 3]:
        case("gather", x=v("fp16", 4, 5, 6), indices=v("int32", *shape), axis=i32(axis))
case("gather", x=v("int32", 5), indices=v("int32"), axis=i32(0))
case("gather", x=v("fp16", 4, 5, 6), indices=v("int32", 4, 2), axis=i32(1), batch_dims=i32(1))
case("gather", x=v("fp16", 4, 5, 6), indices=v("int32", 4, 5, 2), axis=i32(2), batch_dims=i32(2))
case("gather", x=v("fp16", 4, 5, 6), indices=v("int32", 4), axis=i32(2), batch_dims=i32(2))
case("gather", x=v("fp16", 4, 5, 6), indices=v("uint16", 2))
case("gather", 6, x=v("fp32", 4, 5, 6), indices=v("int32", 2), axis=i32(1))
case("gather", 6, x=v("fp32", 4), indices=v("uint16", 2))
case("gather", 7, x=v("fp32", 4), indices=v("uint16", 2))
case("gather", 7, x=v("fp32", 4), indices=v("uint8", 2))
case("gather", 7, x=v("int8", 4), indices=v("int32", 2))
case("gather_along_axis", x=v("fp16", 4, 5), indices=v("int32", 4, 2), axis=i32(1))
case("gather_along_axis", x=v("fp16", 4, 5), indices=v("int32", 2, 5))
case("gather_along_axis", x=v("fp16", 4, 5), indices=v("int32", -1, 2), axis=i32(-1))
case("gather_along_axis", x=v("fp16", 4, 5), indices=v("int32", 3, 2), axis=i32(1))
case("gather_along_axis", x=v("fp16", 4, 5), indices=v("int32", 2), axis=i32(1))
case("gather_nd", x=v("fp16", 4, 5, 6), indices=v("int32", 7, 2))
case("gather_nd", x=v("fp16", 4, 5, 6), indices=v("int32", 3))
case("gather_nd", x=v("fp16", 4, 5, 6), indices=v("int32", 4, 7, 1), batch_dims=i32(1))
case("gather_nd", x=v("fp16", 4, 5, 6), indices=v("int32", 7, 4))
case("scatter", data=v("fp16", 4, 5), indices=v("int32", 2), updates=v("fp16", 2, 5))
case("scatter", data=v("fp16", 4, 5), indices=v("int32", 2), updates=v("fp16", 4, 2), axis=i32(-1), mode=s("update"))
case("scatter", data=v("fp16", 4, 5), indices=v("int32", 2), updates=v("fp16", 2, 4))
case("scatter", data=v("fp16", 4, 5), indices=v("int32", 2), updates=v("fp32", 2, 5))
case("scatter_along_axis", data=v("fp16", 4, 5), indices=v("int32", 2, 5), updates=v("fp16", 2, 5))
case("scatter_along_axis", data=v("fp16", 4, 5), indices=v("int32", 2, 5), updates=v("fp16", 2, 4))
case("scatter_nd", data=v("fp16", 4, 5), indices=v("int32", 3, 1), updates=v("fp16", 3, 5))
case("scatter_nd", data=v("fp16", 4, 5), indices=v("int32", 3, 2), updates=v("fp16", 3))
case("scatter_nd", data=v("fp16", 4, 5), indices=v("int32", 3, 2), updates=v("fp16", 4))

# ---- reductions, orderings, normalisations
REDUCE = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum_square",
          "reduce_l2_norm", "reduce_l1_norm", "reduce_log_sum_exp", "reduce_log_sum"]
for op in REDUCE:
    case(op, x=v("fp16", 2, -1, 4), axes=i32([-1]), keep_dims=b1(True))
    case(op, x=v("fp32", 2, 3, 4), axes=i32([0, -1]), keep_dims=b1(False))
case("reduce_sum", x=v("fp16", 2, 3))
case("reduce_sum", x=v("fp16", 2, 3), keep_dims=b1(True))
case("reduce_sum", x=v("fp16", 2, 3), axes=i32([5]))
for op in ["reduce_argmax", "reduce_argmin"]:
    case(op, x=v("fp16", 2, -1, 4))
    case(op, x=v("fp16", 2, 3), axis=i32(0), keep_dims=b1(True), output_dtype=s("uint16"))
    case(op, 7, x=v("fp32", 2, 3), axis=i32(0))
    case(op, x=v("fp16", 2, 3), axis=i32(0), output_dtype=s("int8"))
    case(op, x=v("fp16", 2, 3), axis=i32(2))
case("cumsum", x=v("fp16", 2, 3), axis=i32(1), exclusive=b1(True))
case("cumsum", x=v("fp16", 2, 3), axis=i32(2))
case("softmax", x=v("fp16", 2, -1), axis=i32(-1))
for n in [1, 3, 4]:
    case("topk", x=v("fp16", 2, 3), k=i32(n), axis=i32(1))
case("topk", x=v("fp16", 2, -1), k=i32(7))
case("topk", x=v("fp16", 9, 2), k=i32(7), axis=i32(-2), output_indices_dtype=s("uint16"))
case("topk", x=v("fp16", 9, 2), return_indices=b1(False))
case("topk", 6, x=v("fp32", 9, 2))
case("argsort", x=v("fp16", 9, -1), axis=i32(0))
case("layer_norm", x=v("fp16", 2, 3, 4), axes=i32([-1]), gamma=z("fp16", 4), beta=z("fp16", 4))
case("layer_norm", x=v("fp16", 2, 3, 4), axes=i32([1, 2]), gamma=z("fp16", 3, 4), beta=z("fp16", 3, 4), epsilon=k("fp16", 0.5))
case("layer_norm", x=v("fp16", 2, 3, 4), axes=i32([1, 2]), gamma=z("fp16", 4))
case("layer_norm", x=v("fp16", 2, 3, 4), axes=i32([3]))
case("layer_norm", 7, x=v("fp16", 2, 4), axes=i32([1]), epsilon=k("fp32", 0.5))
case("l2_norm", x=v("fp16", 2, 3, 4))
case("l2_norm", x=v("fp16", 3, 4))
case("instance_norm", x=v("fp16", 2, 3, 4, 5), gamma=z("fp16", 3))
case("batch_norm", x=v("fp16", 2, 3, 4, 5), mean=z("fp16", 3), variance=z("fp16", 3))

# ---- shape
for shape in [[2, 12], [-1], [4, -1, 2], [24], [5, -1], [-1, -1], [2, 3], [0, -1], [0, 0, 4], [0, 6, -1, 0]]:
    case("reshape", 9, x=v("fp16", 2, 3, 4), shape=i32(shape))
    case("reshape", 7, x=v("fp32", 2, 3, 4), shape=i32(shape))
case("reshape", x=v("fp16", 2, -1, 4), shape=i32([2, -1, 8]))
case("reshape", x=v("fp16", 2, -1, 4), shape=v("int32", 3))
case("reshape", x=v("fp16"), shape=i32([1, 1]))
case("reshape", x=v("fp16", 1), shape=k("int8", [1, 1]))
case("transpose", x=v("fp16", 2, -1, 4), perm=i32([2, 0, 1]))
case("transpose", x=v("fp16", 2, 3, 4), perm=i32([-1, 0, 1]))
case("transpose", x=v("fp16", 2, 3, 4), perm=i32([1, 0]))
for axes in [[0], [-1], [0, 3], [1, -1], [5]]:
    case("expand_dims", x=v("fp16", 2, -1), axes=i32(axes))
case("expand_dims", x=v("int32"), axes=i32([0]))
case("squeeze", x=v("fp16", 1, 3, 1))
case("squeeze", x=v("fp16", 1, 3, 1), axes=i32([0]))
case("squeeze", x=v("fp16", 1, 3, 1), axes=i32([-1, 0]))
case("squeeze", x=v("fp16", 1), axes=i32([0]))
case("squeeze", x=v("fp16", 1, 3), axes=i32([2]))
case("flatten2d", x=v("fp16", 2, 3, 4))
case("flatten2d", x=v("fp16", 2, 3, 4), axis=i32(2))
case("flatten2d", x=v("fp16", 2, 3, 4), axis=i32(-1))
case("concat", values=[v("fp16", 2, 3), v("fp16", 4, 3)], axis=i32(0))
case("concat", values=[v("fp16", 2, 3), v("fp16", 2, -1)], axis=i32(-1))
case("concat", values=[v("int32"), i32(4), v("int32")], axis=i32(0))
case("concat", values=[v("fp16", 2, 3), v("fp16", 2, 3)], axis=i32(1), interleave=b1(True))
case("concat", values=[v("fp16", 2, 3), v("fp16", 2, 4)], axis=i32(1), interleave=b1(True))
case("concat", values=[v("fp16", 2, 3), v("fp32", 2, 3)], axis=i32(1))
case("concat", values=[v("fp16", 2, 3), v("fp16", 3, 3)], axis=i32(1))
case("concat", values=[v("fp16", 2, 3), v("fp16", 2, 3)], axis=i32(2))
case("stack", values=[v("fp16", 2, 3), v("fp16", 2, 3)], axis=i32(0))
case("stack", values=[v("fp16", 2, -1), v("fp16", 2, 3), v("fp16", 2, -1)], axis=i32(-1))
case("stack", values=[v("fp16", 2, 3), v("fp16", 2, 4)], axis=i32(0))
case("stack", values=[v("fp16"), v("fp16")], axis=i32(0))
case("split", x=v("fp16", 2, 6), num_splits=i32(3), axis=i32(1))
case("split", x=v("fp16", 2, 6), split_sizes=i32([1, 5]), axis=i32(-1))
case("split", x=v("fp16", 2, 6), num_splits=i32(2), split_sizes=i32([1, 5]), axis=i32(-1))
case("split", x=v("fp16", 2, 6), num_splits=i32(4), axis=i32(1))
case("split", x=v("fp16", 2, 6), axis=i32(1))
case("tile", x=v("fp16", 2, -1), reps=i32([3, 1]))
case("tile", x=v("fp16", 2, -1), reps=i32([3, 2]))
case("tile", x=v("fp16", 2, 3), reps=v("int32", 2))
case("tile", x=v("fp16", 2, 3), reps=i32([3]))
case("tile", x=v("fp16", 2, 3), reps=i32([3, 0]))
case("reverse", x=v("fp16", 2, 3), axes=i32([-1]))
for pad in [[1, 2], [0, 0, 1, 2], [1, 0, 0, 1, 2, 2], [-1, 0], [1, 2, 3], [1] * 8]:
    case("pad", x=v("fp16", 2, 3, 4), pad=i32(pad), mode=s("constant"), constant_val=k("fp16", 0.0))
case("pad", x=v("fp16", 2, 3, 4), pad=i32([1, 2]), mode=s("reflect"))
case("pad", x=v("fp16", 2, 3, 4), pad=i32([1, 2]), mode=s("wrap"))
case("pad", x=v("fp16", 2, 3), pad=v("int32", 4))
case("pad", x=v("fp16", 2, -1), pad=i32([0, 0, 1, 0]))
case("band_part", x=v("fp16", 2, 3), lower=i32(-1), upper=i32(0))
case("sliding_windows", x=v("fp16", 1, 9, 2), axis=i32(1), size=i32(4))
case("sliding_windows", x=v("fp16", 1, 9, 2), axis=i32(-2), size=i32(4), stride=i32(2))
case("identity", x=v("fp16", 2, -1))
case("shape", x=v("fp16", 2, -1, 3))
case("non_zero", x=v("int32", 2, 3))
for start, end, step in [(0, 5, 1), (5, 0, -2), (0, 7, 3), (3, 3, 1)]:
    case("range_1d", start=i32(start), end=i32(end), step=i32(step))
case("range_1d", start=i32(0), end=v("int32"), step=i32(1))
case("range_1d", start=k("fp32", 0.0), end=k("fp32", 1.0), step=k("fp32", 0.3))
case("range_1d", start=k("fp32", 0.0), end=i32(1), step=i32(1))
case("fill", shape=i32([2, 3]), value=k("fp16", 1.0))
case("fill", shape=i32([2, 3]))
case("fill", shape=v("int32", 2), value=i32(1))
case("fill_like", ref_tensor=v("fp16", 2, -1), value=i32(1))
case("one_hot", indices=v("int32", 2, 3), one_hot_vector_size=i32(5))
case("one_hot", indices=v("int32", 2, 3), one_hot_vector_size=i32(5), axis=i32(0), on_value=k("fp16", 1.0), off_value=k("fp16", 0.0))
case("one_hot", indices=v("int32", 2), one_hot_vector_size=v("int32"))
case("one_hot", indices=v("int32", 2), one_hot_vector_size=i32(5), axis=i32(3))

# ---- slices
for _ in range(120):
    rank = rng.choice([1, 2, 3])
    shape = [rng.choice([2, 3, 5, 7, -1]) for _ in range(rank)]
    begin, end, stride = [], [], []
    for d in shape:
        st = rng.choice([1, 1, 1, 2, 3, -1, -2])
        n = 5 if d == -1 else d
        lo, hi = sorted([rng.randint(0, n), rng.randint(0, n)])
        if st < 0:  # coremltools reads an end of 0 as it should, one below begin
            lo, hi = hi, lo
        if rng.random() < 0.3 and lo != 0:
            lo -= n
        if rng.random() < 0.3 and hi != n and st > 0:
            hi -= n
        begin.append(lo), end.append(hi), stride.append(st)
    extra = {}
    for name, p in [("begin_mask", 0.3), ("end_mask", 0.3), ("squeeze_mask", 0.15)]:
        if rng.random() < 0.6:
            extra[name] = b1([rng.random() < p for _ in shape])
    if "squeeze_mask" in extra:  # an index must exist
        for i, d in enumerate(shape):
            if extra["squeeze_mask"][2][i]:
                begin[i] = 0
    case("slice_by_index", x=v("fp16", *shape), begin=i32(begin), end=i32(end), stride=i32(stride), **extra)
case("slice_by_index", x=v("fp16", 4, 5), begin=v("int32", 2), end=v("int32", 2))
case("slice_by_index", x=v("fp16", 4, 5), begin=v("int32", 2), end=v("int32", 2), begin_mask=b1([False, True]),
     end_mask=b1([False, True]))
case("slice_by_index", x=v("fp16", 4, 5), begin=i32([0, 0]), end=v("int32", 2), squeeze_mask=b1([True, False]))
case("slice_by_index", x=v("fp16", 4, 5), begin=i32([0]), end=i32([1]))
case("slice_by_index", x=v("fp16", 4), begin=i32([1]), end=i32([2147483647]))
case("slice_by_size", x=v("fp16", 4, 5), begin=i32([1, 2]), size=i32([2, -1]))
case("slice_by_size", x=v("fp16", 4, 5), begin=v("int32", 2), size=i32([2, 3]))
case("slice_by_size", x=v("fp16", 4, 5), begin=v("int32", 2), size=i32([2, -1]))
case("slice_by_size", x=v("fp16", 4, 5), begin=i32([0, 0]), size=v("int32", 2))
case("slice_by_size", x=v("fp16", 4, 5), begin=i32([0]), size=i32([1, 1]))
case("slice_update", x=v("fp16", 4, 5), update=v("fp16", 1, 5), begin=i32([2, 0]), end=i32([3, 0]), end_mask=b1([False, True]))
case("slice_update", x=v("fp16", 4, 5), update=v("fp16", 2, 5), begin=i32([2, 0]), end=i32([3, 0]), end_mask=b1([False, True]))
case("slice_update", x=v("fp16", 4, 5), update=v("fp16", 5), begin=i32([2, 0]), end=i32([0, 5]), squeeze_mask=b1([True, False]))
case("slice_update", x=v("fp16", 4, 5), update=v("fp32", 4, 5), begin=i32([0, 0]), end=i32([4, 5]))
case("slice_update", x=v("fp16", 4, 5), update=v("fp16", 7, 5), begin=v("int32", 2), end=v("int32", 2))
case("slice_update", x=v("fp16", 4), update=v("fp16"), begin=i32([1]), end=i32([2]), squeeze_mask=b1([True]))

# ---- decompression, quantized activations
case("constexpr_lut_to_dense", 9, indices=z("uint4", 4, 6), lut=z("fp16", 1, 1, 16, 1))
case("constexpr_lut_to_dense", 9, indices=z("uint2", 4, 6), lut=z("fp16", 2, 3, 4, 1))
case("constexpr_lut_to_dense", 9, indices=z("uint2", 4, 6), lut=z("int8", 1, 1, 4, 2), vector_axis=i32(-2))
case("constexpr_lut_to_dense", 9, indices=z("uint2", 4, 6), lut=z("fp16", 1, 1, 4, 2))
case("constexpr_lut_to_dense", 9, indices=z("uint2", 4, 6), lut=z("fp16", 1, 1, 8, 1))
case("constexpr_lut_to_dense", 9, indices=z("uint2", 4, 6), lut=z("fp16", 3, 1, 4, 1))
case("constexpr_lut_to_dense", 9, indices=z("uint2", 4, 6), lut=z("fp16", 4, 1))
case("constexpr_lut_to_dense", 7, indices=z("uint8", 3), lut=z("fp16", 4), shape=k("uint32", [3, 4]))
case("constexpr_lut_to_dense", 7, indices=z("uint8", 4), lut=z("fp16", 4), shape=k("uint32", [3, 4]))
case("constexpr_lut_to_dense", 7, indices=z("uint8", 3), lut=z("fp16", 8), shape=k("uint32", [3, 4]))
case("constexpr_affine_dequantize", 7, quantized_data=z("int8", 3, 4), zero_point=z("int8", 4), scale=z("fp16", 4), axis=i32(1))
case("constexpr_affine_dequantize", 7, quantized_data=z("int8", 3, 4), zero_point=k("int8", 0), scale=k("fp32", 1.0), axis=i32(0))
case("constexpr_affine_dequantize", 7, quantized_data=z("int8", 3, 4), zero_point=k("int8", 0), scale=z("fp32", 4), axis=i32(0))
case("constexpr_blockwise_shift_scale", data=z("int4", 4, 6), scale=z("fp16", 4, 2))
case("constexpr_blockwise_shift_scale", data=z("int8", 4, 6), scale=z("fp16", 4, 1), offset=z("int8", 4, 1))
case("constexpr_blockwise_shift_scale", data=z("int8", 4, 6), scale=z("fp16", 4, 4))
case("constexpr_blockwise_shift_scale", data=z("int8", 4, 6), scale=z("fp16", 4))
case("constexpr_blockwise_shift_scale", data=z("int8", 4, 6), scale=z("fp16", 4, 1), offset=z("uint8", 4, 1))
case("constexpr_blockwise_shift_scale", data=z("int8", 4, 6), scale=z("fp16", 4, 1), offset=z("fp16", 1, 1))
case("constexpr_cast", source_val=z("fp16", 3), output_dtype=s("fp32"))
case("constexpr_cast", source_val=z("fp16", 3), output_dtype=s("fp16"))
case("quantize", input=v("fp16", 2, 3), scale=k("fp16", 1.0), output_dtype=s("int8"))
case("quantize", input=v("fp32", 2, 3), scale=k("fp32", [1.0, 2.0, 3.0]), axis=i32(1), zero_point=k("uint8", [0, 1, 2]), output_dtype=s("uint8"))
case("quantize", input=v("fp32", 2, 3), scale=k("fp32", [1.0, 2.0, 3.0]), axis=i32(0), output_dtype=s("uint8"))
case("quantize", input=v("fp32", 2, 3), scale=k("fp16", 1.0), output_dtype=s("uint8"))
case("dequantize", input=v("int8", 2, 3), scale=k("fp16", 1.0))
case("dequantize", input=v("uint8", 2, 3), scale=k("fp32", [1.0, 2.0]), axis=i32(-2))

rows = []
for op, spec, operands in CASES:
    row = {"op": op, "spec": spec, "in": operands}
    try:
        row["out"] = run(op, spec, operands)
    except Exception as ex:  # noqa: BLE001 (coremltools raises many kinds)
        row["refused"] = True
        if "-v" in sys.argv:
            print(op, spec, operands, type(ex).__name__, str(ex)[:150], file=sys.stderr)
    rows.append(row)
print("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]")
