#!/usr/bin/env python3
"""Checks packages with coremltools: manifest, description, and the typed program loader, which infers every type anew
and reads every blob. Arguments: package paths. Exit 1 when a package fails.

Needs coremltools 9 with numpy < 2.4. Nothing is compiled or executed: Linux can't."""
import os
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import logging
import warnings

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
import coremltools as ct
from coremltools.converters.mil.frontend.milproto import load as milproto
from coremltools.libmodelpackage import ModelPackage


def load_program(spec, weights):
    program = milproto.load(spec, spec.specificationVersion, weights)
    program.validate()
    program._check_early_error_out_for_invalid_program()


def functions(description):
    """(name, inputs, outputs, states) of each described function."""
    if description.functions:
        return [(f.name, f.input, f.output, f.state) for f in description.functions]
    return [("main", description.input, description.output, description.state)]


def check_names(spec):
    """What the loader does not check: the description says the same names as the program."""
    program = spec.mlProgram
    described = functions(spec.description)
    assert sorted(f[0] for f in described) == sorted(program.functions), "functions differ"
    for name, inputs, outputs, states in described:
        function = program.functions[name]
        kinds = {v.name: v.type.WhichOneof("type") for v in function.inputs}
        assert [v.name for v in inputs] == [n for n in kinds if kinds[n] == "tensorType"], f"{name}: inputs differ"
        assert sorted(v.name for v in states) == sorted(n for n in kinds if kinds[n] == "stateType"), f"{name}: states differ"
        block = function.block_specializations[function.opset]
        assert [v.name for v in outputs] == list(block.outputs), f"{name}: outputs differ"


def check(path):
    assert ModelPackage.isValid(path), "the manifest is not valid"
    model = ct.models.MLModel(path, skip_model_load=True)
    spec = model.get_spec()
    weights = os.path.join(path, "Data", "com.apple.CoreML", "weights")
    if spec.WhichOneof("Type") == "pipeline":
        for part in spec.pipeline.models:
            load_program(part, weights)
            check_names(part)
        return
    load_program(spec, weights)
    check_names(spec)
    for name, *_ in functions(spec.description) if spec.description.functions else []:
        ct.models.MLModel(path, skip_model_load=True, function_name=name)


def main(paths):
    bad = 0
    for path in paths:
        try:
            check(path)
            print(f"ok {path}")
        except Exception as error:  # whatever coremltools raises is the finding
            bad += 1
            print(f"FAILED {path}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    print(f"{len(paths) - bad} of {len(paths)} packages load in coremltools {ct.__version__}")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
