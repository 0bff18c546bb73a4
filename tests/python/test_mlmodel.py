"""millet.MLModel: descriptions equal those that protobuf reads, every call of the shared cases gives PyTorch's results, and
what coremltools' MLModel converts, refuses and shares is converted, refused and shared."""
import binding
import copy, gc, json, os, subprocess, tempfile, threading, weakref
import numpy as np
from coremltools.proto import Model_pb2
from google.protobuf import text_format

import millet as ct
from binding import raises
from cases import CASES, directory, judge, load, scores_of

coreml = directory("coreml")
packages = sorted(coreml.glob("*.mlpackage")) + sorted((CASES / "thirdparty").glob("*/*.mlpackage"))


def protobuf(package):
    spec = Model_pb2.Model()
    spec.ParseFromString((package / "Data" / "com.apple.CoreML" / "model.mlmodel").read_bytes())
    return spec


def descriptions_equal_protobufs():
    assert len(packages) >= 40
    for package in packages:
        want, model = protobuf(package), ct.MLModel(str(package))
        spec = model.get_spec()
        got = text_format.Parse(str(spec.description), Model_pb2.ModelDescription())
        assert got == want.description, f"{package.name}:\n{spec.description}\n--- is not\n{want.description}"
        assert spec.specificationVersion == want.specificationVersion and spec.WhichOneof("Type") == want.WhichOneof("Type")
        assert dict(model.user_defined_metadata) == dict(want.description.metadata.userDefined)
        assert model.short_description == want.description.metadata.shortDescription
        assert model.author == want.description.metadata.author
        for function in [f.name for f in want.description.functions] or [None]:
            held = ct.models.MLModel(str(package), function_name=function)
            where = next((f for f in want.description.functions if f.name == function), want.description)
            assert list(held.input_description) == [i.name for i in where.input]
            assert list(held.output_description) == [o.name for o in where.output]
            assert held.function_name == function


def messages_read_like_protobufs():
    spec = ct.utils.load_spec(str(coreml / "op_enumerated_shapes.mlpackage"))
    array = spec.description.input[0].type.multiArrayType
    want = protobuf(coreml / "op_enumerated_shapes.mlpackage").description.input[0].type.multiArrayType
    assert array.WhichOneof("ShapeFlexibility") == want.WhichOneof("ShapeFlexibility") == "enumeratedShapes"
    assert [list(s.shape) for s in array.enumeratedShapes.shapes] == [list(s.shape) for s in want.enumeratedShapes.shapes]
    assert array.ArrayDataType.Name(array.dataType) == want.ArrayDataType.Name(want.dataType)
    assert array.HasField("enumeratedShapes") and not array.HasField("shapeRange")
    assert list(array.shapeRange.sizeRanges) == [] and array.intDefaultValue == 0
    assert array.dataType == ct.proto.FeatureTypes_pb2.ArrayFeatureType.FLOAT16
    changed = copy.deepcopy(spec)
    changed.description.input[0].name = "other"
    assert changed != spec and spec.description.input[0].name == "x"
    raises(AttributeError, ["nonsense"], lambda: array.nonsense)
    raises(ValueError, ["nonsense"], array.WhichOneof, "nonsense")


def cases_give_their_results(precision="fast"):
    checked = bad = 0
    for path in sorted(coreml.glob("*.json")):
        case = json.loads(path.read_text())
        tensors, models, states = load(coreml / case["tensors"]), {}, {}
        multi = ct.utils.load_spec(coreml / case["package"]).description.functions
        for n, call in enumerate(case["calls"]):
            name = call["function"]
            if name not in models:
                models[name] = ct.models.MLModel(str(coreml / case["package"]), function_name=name if multi else None,
                                                 precision=precision)
            if call["state"] is not None and call["state"] not in states:
                states[call["state"]] = models[name].make_state()
            state = states.get(call["state"])
            got = models[name].predict({k: tensors[v] for k, v in call["inputs"].items()}, state)
            assert list(got) == [o for o in models[name].output_description]
            after = {k: state.read_state(k) for k in call["states_after"]}
            for kind, results, entries in (("output", got, call["outputs"]), ("state", after, call["states_after"])):
                for k, entry in entries.items():
                    want = tensors[entry["f32"]]
                    problem = judge(results.get(k), want, entry, scores_of(want, entries, tensors))
                    checked += 1
                    if problem:
                        print(f"{path.name}: call {n} {kind} {k} {problem}")
                        bad += 1
    print(f"{precision}: {checked} tensors, {bad} wrong")
    assert checked > 600 and not bad


def strict_cases_give_their_results():
    cases_give_their_results("strict")


def element_types_are_converted():
    model = ct.MLModel(coreml / "op_state.mlpackage")  # x fp16 [1,4], pos int32 [1]
    x = np.array([[0.1, -2.5, 3.0, 70000.0]])

    def result(x, pos):
        return model.predict({"x": x, "pos": pos}, model.make_state())

    with np.errstate(over="ignore"):
        want = result(x.astype(np.float16), np.array([1], np.int32))
    assert all(v.dtype == np.float32 for v in want.values())  # as coremltools gives out fp16
    strided = np.zeros((1, 8))
    strided[:, ::2] = x
    given = {"x": x, "pos": np.array([1])}
    for form in (result(x, np.array([1.0])), result(x.tolist(), [1]), result(x.astype(np.float32), 1),
                 result(strided[:, ::2], np.array([1], np.uint8)), model.predict(given, model.make_state())):
        assert all(np.array_equal(form[k], want[k]) for k in want)
    assert given["x"] is x and given["pos"].dtype == np.int64  # what is given stays
    x = x[:, :4]
    raises(RuntimeError, ["'pos' is int32", "float64", "whole"], result, x, [0.5])
    raises(RuntimeError, ["'pos' is int32", str(2**40)], result, x, [2**40])
    raises(RuntimeError, ["'pos' is int32", "whole"], result, x, [np.nan])
    raises(TypeError, ["'x'", "not convertible"], result, "text", [0])
    raises(TypeError, ["'x'", "not convertible"], result, [[1, 2], [3]], [0])
    raises(TypeError, ["'x'", "not convertible"], result, x.astype(complex), [0])


def wrong_calls_are_refused():
    model = ct.MLModel(str(coreml / "op_state.mlpackage"))
    good, state = {"x": np.ones((1, 4)), "pos": [0]}, model.make_state()
    raises(KeyError, ['Provided key "y", in the input dict, does not match any of the model input name(s), which are:'],
           model.predict, {**good, "y": 1}, state)
    raises(RuntimeError, ["Feature pos is required but not specified."], model.predict, {"x": good["x"]}, state)
    raises(RuntimeError, ["For input feature 'x', the provided shape (4) is not compatible with the model's feature "
                          "description. MultiArray shape (4) does not match the shape (1 x 4)"],
           model.predict, {**good, "x": np.ones(4)}, state)
    raises(RuntimeError, ["states (acc, ring, conv)", "make_state"], model.predict, good)
    raises(TypeError, ['"data" parameter must be either a dict or list of dict'], model.predict, 3)
    raises(TypeError, ['"data" list must contain only dictionaries'], model.predict, [good, 3])
    raises(AssertionError, ["unbatched"], model.predict, [good], state)
    ranged = ct.MLModel(str(coreml / "op_dynamic_shapes.mlpackage"))
    mask = np.zeros((1, 1, 1, 1))
    raises(RuntimeError, ["'ids'", "Size (17) of dimension (1) is not in allowed range (1..16)"], ranged.predict,
           {"ids": np.zeros((1, 17)), "mask": mask})
    raises(RuntimeError, ["'ids'", "(16)", "does not match the shape (1 x 1)"], ranged.predict,
           {"ids": np.zeros(16), "mask": mask})
    listed = ct.MLModel(str(coreml / "op_enumerated_shapes.mlpackage"))
    raises(RuntimeError, ["'x'", "Shape (3 x 3) was not in enumerated set of allowed shapes"], listed.predict,
           {"x": np.zeros((3, 3))})
    raises(TypeError, ['"compute_units" parameter must be of type'], ct.MLModel, str(coreml / "op_state.mlpackage"),
           compute_units="ALL")
    raises(ValueError, ['function_name must be "main" for non multifunction model'], ct.MLModel,
           str(coreml / "op_state.mlpackage"), function_name="decode")
    raises(ValueError, ["function_name nothing not found in the model", "decode, prefill"], ct.MLModel,
           str(coreml / "qwen3_multifn_fp16.mlpackage"), function_name="nothing")
    raises(FileNotFoundError, ["nowhere.mlpackage"], ct.MLModel, "nowhere.mlpackage")
    raises(FileNotFoundError, ["nowhere.mlmodelc", "Mac"], ct.models.CompiledMLModel, "nowhere.mlmodelc")
    raises(TypeError, ["Expected model to be"], ct.MLModel, 3)
    raises(RuntimeError, ["skip_model_load"], ct.MLModel(str(coreml / "op_state.mlpackage"), skip_model_load=True).predict,
           good, state)
    with tempfile.TemporaryDirectory() as empty:
        raises(ct.MilletError, [empty], ct.MLModel, empty)


def states_are_read_written_and_apart():
    model = ct.MLModel(str(coreml / "op_state.mlpackage"))
    call, state, other = {"x": np.ones((1, 4)), "pos": [0]}, model.make_state(), model.make_state()
    first = model.predict(call, state)
    second = model.predict(call, state)
    assert not np.array_equal(first["a"], second["a"])
    assert np.array_equal(model.predict(call, other)["a"], first["a"])
    copied = model.make_state()
    for name in state.names():
        assert not model.make_state().read_state(name).any()
        copied.write_state(name=name, value=state.read_state(name))
        assert np.array_equal(copied.read_state(name=name), state.read_state(name))
    assert all(np.array_equal(v, w) for v, w in zip(model.predict(call, copied).values(), model.predict(call, state).values()))
    state.reset()
    assert np.array_equal(model.predict(call, state)["a"], first["a"])
    raises(RuntimeError, ["no state 'nothing'", "acc"], state.read_state, "nothing")
    raises(RuntimeError, ["no state 'nothing'"], state.write_state, "nothing", np.ones(1))
    raises(RuntimeError, ["state 'acc'", "(4)", "(1 x 4)"], state.write_state, "acc", np.ones(4))
    stateless = ct.MLModel(str(coreml / "op_fp32_ios15.mlpackage"))
    feature = stateless.get_spec().description.input[0].type.multiArrayType
    x = {"x": np.ones(list(feature.shape), np.float32)}
    assert np.array_equal(stateless.predict(x, stateless.make_state())["y"], stateless.predict(x)["y"])
    raises(RuntimeError, ["state 'acc'", "does not have"], model.predict, call, stateless.make_state())


def batches_are_lists():
    model = ct.MLModel(str(coreml / "op_fp32_ios15.mlpackage"))
    shape = list(model.get_spec().description.input[0].type.multiArrayType.shape)
    xs = [np.full(shape, v, np.float32) for v in (0.5, -1)]
    got = model.predict([{"x": x} for x in xs])
    assert all(np.array_equal(g["y"], model.predict({"x": x})["y"]) for g, x in zip(got, xs))
    assert model.predict([]) == []


def threads_do_not_meet():
    """Calls of one model from several threads: without states at once, with states of their own or one in turns."""
    model = ct.MLModel(str(coreml / "op_state.mlpackage"))
    plain = ct.MLModel(str(coreml / "op_fp32_ios15.mlpackage"))
    shape = list(plain.get_spec().description.input[0].type.multiArrayType.shape)
    call = {"x": np.ones((1, 4)), "pos": [0]}
    want, state = [], model.make_state()
    for _ in range(20):
        want.append(model.predict(call, state)["a"])
    shared, seen, wrong = model.make_state(), [], []

    def work(value):
        own, x = model.make_state(), np.full(shape, value, np.float32)
        y = plain.predict({"x": x})["y"]
        for i in range(20):
            if not np.array_equal(model.predict(call, own)["a"], want[i]) or not np.array_equal(plain.predict({"x": x})["y"], y):
                wrong.append(value)
            if i < 5:
                seen.append(model.predict(call, shared)["a"].tobytes())

    threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and set(seen) == {w.tobytes() for w in want}


def one_state_serves_functions_and_packages():
    """A prompt by prefill, then decode, over one state, equals decode alone; and so over packages opened apart."""
    path = str(coreml / "qwen3_multifn_fp16.mlpackage")
    decode, prefill = (ct.MLModel(path, function_name=f) for f in ("decode", "prefill"))
    with tempfile.TemporaryDirectory() as work:
        copied = os.path.join(work, "copy.mlpackage")
        subprocess.run(["cp", "-r", path, copied], check=True)
        elsewhere = ct.MLModel(copied, function_name="decode")
        results = []
        for second in (decode, elsewhere):
            state = prefill.make_state()
            inputs = {i.name: np.zeros(list(i.type.multiArrayType.shape)) for f in prefill.get_spec().description.functions
                      if f.name == "prefill" for i in f.input}
            inputs["inputIds"][:] = 7
            prefill.predict(inputs, state)
            inputs = {i.name: np.zeros(list(i.type.multiArrayType.shape)) for f in prefill.get_spec().description.functions
                      if f.name == "decode" for i in f.input}
            inputs["position"][:] = 4
            results.append([second.predict(inputs, state), {n: state.read_state(n) for n in state.names()}])
            fresh = decode.predict(inputs, decode.make_state())
        for got, want in zip(*results):
            assert all(np.array_equal(got[k], want[k]) for k in want)
        assert any(not np.array_equal(fresh[k], results[0][0][k]) for k in fresh)
        assert all(v.any() for v in results[0][1].values())


def compiled_models_stand_for_packages():
    path = coreml / "op_fp32_ios15.mlpackage"
    model = ct.models.CompiledMLModel(str(path.with_suffix(".mlmodelc")), ct.ComputeUnit.CPU_AND_NE)
    plain = ct.models.MLModel(str(path))
    x = {"x": np.ones(list(plain.get_spec().description.input[0].type.multiArrayType.shape), np.float32)}
    assert np.array_equal(model.predict(x)["y"], plain.predict(x)["y"])


def closed_is_closed():
    with ct.MLModel(str(coreml / "op_state.mlpackage")) as model:
        state = model.make_state()
        other = ct.MLModel(str(coreml / "op_state.mlpackage"))
    raises(ValueError, ["closed"], model.predict, {"x": np.ones((1, 4)), "pos": [0]}, state)
    other.predict({"x": np.ones((1, 4)), "pos": [0]}, state)


def what_is_dropped_is_freed():
    """A state keeps its package open, and no longer; a package that is replaced on disk is opened anew."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model.mlpackage")
        subprocess.run(["cp", "-r", coreml / "op_state.mlpackage", path], check=True)
        model = ct.MLModel(path)
        same, state, handle = ct.MLModel(path), model.make_state(), weakref.ref(model._package.handle)
        assert same._package is model._package
        model.predict({"x": np.ones((1, 4)), "pos": [0]}, state)
        del model, same
        assert handle() is not None and state.read_state("acc").any()
        subprocess.run(["rm", "-r", path], check=True)
        subprocess.run(["cp", "-r", coreml / "op_fp32_ios15.mlpackage", path], check=True)
        assert list(ct.MLModel(path).output_description) == ["y"]
        del state
        gc.collect()
        assert handle() is None


if __name__ == "__main__":
    binding.run([descriptions_equal_protobufs, messages_read_like_protobufs, cases_give_their_results,
                 strict_cases_give_their_results, element_types_are_converted, wrong_calls_are_refused,
                 states_are_read_written_and_apart, batches_are_lists, threads_do_not_meet,
                 one_state_serves_functions_and_packages, compiled_models_stand_for_packages, closed_is_closed,
                 what_is_dropped_is_freed])
