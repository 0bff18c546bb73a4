"""Opened packages, shared by everyone in the process who opens the same one, and sessions over them."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from . import spec as _spec
from ._native import MAX_RANK, Call, Error, ErrorCode, MilletError, OpenOptions, PackageInfo, SessionOptions, Tensor, failure, lib, opened
from ._native import Feature as NativeFeature
from ._values import DTYPES, Feature, from_tensor, tensor

INPUT, OUTPUT, STATE = 0, 1, 2
PRECISIONS = {"fast": 0, "strict": 1}


def _text(value: Any) -> str:
    return value.decode() if value else ""


class Function:
    """One function of a package: its features by kind."""

    def __init__(self, package: int, name: str) -> None:
        self.name = name
        self.inputs = _features(package, name, INPUT)
        self.outputs = _features(package, name, OUTPUT)
        self.states = _features(package, name, STATE)

    def only_tensors(self) -> None:
        """Refuses, in the library's words, what can be described but not run."""
        for kind, features in (("input", self.inputs), ("output", self.outputs)):
            for f in features.values():
                if f.dtype is None:
                    raise MilletError(f"function {self.name}: {kind} {f.name} is no multi-array ({f.kind}), and only such can be "
                                      "fed or returned: convert the model with a tensor in its place", ErrorCode.UNSUPPORTED)


def _features(package: int, function: str, kind: int) -> Dict[str, Feature]:
    found = {}
    for i in range(lib.millet_feature_count(package, function.encode(), kind)):
        f = NativeFeature()
        lib.millet_feature_at(package, function.encode(), kind, i, ctypes.byref(f))
        rank = max(f.rank, 0)
        shapes = [tuple(f.shapes[k * MAX_RANK : k * MAX_RANK + rank]) for k in range(f.n_shapes)]
        found[f.name.decode()] = Feature(
            name=f.name.decode(), dtype=DTYPES.get(f.dtype), shape=tuple(f.shape[:rank]) if f.rank >= 0 else None,
            lower=tuple(f.lower[:rank]), upper=tuple(f.upper[:rank]), shapes=tuple(shapes), ranged=f.ranged,
            optional=f.optional, default=f.default_value if f.has_default else None,
            default_dtype=DTYPES.get(f.default_dtype), description=_text(f.description), kind=f.kind.decode())
    return found


class Package:
    """An opened .mlpackage."""

    _open: "weakref.WeakValueDictionary[Any, Package]" = weakref.WeakValueDictionary()
    _lock = threading.Lock()

    @classmethod
    def get(cls, path: str, linear: Optional[str] = None) -> "Package":
        """The package at a path: opened once as long as anyone uses it and it isn't replaced on disk. linear: how linear
        layers multiply (``millet_open_options``)."""
        real = os.path.realpath(path)
        status = os.stat(real)
        manifest = os.path.join(real, "Manifest.json")
        stamp = os.stat(manifest) if os.path.exists(manifest) else status
        key = (real, linear, stamp.st_dev, stamp.st_ino, stamp.st_mtime_ns)
        with cls._lock:
            package = cls._open.get(key)
            if package is None:
                package = cls._open[key] = cls(path, linear)
            return package

    def __init__(self, path: str, linear: Optional[str] = None) -> None:
        options = OpenOptions(linear=linear.encode() if linear else None)
        self.handle = opened(lib.millet_package_open, lib.millet_package_close, os.fsencode(path),
                             ctypes.byref(options))
        with self.handle as p:
            info = PackageInfo()
            lib.millet_package_describe(p, ctypes.byref(info))
            names = [lib.millet_function_name(p, i).decode() for i in range(lib.millet_function_count(p))]
            self.functions = {name: Function(p, name) for name in names}
            self.default_function = lib.millet_default_function(p).decode()
            self.multifunction: bool = info.multifunction
            self.spec = _describe(p, info, self)

    def states(self) -> Dict[str, Feature]:
        """The states of all functions."""
        return {name: f for function in self.functions.values() for name, f in function.states.items()}


def _array_type(feature: Feature) -> _spec.ArrayFeatureType:
    t = _spec.ArrayFeatureType(shape=list(feature.shape or ()))
    code = {np.dtype(np.float16): t.FLOAT16, np.dtype(np.float32): t.FLOAT32, np.dtype(np.float64): t.DOUBLE,
            np.dtype(np.int32): t.INT32, np.dtype(np.int8): t.INT8}.get(feature.dtype)
    if code:
        t.dataType = code
    if feature.shapes:
        t.enumeratedShapes = _spec.EnumeratedShapes(shapes=[_spec.Shape(shape=list(s)) for s in feature.shapes])
    elif feature.ranged:
        t.shapeRange = _spec.ShapeRange(sizeRanges=[_spec.SizeRange(lowerBound=low, upperBound=high)
                                                    for low, high in zip(feature.lower, feature.upper)])
    if feature.default is not None:
        if feature.default_dtype == np.int32:
            t.intDefaultValue = int(feature.default)
        elif feature.default_dtype == np.float64:
            t.doubleDefaultValue = feature.default
        else:
            t.floatDefaultValue = feature.default
    return t


def _feature_spec(feature: Feature, state: bool) -> _spec.FeatureDescription:
    kind = _spec.FeatureType()
    if state:
        kind.stateType = _spec.StateFeatureType(arrayType=_array_type(feature))
    elif feature.dtype is not None:
        kind.multiArrayType = _array_type(feature)
    if feature.optional:
        kind.isOptional = True
    return _spec.FeatureDescription(name=feature.name, shortDescription=feature.description, type=kind)


def _describe(package: int, info: PackageInfo, p: Package) -> _spec.Model:
    user: Dict[str, str] = {}
    key, value = ctypes.c_char_p(), ctypes.c_char_p()
    while lib.millet_metadata_at(package, len(user), ctypes.byref(key), ctypes.byref(value)):
        user[_text(key.value)] = _text(value.value)
    own = {field: _text(lib.millet_metadata(package, name)) for field, name in (
        ("shortDescription", b"description"), ("versionString", b"version"), ("author", b"author"),
        ("license", b"license"))}
    description = _spec.ModelDescription()
    if user or any(own.values()):
        description.metadata = _spec.Metadata(userDefined=user, **own)
    for f in p.functions.values():
        fields = {"input": [_feature_spec(x, False) for x in f.inputs.values()],
                  "output": [_feature_spec(x, False) for x in f.outputs.values()],
                  "state": [_feature_spec(x, True) for x in f.states.values()]}
        if p.multifunction:
            description.functions.append(_spec.FunctionDescription(name=f.name, **fields))
        else:
            for field, features in fields.items():
                setattr(description, field, features)
    if p.multifunction:
        description.defaultFunctionName = p.default_function
    model = _spec.Model(specificationVersion=info.specification_version, description=description)
    setattr(model, "pipeline" if info.pipeline else "mlProgram", _spec.Message())
    return model


class Session:
    """States and work memory over a package. One thread at a time."""

    def __init__(self, package: Package, precision: int) -> None:
        self.package = package
        self.precision = precision
        with package.handle as p:
            self.handle = opened(lib.millet_session_new, lib.millet_session_free, p,
                                 ctypes.byref(SessionOptions(precision=precision)), keep=(package,))

    def run(self, function: Function, arrays: Sequence[Tuple[str, np.ndarray]]) -> Dict[str, np.ndarray]:
        """Runs a function on checked arrays."""
        inputs = (Tensor * len(arrays))(*(tensor(name.encode(), array) for name, array in arrays))
        outputs = (Tensor * len(function.outputs))()
        call = Call(function=function.name.encode(), input=inputs, n_input=len(arrays), output=outputs,
                    max_output=len(outputs))
        error = Error()
        with self.handle as s:
            if not lib.millet_run(s, ctypes.byref(call), ctypes.byref(error)):
                raise failure(error)
            return {t.name.decode(): from_tensor(t) for t in outputs[: call.n_output]}

    def read_state(self, name: str) -> np.ndarray:
        t, error = Tensor(), Error()
        with self.handle as s:
            if not lib.millet_state_get(s, name.encode(), ctypes.byref(t), ctypes.byref(error)):
                raise failure(error)
            return from_tensor(t)

    def write_state(self, name: str, value: np.ndarray) -> None:
        t, error = tensor(name.encode(), value), Error()
        with self.handle as s:
            if not lib.millet_state_set(s, name.encode(), ctypes.byref(t), ctypes.byref(error)):
                raise failure(error)

    def bind_state(self, name: str, other: "Session") -> None:
        """From here on the state of that name is one for both sessions."""
        error = Error()
        with self.handle as s, other.handle as o:
            if not lib.millet_state_bind(s, o, name.encode(), ctypes.byref(error)):
                raise failure(error)

    def reset(self) -> None:
        with self.handle as s:
            lib.millet_state_reset(s)
