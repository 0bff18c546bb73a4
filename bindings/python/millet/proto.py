"""``ct.proto``: the enumerations and message classes by which scripts name element types."""

from types import SimpleNamespace

from . import spec as _spec

FeatureTypes_pb2 = SimpleNamespace(ArrayFeatureType=_spec.ArrayFeatureType, FeatureType=_spec.FeatureType,
                                   SizeRange=_spec.SizeRange, StateFeatureType=_spec.StateFeatureType)
Model_pb2 = SimpleNamespace(FeatureDescription=_spec.FeatureDescription, FunctionDescription=_spec.FunctionDescription,
                            Metadata=_spec.Metadata, Model=_spec.Model, ModelDescription=_spec.ModelDescription)
