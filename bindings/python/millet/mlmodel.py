"""The call forms of coremltools' ``MLModel``: a script that was written for a Mac runs after its import line has become
``import millet as ct``.

    model = ct.models.MLModel("chunk.mlpackage", function_name="decode")
    state = model.make_state()
    out = model.predict({"hidden": x, "current_pos": np.array([0], np.int32)}, state)

As with coremltools, fp16 outputs and states come back as float32 arrays. Nothing is compiled and ``compute_units`` changes
nothing: it all runs on the CPU.

Threads: any number may call ``predict`` of one model at once. Calls that use one :class:`MLState` wait for each other."""

from __future__ import annotations

import enum
import os
import threading
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import spec as _spec
from ._native import MilletError
from ._package import PRECISIONS, Function, Package, Session
from ._values import Feature, to_array

__all__ = [
    "CompiledMLModel", "ComputeUnit", "FeatureDescriptions", "MLModel", "MLState", "ReshapeFrequency",
    "SpecializationStrategy", "load_spec",
]


class ComputeUnit(enum.Enum):
    """Accepted and ignored: the CPU computes."""

    ALL = 1
    CPU_AND_GPU = 2
    CPU_ONLY = 3
    CPU_AND_NE = 4


class ReshapeFrequency(enum.Enum):
    """An optimization hint; accepted and ignored."""

    Frequent = 1
    Infrequent = 2


class SpecializationStrategy(enum.Enum):
    """An optimization hint; accepted and ignored."""

    Default = 1
    FastPrediction = 2


class FeatureDescriptions(Mapping[str, str]):
    """Feature name -> its short description."""

    def __init__(self, features: Dict[str, Any]) -> None:
        self._text: Dict[str, str] = {name: f.description for name, f in features.items()}

    def __getitem__(self, key: str) -> str:
        if key not in self._text:
            raise KeyError(f"No feature with name {key}.")
        return self._text[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._text)

    def __len__(self) -> int:
        return len(self._text)

    def __repr__(self) -> str:
        return f"Features({','.join(self._text)})"


def _package_path(path: Union[str, "os.PathLike[str]"]) -> str:
    """The package a path means. What is only there for a Mac, NAME.mlmodelc, stands for the NAME.mlpackage beside it."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError("Expected model to be a .mlpackage directory (a str or a path)")
    full = os.path.abspath(os.path.expanduser(os.path.expandvars(os.fspath(path))))
    name, extension = os.path.splitext(full)
    if extension == ".mlmodelc":
        if not os.path.isdir(name + ".mlpackage"):
            raise FileNotFoundError(f"{full} is a compiled model, which only a Mac can run, and there is no "
                                    f"{name}.mlpackage beside it")
        return name + ".mlpackage"
    if not os.path.exists(full):
        raise FileNotFoundError(f"{full} does not exist")
    return full


def load_spec(path: Union[str, "os.PathLike[str]"]) -> _spec.Model:
    """The specification of a package."""
    spec = _spec.Model()
    spec.CopyFrom(Package.get(_package_path(path)).spec)
    return spec


class MLState:
    """The states that calls of a model read and write, all zero at first: made by ``MLModel.make_state()``.

    It may be passed to several models, functions of one package or packages of a set: states of equal name are then one.
    Calls that use it wait for each other."""

    def __init__(self, first: Session) -> None:
        self._sessions: Dict[Tuple[Package, int], Session] = {(first.package, first.precision): first}
        self._features = first.package.states()
        self._first = first
        self._lock = threading.RLock()

    def read_state(self, name: str) -> np.ndarray:
        """A copy of a state. RuntimeError when there is none of that name."""
        with self._lock:
            self._feature(name)
            return self._first.read_state(name)

    def write_state(self, name: str, value: Any) -> None:
        """Sets a state to a value of its shape. RuntimeError when there is none of that name or the shape differs."""
        with self._lock:
            self._first.write_state(name, to_array(self._feature(name), value, f"state '{name}'"))

    def names(self) -> List[str]:
        """Names of the states."""
        return list(self._features)

    def reset(self) -> None:
        """Sets all states to zero."""
        with self._lock:
            self._first.reset()

    def _feature(self, name: str) -> Feature:
        if name not in self._features:
            raise MilletError(f"there is no state '{name}'; there are: {', '.join(self._features) or 'none'}")
        return self._features[name]

    def _run(self, package: Package, precision: int, function: Function, arrays: List[Any]) -> Dict[str, np.ndarray]:
        """Runs a function over these states."""
        with self._lock:
            missing = [name for name in function.states if name not in self._features]
            if missing:
                raise MilletError(f"function {function.name} has state '{missing[0]}', which the state given does not have"
                                  f": it has {', '.join(self._features) or 'none'}")
            session = self._sessions.get((package, precision))
            if session is None:
                session = Session(package, precision)
                for name in package.states():
                    if name in self._features:
                        session.bind_state(name, self._first)
                self._sessions[package, precision] = session
            return session.run(function, arrays)


class _Predictor:
    """What MLModel and CompiledMLModel share: a function of a package, ready to run."""

    def __init__(self, path: str, compute_units: ComputeUnit, function_name: Optional[str],
                 optimization_hints: Optional[Mapping[str, Any]], precision: str, linear: Optional[str]) -> None:
        if not isinstance(compute_units, ComputeUnit):
            raise TypeError('"compute_units" parameter must be of type: millet.ComputeUnit')
        if optimization_hints is not None and not isinstance(optimization_hints, Mapping):
            raise TypeError('"optimization_hint_input" must be a dictionary or None')
        if precision not in PRECISIONS:
            raise ValueError(f'"precision" is one of {", ".join(PRECISIONS)}, not {precision!r}')
        self.compute_unit = compute_units
        self.optimization_hints = None if optimization_hints is None else dict(optimization_hints)
        self.precision = precision
        if linear is None and "MILLET_LINEAR" not in os.environ:
            linear = "int16"
        self._package: Optional[Package] = Package.get(path, linear)
        functions = self._package.functions
        name = function_name or self._package.default_function
        if name not in functions:
            if not self._package.multifunction:
                raise ValueError('function_name must be "main" for non multifunction model')
            raise ValueError(f"function_name {name} not found in the model. It has: {', '.join(functions)}")
        self._function = functions[name]
        self._idle: List[Session] = []

    def _opened(self) -> Package:
        if self._package is None:
            raise ValueError("the model is closed")
        return self._package

    def _arrays(self, data: Mapping[str, Any]) -> List[Any]:
        inputs = self._function.inputs
        self._function.only_tensors()
        for name in data:
            if name not in inputs:
                raise KeyError(f'Provided key "{name}", in the input dict, does not match any of the model input name(s), '
                               f'which are: {set(inputs)}')
        for name, feature in inputs.items():
            if name not in data and not feature.optional:
                raise MilletError(f"Feature {name} is required but not specified.")
        return [(name, to_array(inputs[name], value, f"input feature '{name}'")) for name, value in data.items()
                if value is not None or not inputs[name].optional]

    def _run(self, data: Mapping[str, Any], state: Optional[MLState]) -> Dict[str, np.ndarray]:
        package, arrays = self._opened(), self._arrays(data)
        if state is not None:
            return state._run(package, PRECISIONS[self.precision], self._function, arrays)
        if self._function.states:
            raise MilletError(f"function {self._function.name} has states ({', '.join(self._function.states)}): pass "
                              "what make_state() returns as state")
        try:
            session = self._idle.pop()
        except IndexError:
            session = Session(package, PRECISIONS[self.precision])
        try:
            return session.run(self._function, arrays)
        finally:
            self._idle.append(session)

    def predict(self, data: Union[Mapping[str, Any], List[Mapping[str, Any]]], state: Optional[MLState] = None
                ) -> Any:
        """Runs the function.

        data: input name -> value: a numpy array, a torch tensor, a list or a number, of the shape that the description
        allows. Element types are converted: floats are rounded to fp16, whole numbers may come as floats; integers that
        don't fit and floats with a fraction for an integer input are refused. A list of such dictionaries gives a list of
        results.

        state: from ``make_state()``; needed where the function has states.

        Returns output name -> array (fp16 as float32). Raises KeyError for an unknown name, RuntimeError
        (:class:`MilletError`) for what is missing or of a wrong shape, TypeError for what is no array."""
        if not isinstance(data, (list, dict)):
            raise TypeError(f'"data" parameter must be either a dict or list of dict, but got {type(data)}.')
        if isinstance(data, dict):
            return self._run(data, state)
        if not all(isinstance(d, dict) for d in data):
            raise TypeError('"data" list must contain only dictionaries')
        if state is not None:
            raise AssertionError("State can only be used for unbatched predictions")
        return [self._run(d, None) for d in data]

    def make_state(self) -> MLState:
        """New states, all zero, to pass to ``predict``."""
        return MLState(Session(self._opened(), PRECISIONS[self.precision]))

    def close(self) -> None:
        """Lets the package go; states and other models that use it keep it open."""
        self._package = None
        self._idle.clear()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class MLModel(_Predictor):
    """A function of a package, by coremltools' name and with its arguments.

    model: path of a .mlpackage (or of a directory with one that ``millet convert`` made).
    function_name: None for the default one.
    compute_units, optimization_hints: accepted, without effect. skip_model_load: ``predict`` is refused.
    precision (millet's own): "fast" computes in fp32 inside, "strict" rounds every op to its declared type.
    linear (millet's own): how linear layers multiply in "fast": "int16" (default), "bf16" (faster for many tokens, less
    exact), "exact", or a pair of them for few and many tokens, "int16,bf16"."""

    def __init__(self, model: Union[str, "os.PathLike[str]"], is_temp_package: bool = False, mil_program: Any = None,
                 skip_model_load: bool = False, compute_units: ComputeUnit = ComputeUnit.ALL,
                 weights_dir: Optional[str] = None, function_name: Optional[str] = None,
                 optimization_hints: Optional[Mapping[str, Any]] = None, *, precision: str = "fast",
                 linear: Optional[str] = None) -> None:
        path = _package_path(model)
        super().__init__(path, compute_units, function_name, optimization_hints, precision, linear)
        package = self._opened()
        self.package_path = path
        self.is_package = True
        multi = package.multifunction
        self.function_name: Optional[str] = self._function.name if multi or function_name else None
        self._loaded = not skip_model_load
        self._input_description = FeatureDescriptions(self._function.inputs)
        self._output_description = FeatureDescriptions(self._function.outputs)
        self._spec = package.spec

    def predict(self, data: Any, state: Optional[MLState] = None) -> Any:
        if not self._loaded:
            raise MilletError("the model was opened with skip_model_load=True: it makes no predictions")
        return super().predict(data, state)

    predict.__doc__ = _Predictor.predict.__doc__

    def get_spec(self) -> _spec.Model:
        """A copy of the specification: what ``millet.spec`` describes, with coremltools' field names."""
        spec = _spec.Model()
        spec.CopyFrom(self._spec)
        return spec

    @property
    def input_description(self) -> FeatureDescriptions:
        """Names and descriptions of the function's inputs."""
        return self._input_description

    @property
    def output_description(self) -> FeatureDescriptions:
        """Names and descriptions of the function's outputs."""
        return self._output_description

    @property
    def _metadata(self) -> Any:
        return self._spec.description.metadata

    @property
    def user_defined_metadata(self) -> Dict[str, str]:
        """The metadata with keys of the package's own."""
        return dict(self._metadata.userDefined)

    @property
    def short_description(self) -> str:
        return str(self._metadata.shortDescription)

    @property
    def author(self) -> str:
        return str(self._metadata.author)

    @property
    def license(self) -> str:
        return str(self._metadata.license)

    @property
    def version(self) -> str:
        return str(self._metadata.versionString)

    def __repr__(self) -> str:
        return repr(self._spec.description)


class CompiledMLModel(_Predictor):
    """As :class:`MLModel`, without a description. A path NAME.mlmodelc stands for the NAME.mlpackage beside it: there is
    nothing to compile here."""

    def __init__(self, path: str, compute_units: ComputeUnit = ComputeUnit.ALL, function_name: Optional[str] = None,
                 optimization_hints: Optional[Mapping[str, Any]] = None, asset: Any = None, *, precision: str = "fast",
                 linear: Optional[str] = None) -> None:
        if asset is not None:
            raise TypeError("models in memory are not supported: pass the path of a package")
        super().__init__(_package_path(path), compute_units, function_name, optimization_hints, precision, linear)
        self.function_name = self._function.name
