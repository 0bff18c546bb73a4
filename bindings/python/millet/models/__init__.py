"""Where scripts for coremltools look for the model classes: ``ct.models.MLModel`` and the like."""

from ..mlmodel import CompiledMLModel, MLModel, MLState
from . import model, utils

__all__ = ["CompiledMLModel", "MLModel", "MLState", "model", "utils"]
