"""What no CPU can run is refused by name, with op or feature, function and what to do, whoever is asked: the program's commands,
MLModel and Model of the binding, which say what the C interface says (and its code). Packages are coremltools', changed where
it has no way to write such."""
import os, pathlib, shutil, subprocess, tempfile

import binding

import coremltools
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.models import datatypes, neural_network
from coremltools.proto import Model_pb2

import millet as ct

SPEC = "Data/com.apple.CoreML/model.mlmodel"
work = pathlib.Path(tempfile.mkdtemp())


def plain():
    @mb.program(input_specs=[mb.TensorSpec((1, 3, 8, 8))], opset_version=coremltools.target.iOS17)
    def program(photo):
        return mb.relu(x=photo, name="y")

    model = coremltools.convert(program, convert_to="mlprogram", minimum_deployment_target=coremltools.target.iOS17,
                                compute_precision=coremltools.precision.FLOAT32)
    model.save(str(work / "plain.mlpackage"))


def package(name, change=None, spec=None):
    """A copy of the plain package with its specification changed, or another one."""
    path = work / f"{name}.mlpackage"
    shutil.copytree(work / "plain.mlpackage", path)
    if spec is None:
        spec = Model_pb2.Model()
        spec.ParseFromString((path / SPEC).read_bytes())
        change(spec)
    (path / SPEC).write_bytes(spec.SerializeToString())
    return path


def relu(spec):
    [block] = spec.mlProgram.functions["main"].block_specializations.values()
    return next(op for op in block.operations if op.type == "relu")


def unknown_op(spec):
    relu(spec).type = "frobnicate"


def custom_layer(spec):
    op = relu(spec)
    op.type = "custom_layer"
    op.attributes["class_name"].CopyFrom(op.attributes["name"])
    op.attributes["class_name"].immediateValue.tensor.strings.values[0] = "AppFlash"


def newer_opset(spec):
    main = spec.mlProgram.functions["main"]
    main.block_specializations["CoreML12"].CopyFrom(main.block_specializations[main.opset])
    del main.block_specializations[main.opset]
    main.opset = "CoreML12"


def as_image(feature):
    feature.type.imageType.width = feature.type.imageType.height = 8
    feature.type.imageType.colorSpace = 20  # RGB


def network():
    builder = neural_network.NeuralNetworkBuilder([("photo", datatypes.Array(3))], [("y", datatypes.Array(3))])
    builder.add_activation("r", "RELU", "photo", "y")
    return builder.spec


def pipeline():
    spec = Model_pb2.Model(specificationVersion=4, description=network().description)
    spec.pipeline.models.add().CopyFrom(network())
    return spec


def trees():
    spec = Model_pb2.Model(specificationVersion=4, description=network().description)
    spec.treeEnsembleRegressor.treeEnsemble.numPredictionDimensions = 1
    return spec


def says(words, text):
    missing = [w for w in words if w not in text]
    assert not missing and text.count("\n") <= 1, f"{missing} not in: {text}"


def program(words, *arguments):
    done = subprocess.run([os.environ["MILLET_BIN"], *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 1, (arguments, done)
    says(words, done.stderr)


def binding_refuses(words, function, *arguments):
    try:
        function(*arguments)
    except ct.MilletError as e:
        says(words, str(e))
        assert e.code == ct._native.ErrorCode.UNSUPPORTED, e.code
        return
    raise AssertionError(f"{function} took it")


def refused(path, words, described=False):
    """By every command and class; described: what is in the package can be looked at all the same."""
    out, photo = work / "out.safetensors", work / "in.safetensors"
    if described:
        subprocess.run([os.environ["MILLET_BIN"], "inspect", path], capture_output=True, check=True)
    else:
        program(words, "inspect", path)
    program(words, "run", path, "--prompt", "x")
    program(words, "bench", path)
    program(words, "predict", path, "--inputs", photo, "-o", out)
    assert not out.exists()
    binding_refuses(words, ct.Model, path)
    x = {"photo": np.zeros((1, 3, 8, 8), np.float32)}
    if described:
        model = ct.models.MLModel(str(path))
        binding_refuses(words, model.predict, x)
    else:
        binding_refuses(words, ct.models.MLModel, str(path))


def ops():
    refused(package("unknown", unknown_op), ["function main", "op frobnicate y", "is not known", "convert the model with"])
    refused(package("custom", custom_layer), ["function main", "op custom_layer y", "class AppFlash", "convert the model with"])
    refused(package("opset", newer_opset), ["function main", "opset CoreML12", "expected CoreML5 to CoreML9"])


def features():
    remedy = "convert the model with a tensor in its place"
    refused(package("image_in", lambda s: as_image(s.description.input[0])),
            ["function main: input photo is no multi-array (image)", remedy], described=True)
    refused(package("image_out", lambda s: as_image(s.description.output[0])),
            ["function main: output y is no multi-array (image)", remedy], described=True)
    refused(package("sequence", lambda s: s.description.input[0].type.sequenceType.int64Type.SetInParent()),
            ["function main: input photo is no multi-array (sequence)", remedy], described=True)


def other_models():
    remedy = 'convert its source with convert_to="mlprogram"'
    custom = network()
    custom.neuralNetwork.layers[0].custom.className = "AppFlash"
    for name, spec in (("network", network()), ("network_custom", custom), ("pipeline", pipeline())):
        refused(package(name, spec=spec), ["a neural network", remedy])
    refused(package("trees", spec=trees()), ["another type", remedy])


def other_files():
    """A bare specification and what a Mac has compiled."""
    bare, compiled = work / "bare.mlmodel", work / "model.mlmodelc"
    bare.write_bytes(network().SerializeToString())
    compiled.mkdir()
    (compiled / "coremldata.bin").write_bytes(b"")
    for path, words in ((bare, ["model file (.mlmodel)", ".mlpackage"]), (compiled, ["compiled model (.mlmodelc)", ".mlpackage"])):
        for command in (["inspect"], ["run", "--prompt", "x"], ["bench"]):
            program(words + [str(path)], command[0], path, *command[1:])
        binding_refuses(words, ct.Model, path)
    binding_refuses(["model file (.mlmodel)", ".mlpackage"], ct.models.MLModel, str(bare))
    binding.raises(FileNotFoundError, ["which only a Mac can run"], ct.models.MLModel, str(compiled))


try:
    plain()
    header = b'{"photo":{"dtype":"F32","shape":[1,3,8,8],"data_offsets":[0,768]}}'
    (work / "in.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(768))
    binding.run([ops, features, other_models, other_files])
finally:
    shutil.rmtree(work)
