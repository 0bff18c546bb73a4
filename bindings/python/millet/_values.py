"""Python values to tensors of the library and back, with the checks and the words of Core ML."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

import numpy as np

from ._native import MAX_RANK, MilletError, Tensor

DTYPES = {
    1: np.dtype(np.bool_), 2: np.dtype(np.int8), 3: np.dtype(np.int16), 4: np.dtype(np.int32), 5: np.dtype(np.int64),
    6: np.dtype(np.uint8), 7: np.dtype(np.uint16), 8: np.dtype(np.uint32), 9: np.dtype(np.uint64),
    10: np.dtype(np.float16), 11: np.dtype(np.float32), 12: np.dtype(np.float64),
}
"""``millet_dtype`` -> numpy's."""
CODES = {dtype: code for code, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Feature:
    """One input, output or state. ``shape`` None: not declared."""

    name: str
    dtype: Optional[np.dtype]
    shape: Optional[Tuple[int, ...]]
    lower: Tuple[int, ...] = ()
    upper: Tuple[int, ...] = ()
    shapes: Tuple[Tuple[int, ...], ...] = ()  # enumerated
    ranged: bool = False
    optional: bool = False
    default: Optional[float] = None
    default_dtype: Optional[np.dtype] = None
    description: str = ""
    kind: str = "tensor"  # "image", "string", ...: dtype is None


def _times(shape: Tuple[int, ...], sign: str = "x") -> str:
    return "(" + f" {sign} ".join(map(str, shape)) + ")"


def shape_problem(feature: Feature, shape: Tuple[int, ...]) -> Optional[str]:
    """What is wrong with a shape, as Core ML puts it; None when nothing is."""
    if feature.shape is None:
        return None
    if feature.shapes:
        return None if shape in feature.shapes else (
            f"Shape {_times(shape)} was not in enumerated set of allowed shapes: "
            + ", ".join(_times(s) for s in feature.shapes))
    if len(shape) == len(feature.shape) and feature.ranged:
        for i, (size, low, high) in enumerate(zip(shape, feature.lower, feature.upper)):
            if size < low or (high >= 0 and size > high):
                return f"Size ({size}) of dimension ({i}) is not in allowed range ({low}..{'' if high < 0 else high})"
        return None
    return None if shape == feature.shape else (
        f"MultiArray shape {_times(shape)} does not match the shape {_times(feature.shape)} specified in the model "
        "description")


def _as_array(value: Any, what: str) -> np.ndarray:
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "detach") and hasattr(value, "numpy"):  # torch
        tensor = value.detach().cpu()
        array = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    else:
        try:
            array = np.asarray(value)
        except ValueError as e:
            raise TypeError(f"{what}: value type not convertible: {e}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{what}: value type not convertible: an array of {array.dtype}")
    return array


def _to_dtype(array: np.ndarray, dtype: np.dtype, what: str) -> np.ndarray:
    """The array in another element type. Floats round; integers must be able to hold the values."""
    if array.dtype == dtype:
        return array
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # -1e9 in a mask of fp16 is -inf
            return array.astype(dtype)
    if dtype.kind == "b":
        return array.astype(np.bool_)
    if array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array)):
        raise MilletError(f"{what} is {dtype}, and the {array.dtype} values given are no whole numbers")
    if array.dtype.kind != "b" and array.size:
        limits = np.iinfo(dtype)
        low, high = array.min(), array.max()
        if not (low >= limits.min and high <= limits.max):
            raise MilletError(f"{what} is {dtype}, which can't hold values from {low} to {high}")
    return array.astype(dtype)


def to_array(feature: Feature, value: Any, what: str) -> np.ndarray:
    """A value for a feature that is a tensor: row-major, of its element type, its shape checked. what names it in errors."""
    array = _as_array(value, what)
    if array.ndim == 0 and feature.shape and shape_problem(feature, (1,) * len(feature.shape)) is None:
        array = array.reshape((1,) * len(feature.shape))
    problem = shape_problem(feature, array.shape)
    if problem:
        raise MilletError(f"For {what}, the provided shape {_times(array.shape, '×')} is not compatible with the model's "
                          f"feature description. {problem}")
    return np.asarray(_to_dtype(array, feature.dtype, what), order="C")


def tensor(name: bytes, array: np.ndarray) -> Tensor:
    """Describes an array; the caller keeps it alive."""
    if array.ndim > MAX_RANK:
        raise MilletError(f"{name.decode()}: rank {array.ndim} is more than {MAX_RANK}")
    t = Tensor(name=name, dtype=CODES[array.dtype], rank=array.ndim, data=array.ctypes.data, bytes=array.nbytes)
    t.shape[: array.ndim] = array.shape
    return t


def from_tensor(t: Tensor) -> np.ndarray:
    """A copy of a tensor. As with coremltools, fp16 comes out as float32."""
    dtype = DTYPES[t.dtype]
    shape = tuple(t.shape[: t.rank])
    if t.bytes:
        array = np.frombuffer((ctypes.c_char * t.bytes).from_address(t.data), dtype).reshape(shape)
    else:
        array = np.empty(shape, dtype)
    return array.astype(np.float32) if dtype == np.float16 else array.copy()
