"""``ct.models.model``."""

from ..mlmodel import MLModel, MLState

__all__ = ["MLModel", "MLState"]
