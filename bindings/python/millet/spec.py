"""What a package says about itself, in the shape of coremltools' protobuf messages: the same field names, defaults,
enumeration values, ``WhichOneof``, ``HasField`` and text form, without protobuf.

    spec = model.get_spec()
    for feature in spec.description.input:
        print(feature.name, list(feature.type.multiArrayType.shape))
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

__all__ = [
    "ArrayFeatureType", "EnumeratedShapes", "FeatureDescription", "FeatureType", "FunctionDescription", "Message",
    "Metadata", "Model", "ModelDescription", "Shape", "ShapeRange", "SizeRange", "StateFeatureType",
]


class Message:
    """A record whose unset fields read as their defaults. Two are equal when all fields are."""

    _fields: Dict[str, Callable[[], Any]] = {}
    """Field name -> maker of its default, in the order of the text form."""
    _oneofs: Dict[str, Tuple[str, ...]] = {}
    """Group name -> fields of which one is set at most."""

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no field {name}")
        for group in self._oneofs.values():
            if name in group:
                for other in group:
                    self.__dict__.pop(other, None)
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no field {name}")
        value = self._fields[name]()
        if isinstance(value, (list, dict)):
            self.__dict__[name] = value
        return value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, f) == getattr(other, f) for f in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def WhichOneof(self, oneof_group: str) -> Optional[str]:
        """Name of the group's field that is set, or None."""
        if oneof_group not in self._oneofs:
            raise ValueError(f"{type(self).__name__} has no oneof {oneof_group}")
        return next((f for f in self._oneofs[oneof_group] if f in self.__dict__), None)

    def HasField(self, field_name: str) -> bool:
        """Whether a message or a member of a oneof is set."""
        if field_name not in self._fields:
            raise ValueError(f"{type(self).__name__} has no field {field_name}")
        return field_name in self.__dict__

    def CopyFrom(self, other: "Message") -> None:
        """Becomes a copy of another message of its type."""
        if type(self) is not type(other):
            raise TypeError(f"expected {type(self).__name__}, not {type(other).__name__}")
        self.__dict__.clear()
        self.__dict__.update(copy.deepcopy(other).__dict__)

    def __repr__(self) -> str:
        return "".join(line + "\n" for line in self._lines(""))

    def _lines(self, indent: str) -> Iterator[str]:
        grouped = {f for group in self._oneofs.values() for f in group}
        for name, default in self._fields.items():
            if name not in self.__dict__:
                continue
            value = self.__dict__[name]
            if isinstance(value, dict):
                for key in value:
                    yield from _block(indent, name, [f"key: {_scalar(key)}", f"value: {_scalar(value[key])}"])
            elif isinstance(value, list):
                for item in value:
                    yield from self._field_lines(indent, name, item)
            elif isinstance(value, Message) or name in grouped or value != default():
                yield from self._field_lines(indent, name, value)

    def _field_lines(self, indent: str, name: str, value: Any) -> Iterator[str]:
        if isinstance(value, Message):
            yield from _block(indent, name, value._lines(""))
        else:
            yield f"{indent}{name}: {self._text(name, value)}"

    def _text(self, name: str, value: Any) -> str:
        return _scalar(value)


def _block(indent: str, name: str, lines: Any) -> Iterator[str]:
    yield f"{indent}{name} {{"
    for line in lines:
        yield f"{indent}  {line}"
    yield indent + "}"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
        return '"' + "".join(escapes.get(c) or (c if c >= " " else f"\\{ord(c):03o}") for c in value) + '"'
    return str(value)


class _Enum:
    """Names and values of an enumeration, as protobuf's wrapper has them."""

    def __init__(self, **values: int) -> None:
        self._values = values

    def Name(self, number: int) -> str:
        for name, value in self._values.items():
            if value == number:
                return name
        raise ValueError(f"no name for value {number}")

    def Value(self, name: str) -> int:
        if name not in self._values:
            raise ValueError(f"no value {name}")
        return self._values[name]

    def keys(self) -> List[str]:
        return list(self._values)

    def values(self) -> List[int]:
        return list(self._values.values())

    def items(self) -> List[Tuple[str, int]]:
        return list(self._values.items())


class SizeRange(Message):
    """Smallest and largest size of a dimension; ``upperBound`` -1 is unbounded."""

    _fields = {"lowerBound": int, "upperBound": int}


class ShapeRange(Message):
    """A range for every dimension."""

    _fields = {"sizeRanges": list}


class Shape(Message):
    _fields = {"shape": list}


class EnumeratedShapes(Message):
    """The shapes that are allowed, the default one first."""

    _fields = {"shapes": list}


class ArrayFeatureType(Message):
    """A tensor: default shape, element type (``ArrayFeatureType.FLOAT16``, ...), and what else its shape may be."""

    INVALID_ARRAY_DATA_TYPE = 0
    FLOAT16, FLOAT32, DOUBLE, INT32, INT8 = 65552, 65568, 65600, 131104, 131080
    ArrayDataType = _Enum(INVALID_ARRAY_DATA_TYPE=0, FLOAT16=65552, FLOAT32=65568, DOUBLE=65600, INT32=131104,
                          INT8=131080)
    ShapeRange, EnumeratedShapes, Shape = ShapeRange, EnumeratedShapes, Shape

    _fields = {"shape": list, "dataType": int, "enumeratedShapes": EnumeratedShapes, "shapeRange": ShapeRange,
               "intDefaultValue": int, "floatDefaultValue": float, "doubleDefaultValue": float}
    _oneofs = {"ShapeFlexibility": ("enumeratedShapes", "shapeRange"),
               "defaultOptionalValue": ("intDefaultValue", "floatDefaultValue", "doubleDefaultValue")}

    def _text(self, name: str, value: Any) -> str:
        return self.ArrayDataType.Name(value) if name == "dataType" else _scalar(value)


class StateFeatureType(Message):
    _fields = {"arrayType": ArrayFeatureType}
    _oneofs = {"Type": ("arrayType",)}


class FeatureType(Message):
    """``multiArrayType`` for inputs and outputs, ``stateType`` for states."""

    _fields = {"multiArrayType": ArrayFeatureType, "stateType": StateFeatureType, "isOptional": bool}
    _oneofs = {"Type": ("multiArrayType", "stateType")}


class FeatureDescription(Message):
    """One input, output or state."""

    _fields = {"name": str, "shortDescription": str, "type": FeatureType}


class FunctionDescription(Message):
    """The features of one function of a package that has several."""

    _fields = {"name": str, "input": list, "output": list, "state": list}


class Metadata(Message):
    _fields = {"shortDescription": str, "versionString": str, "author": str, "license": str, "userDefined": dict}


class ModelDescription(Message):
    """A multifunction package has its features in ``functions``, any other one in ``input``, ``output`` and ``state``."""

    _fields = {"input": list, "output": list, "state": list, "functions": list, "defaultFunctionName": str,
               "metadata": Metadata}


class Model(Message):
    """A package's specification. The program itself is not in it: ``millet inspect`` lists that."""

    _fields = {"specificationVersion": int, "description": ModelDescription, "pipeline": Message, "mlProgram": Message}
    _oneofs = {"Type": ("pipeline", "mlProgram")}
