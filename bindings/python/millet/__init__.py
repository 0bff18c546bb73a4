"""millet: language models in Core ML packages, run anywhere.

Two ways in. :class:`MLModel` has the call forms of coremltools, so that a script for a Mac runs on Linux once its import
line is ``import millet as ct``; :class:`Model` and :class:`ChatSession` take text and give text."""

from . import models, proto, spec, utils
from ._native import ErrorCode, MilletError, version as library_version
from .generation import ChatSession, Generation, Model, Piece, Score, Stream
from .mlmodel import (
    CompiledMLModel, ComputeUnit, MLModel, MLState, ReshapeFrequency, SpecializationStrategy,
)
from .tokenizer import Tokenizer

__version__ = library_version()
__all__ = [
    "ChatSession", "CompiledMLModel", "ComputeUnit", "ErrorCode", "Generation", "MLModel", "MLState", "MilletError", "Model",
    "Piece", "ReshapeFrequency", "Score", "SpecializationStrategy", "Stream", "Tokenizer", "models", "proto", "spec",
    "utils",
]
