"""``ct.utils``, as far as running a model goes."""

from .mlmodel import load_spec

__all__ = ["load_spec"]
