"""Our bundles in Apple's runtime for Linux (coreai-core), against transformers in fp32. Run by `make check-coreai`; the part that
ends up in it, and what the bounds are, is in docs/coreai.md.

    gate.py MILLET CASES
"""
import json, pathlib, struct, subprocess, sys, tempfile
import numpy as np

millet, cases = sys.argv[1], pathlib.Path(sys.argv[2])
here = pathlib.Path(__file__).parent
CAPACITY = 64
# largest |logit - transformers|: fp32 rounding; fp16 with the sums of that runtime, whose products add up in fp16 (the graph of precision
# float16 has them in the head too, where logits are near 16 and a unit is 1/64)
BOUND = {("none", "float32"): 1e-4, ("none", "mixed"): 0.06, ("none", "float16"): 0.12}
GATED = ["int8lin", "int8hu"]  # first choices must be those of transformers wherever these are clear
REPORTED = ["int4lin", "lut4", "lut6", "lut8"]
CLEAR = 0.1  # margin between the first two logits below which either is right
failed = []


def tensors(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + n])
    kinds = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "F16": np.float16}
    return {k: np.frombuffer(data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]], kinds[v["dtype"]]).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__"}


def run(asset, ids, cuts, first=0, seeds={}, blocks=()):
    """In a process of its own: malformed programs end it."""
    with tempfile.TemporaryDirectory() as d:
        source, target = pathlib.Path(d) / "in.npz", pathlib.Path(d) / "out.npz"
        np.savez(source, ids=np.array(ids), cuts=np.array(cuts), capacity=CAPACITY, first=first, blocks=np.array(blocks, int),
                 **{f"seed_{k}": v for k, v in seeds.items()})
        p = subprocess.run([sys.executable, here / "runtime.py", asset, source, target], capture_output=True, text=True, timeout=900)
        if p.returncode:
            sys.exit(f"{asset}: the runtime refuses it: {p.stderr[-600:]}")
        return dict(np.load(target))


def own(asset, ids, work):
    """millet's logits for single tokens, in its default mode."""
    n, head, data, calls = len(ids), {}, b"", []
    for i in range(n):
        for name, values in (("input_ids", [ids[i]]), ("position_ids", range(i + 1))):
            raw = np.array(values, np.int32).tobytes()
            head[f"{name}{i}"] = {"dtype": "I32", "shape": [1, len(raw) // 4], "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        calls.append({"state": "a", "inputs": {name: f"{name}{i}" for name in ("input_ids", "position_ids")}})
    text = json.dumps(head).encode()
    (work / "own.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (work / "own.json").write_text(json.dumps({"tensors": "own.safetensors", "calls": calls}))
    subprocess.run([millet, "predict", asset, "--calls", work / "own.json", "-o", work / "out.safetensors"], check=True)
    got = tensors(work / "out.safetensors")
    return np.stack([got[f"call{i}.out.logits"].reshape(-1).astype(np.float32) for i in range(n)])


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text, flush=True)
    if not ok:
        failed.append(text)


def first_choices(logits, top1, margin):
    """How many first choices are those of transformers, ties aside; and of how many."""
    clear = margin >= CLEAR
    return int((logits.argmax(1)[clear] == top1[clear]).sum()), int(clear.sum())


def gate(model, work):
    oracle = json.loads((cases / "oracles" / model / "oracle.json").read_text())
    values = tensors(cases / "oracles" / model / "oracle.safetensors")
    prompt = next(p for p in oracle["prompts"] if len(p["ids"]) == 17)
    ids, want = prompt["ids"], values[prompt["logits_key"]].reshape(17, -1)
    order = np.sort(want, axis=1)
    margin, top1 = order[:, -1] - order[:, -2], want.argmax(1)
    one = [1] * 17
    recurrent = "3.5" in model
    kept = {}
    for scheme, precision in [("none", "float32"), ("none", "mixed"), ("none", "float16")] + [(s, "mixed") for s in GATED + REPORTED]:
        out = work / f"{model}-{scheme}-{precision}"
        subprocess.run([millet, "convert", cases / "models" / model, "-o", out, "--format", "coreai", "--quantize", scheme,
                        "--precision", precision, "-q"], check=True)
        asset = next(out.glob("*.aimodel"))
        got = run(asset, ids, one)
        error = float(np.abs(got["logits"] - want).max())
        same, clear = first_choices(got["logits"][:16], top1[:16], margin[:16])
        name = f"{model} {scheme} {precision}: logits within {error:.2g}, first choices {same} of {clear}"
        bound = BOUND.get((scheme, precision))
        if scheme in REPORTED:
            print(f"        {name}", flush=True)
        else:
            check(same == clear and (bound is None or error <= bound), name + (f" (bound {bound:g})" if bound else ""))
        ours = float(np.abs(own(asset, ids, work) - want).max())
        if scheme == "none":  # transformers' own fp32 rounding is about 1e-5
            check(ours <= max(error, 2e-5), f"{model} {scheme} {precision}: millet's within {ours:.2g}")
        else:
            print(f"        {model} {scheme}: millet's within {ours:.2g}", flush=True)
        if precision == "float32":
            kept = got
            if not recurrent:  # calls of several tokens give what single ones give
                several = run(asset, ids, [4, 1, 7, 5])["logits"]
                check(np.abs(several - want).max() <= 1e-4, f"{model}: the same in calls of 4, 1, 7 and 5 tokens")
        elif scheme in GATED:
            # one step from the reference's cache: states behind 16 tokens, of transformers where it gives them
            seeds = {n: run16["state_" + n] for n in ("keyCache", "valueCache", "convState", "recState") if "state_" + n in run16}
            step = run(asset, ids[16:], [1], 16, seeds)["logits"][0]
            check(step.argmax() == top1[16] or margin[16] < CLEAR, f"{model} {scheme}: one step from the reference's states")
        if precision == "float32":
            run16 = run(asset, ids[:16], [1] * 16)
    if recurrent:
        compare_states(oracle, values, kept)
        for precision, bound in (("float32", 1e-4), ("mixed", BOUND["none", "mixed"])):
            out = work / f"{model}-prefill-{precision}"
            subprocess.run([millet, "convert", cases / "models" / model, "-o", out, "--format", "coreai", "--prefill", "2,16",
                            "--precision", precision, "-q"], check=True)
            for cuts in ([16, 1], [2] * 8 + [1], [1, 1, 2, 2, 2, 2, 2, 2, 2, 1]):
                row = run(next(out.glob("*.aimodel")), ids, cuts, blocks=[2, 16])["logits"][-1]
                error = float(np.abs(row - want[16]).max())
                check(error <= bound, f"{model} {precision}: behind calls of {cuts[:-1]} tokens logits within {error:.2g} (bound {bound:g})")


def compare_states(oracle, values, got):
    """States behind the prompt, of the fp32 bundle, against transformers'."""
    for kind, name in (("recurrent_state", "state_recState"), ("conv_state", "state_convState")):
        layers = sorted((int(k.split(".")[1][5:]), v) for k, v in values.items() if k.startswith("p17.layer") and k.endswith(kind))
        ours = got[name][:, 0]
        theirs = np.stack([v.reshape(-1, *v.shape[-(ours.ndim - 1):])[0] if v.ndim >= ours.ndim else v for _, v in layers])
        theirs = theirs[..., -ours.shape[-1]:]  # a column more is kept there
        error = float(np.abs(ours - theirs).max())
        check(ours.shape == theirs.shape and error <= 1e-4, f"states {kind}: within {error:.2g}")


with tempfile.TemporaryDirectory() as d:
    for m in ("tiny-qwen3.5", "tiny-qwen3"):
        gate(m, pathlib.Path(d))
print(f"{len(failed)} failed")
sys.exit(len(failed) > 0)
