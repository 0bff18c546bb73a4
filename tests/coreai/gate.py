"""Our bundles in Apple's runtime for Linux (coreai-core), against transformers in fp32. Run by `make check-coreai`; the part that
ends up in it, and what the bounds are, is in docs/coreai.md.

    gate.py MILLET CASES
"""
import json, pathlib, struct, subprocess, sys, tempfile
import numpy as np

millet, cases = sys.argv[1], pathlib.Path(sys.argv[2])
here = pathlib.Path(__file__).parent
CAPACITY = 64
# largest |logit - transformers|: fp32 rounding; fp16 with the sums of that runtime, whose products add up in fp16
BOUND = {"float32": 1e-4, "mixed": 0.06}
GATED = ["int8lin", "int8hu"]  # first choices must be those of transformers wherever these are clear
REPORTED = ["int4lin", "lut4", "lut6", "lut8"]
CLEAR = 0.1  # margin between the first two logits below which either is right
MODES = ("fast", "strict")
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


def own(asset, ids, work, mode):
    """millet's logits for single tokens."""
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
    subprocess.run([millet, "predict", asset, "--calls", work / "own.json", "-o", work / "out.safetensors", "--precision", mode],
                   check=True)
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


def convert(model, work, scheme, precision, *more):
    out = work / "-".join((model, scheme, precision, *more))
    subprocess.run([millet, "convert", cases / "models" / model, "-o", out, "--format", "coreai", "--quantize", scheme, "--precision",
                    precision, "-q", *more], check=True)
    return next(out.glob("*.aimodel"))


def distance(a, b):
    return float(np.abs(a - b).max())


def closer(name, asset, ids, work, theirs, want):
    """millet's logits in each mode are nearer to what is wanted than that runtime's."""
    error = distance(theirs, want)
    ours = [distance(own(asset, ids, work, mode), want) for mode in MODES]
    text = ", ".join(f"{mode} {x:.2g}" for mode, x in zip(MODES, ours))
    check(max(ours) < error, f"{name}: millet's within {text}; that runtime's within {error:.2g}")


class Prompt:
    """17 tokens, transformers' logits behind each, their first choices and how clear these are."""
    def __init__(self, model):
        self.oracle = json.loads((cases / "oracles" / model / "oracle.json").read_text())
        self.values = tensors(cases / "oracles" / model / "oracle.safetensors")
        prompt = next(p for p in self.oracle["prompts"] if len(p["ids"]) == 17)
        self.ids, self.want = prompt["ids"], self.values[prompt["logits_key"]].reshape(17, -1)
        order = np.sort(self.want, axis=1)
        self.margin, self.top1 = order[:, -1] - order[:, -2], self.want.argmax(1)


def gate_plain(model, p, work):
    """Not compressed. -> what that runtime has behind the 17 tokens and behind 16 of them, in fp32."""
    for precision, bound in BOUND.items():
        asset = convert(model, work, "none", precision)
        got = run(asset, p.ids, [1] * 17)
        error = distance(got["logits"], p.want)
        same, clear = first_choices(got["logits"][:16], p.top1[:16], p.margin[:16])
        name = f"{model} none {precision}"
        check(same == clear and error <= bound, f"{name}: logits within {error:.2g} (bound {bound:g}), first choices {same} of {clear}")
        closer(name, asset, p.ids, work, got["logits"], p.want)
        if precision == "float32":
            kept, kept16 = got, run(asset, p.ids[:16], [1] * 16)
            if "3.5" not in model:  # calls of several tokens give what single ones give
                several = run(asset, p.ids, [4, 1, 7, 5])["logits"]
                check(distance(several, p.want) <= bound, f"{model}: the same in calls of 4, 1, 7 and 5 tokens")
    return kept, kept16


def gate_scheme(model, p, scheme, kept16, work):
    """Compressed: against transformers on the checkpoint's weights; and, as both have the same compressed ones, millet and that runtime
    against these weights in fp32, that is the same scheme in precision float32 in that runtime, whose graph gate_plain() proves (the embedding is fp16 there too)."""
    asset = convert(model, work, scheme, "mixed")
    got = run(asset, p.ids, [1] * 17)["logits"]
    same, clear = first_choices(got[:16], p.top1[:16], p.margin[:16])
    name = f"{model} {scheme}"
    text = f"{name}: logits within {distance(got, p.want):.2g}, first choices {same} of {clear}"
    if scheme in GATED:
        check(same == clear, text)
        # one step from states behind 16 tokens: those of the fp32 bundle, which are transformers' (compare_states)
        seeds = {n.removeprefix("state_"): v for n, v in kept16.items() if n.startswith("state_")}
        step = run(asset, p.ids[16:], [1], 16, seeds)["logits"][0]
        check(step.argmax() == p.top1[16] or p.margin[16] < CLEAR, f"{name}: one step from the reference's states")
    else:
        print(f"        {text}", flush=True)
    wide = convert(model, work, scheme, "float32")
    exact = run(wide, p.ids, [1] * 17)["logits"]
    sums = distance(got, exact)
    text = f"{name}: within {sums:.2g} of the same weights in fp32"
    if scheme in GATED:
        check(sums <= BOUND["mixed"], f"{text} (bound {BOUND['mixed']:g})")
    else:
        print(f"        {text}", flush=True)
    closer(name, asset, p.ids, work, got, exact)
    # mode fast multiplies codes and scales in fp32, where the program rounds each weight to fp16 first
    fast, strict = (distance(own(wide, p.ids, work, mode), exact) for mode in MODES)
    check(strict <= BOUND["float32"], f"{name} float32: millet and that runtime within fast {fast:.2g}, strict {strict:.2g} (bound 0.0001)")


def gate_prefill(model, p, work):
    for precision, bound in BOUND.items():
        asset = convert(model, work, "none", precision, "--prefill", "2,16")
        for cuts in ([16, 1], [2] * 8 + [1], [1, 1, 2, 2, 2, 2, 2, 2, 2, 1]):
            error = distance(run(asset, p.ids, cuts, blocks=[2, 16])["logits"][-1], p.want[16])
            check(error <= bound, f"{model} {precision}: behind calls of {cuts[:-1]} tokens logits within {error:.2g} (bound {bound:g})")


def gate(model, work):
    p = Prompt(model)
    kept, kept16 = gate_plain(model, p, work)
    for scheme in GATED + REPORTED:
        gate_scheme(model, p, scheme, kept16, work)
    if "3.5" in model:
        compare_states(p.values, kept)
        gate_prefill(model, p, work)


def compare_states(values, got):
    """States behind the prompt, of the fp32 bundle, against transformers'."""
    for kind, name in (("recurrent_state", "state_recState"), ("conv_state", "state_convState")):
        layers = sorted((int(k.split(".")[1][5:]), v) for k, v in values.items() if k.startswith("p17.layer") and k.endswith(kind))
        ours = got[name][:, 0]
        theirs = np.stack([v.reshape(-1, *v.shape[-(ours.ndim - 1):])[0] if v.ndim >= ours.ndim else v for _, v in layers])
        theirs = theirs[..., -ours.shape[-1]:]  # a column more is kept there
        error = float(np.abs(ours - theirs).max())
        check(ours.shape == theirs.shape and error <= 1e-4, f"states {kind}: within {error:.2g}")


def gate_rewritten(work):
    """Every bundle that others wrote, read and written again by millet, is the same program to Apple's library."""
    assets = sorted(cases.glob("coreai/**/*.aimodel")) + sorted(here.parent.glob("data/coreai/*.aimodel"))
    for asset in assets:
        again = work / "again.mlirb"
        subprocess.run([pathlib.Path(millet).parent / "tests" / "rewrite", asset, again], check=True)
        same = subprocess.run([sys.executable, here / "text.py", asset / "main.mlirb", again], timeout=900).returncode == 0
        check(same, f"{asset.stem} written again")


with tempfile.TemporaryDirectory() as d:
    gate_rewritten(pathlib.Path(d))
    for m in ("tiny-qwen3.5", "tiny-qwen3"):
        gate(m, pathlib.Path(d))
print(f"{len(failed)} failed")
sys.exit(len(failed) > 0)
