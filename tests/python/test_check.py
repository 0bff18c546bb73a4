"""millet check's figures, computed once more from transformers' logits and hidden states (oracles/README.md), from the
artifact's own logits (millet score), and from what millet run generates."""
import json, math, os, pathlib, re, subprocess, sys, tempfile
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
CASES = pathlib.Path(os.environ["MILLET_CASES"])
ORACLE = CASES / "oracles" / "tiny-qwen3"
MODEL = CASES / "models" / "tiny-qwen3"
if not ORACLE.is_dir():
    print(f"skipped: {ORACLE} is not there (set MILLET_CASES)")
    sys.exit(77)


def millet(*args, ok=(0,)):
    # check looks at inner values, which only the evaluator shows: it is what score must run on to give the same numbers.
    environment = {**os.environ, "MILLET_ENGINE": "reference"}
    run = subprocess.run([os.environ["MILLET_BIN"], *map(str, args)], capture_output=True, env=environment)
    assert run.returncode in ok, (args, run.returncode, run.stderr.decode())
    return run.stdout


def load(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "F16": np.float16, "I32": np.int32}
    return {k: np.frombuffer(data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]], types[v["dtype"]])
                .reshape(v["shape"]).astype(np.float64) for k, v in header.items()}


def save(path, tensors):
    header, blob = {}, b""
    for name, (dtype, x) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(blob), len(blob) + x.nbytes]}
        blob += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + blob)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def close(got, want, relative, what):
    assert abs(got - want) <= relative * max(abs(want), 1e-12), f"{what}: {got}, expected {want}"


def check_scores(report, ref, got, ids):
    p, q = log_softmax(ref), log_softmax(got)
    kl = (np.exp(p) * (p - q)).sum(-1)
    agree = ref.argmax(-1) == got.argmax(-1)
    top = np.sort(ref, -1)
    certain = top[:, -1] - top[:, -2] >= 0.1
    cosine = (ref * got).sum(-1) / np.sqrt((ref**2).sum(-1) * (got**2).sum(-1))
    assert report["positions"] == len(ids)
    # The reference is transformers' graph in another order of sums: logits agree to about 1e-5, and so do means.
    close(report["top1_agreement"], agree.mean(), 1e-12, "agreement")
    assert report["certain"] == certain.sum()
    close(report["certain_agreement"], agree[certain].mean(), 1e-12, "agreement at margin 0.1")
    close(report["mean_kl"], kl.mean(), 1e-3, "KL")
    close(report["mean_cosine"], cosine.mean(), 1e-6, "cosine")
    close(report["largest_error"], np.abs(ref - got).max(), 1e-3, "largest error")
    nll = [-x[np.arange(len(ids) - 1), ids[1:]].mean() for x in (q, p)]
    close(math.log(report["perplexity"]), nll[0], 1e-5, "perplexity")
    close(math.log(report["perplexity_reference"]), nll[1], 1e-4, "perplexity of the reference")
    by_position = report["by_position"]
    assert [x["index"] for x in by_position] == list(range(len(ids)))
    assert [x["agree"] for x in by_position] == list(agree)
    assert all(abs(x["kl"] - k) < 1e-3 * kl.max() for x, k in zip(by_position, kl)), "KL by position"


def check_layers(report, artifact, oracle, ids, work):
    """Hidden states of the artifact from one call, against transformers'."""
    n, layers = len(ids), len(report["layers"])
    mask = np.where(np.arange(n)[:, None] >= np.arange(n)[None], 0, -65504).astype(np.float16)
    save(work / "in", {"input_ids": ("I32", np.array([ids], np.int32)), "causal_mask": ("F16", mask[None, None])})
    names = [f"layer_{i}_out" for i in range(layers)]
    millet("predict", artifact, "--inputs", work / "in", "-o", work / "values", "--values", ",".join(names))
    values = load(work / "values")
    for i, name in enumerate(names):
        want, got = oracle[f"p17.layer{i}.out"], values[name][0]
        error = math.sqrt(((got - want) ** 2).sum() / (want**2).sum())
        assert report["layers"][i]["layer"] == i
        close(report["layers"][i]["error"], error, 1e-3, f"error of {name}")


def repetition(runs):
    tokens = sum(len(r["ids"]) for r in runs)
    trigrams = [list(zip(r["ids"], r["ids"][1:], r["ids"][2:])) for r in runs]
    characters = sum(len(r["text"]) for r in runs)
    longest = 0
    for r in runs:
        run = 0
        for i, x in enumerate(r["ids"]):
            run = run + 1 if i and x == r["ids"][i - 1] else 1
            longest = max(longest, run)
    return {
        "prompts": len(runs), "tokens": tokens, "longest_run": longest,
        "repeated_tokens": sum(len(r["ids"]) - len(set(r["ids"])) for r in runs) / tokens,
        "repeated_trigrams": sum(len(t) - len(set(t)) for t in trigrams) / sum(map(len, trigrams)),
        "repeated_characters": sum(a == b for r in runs for a, b in zip(r["text"], r["text"][1:])) / characters,
    }


PROMPTS = ["The old bridge was closed in winter, so", "Am Morgen lag Nebel über dem See, und"]


def check_repetition(artifact, model):
    report = json.loads(millet("check", artifact, "--against", model, "--only", "repetition", "--budget", "128", "--json"))
    runs = [json.loads(millet("run", artifact, "-p", p, "-n", "64", "--ignore-eos", "--json")) for p in PROMPTS]
    want = repetition(runs)
    for key, value in want.items():
        close(report["repetition"][key], value, 1e-12, key)


def check_plan(work):
    """coremltools loads and type-checks a program in which a plan holds values in fp32; they are, and with them nothing
    that the plan doesn't name."""
    import check_coremltools

    named = ["layer_1_mlp_product", "layer_1_out", "layer_2_masked_scores", "layer_0_self_attn_q_proj"]
    (work / "plan").write_text(json.dumps({"format": "millet-precision-plan", "format_version": 1,
                                           "fp32": [{"value": v} for v in named]}))
    types = {}
    for options in ([], ["--precision-plan", work / "plan"]):
        out = work / f"planned{len(options)}"
        millet("convert", MODEL, "-o", out, "-q", "--precision", "float16", "--context", "64", "--quantize", "w8", *options)
        assert check_coremltools.main([str(out / "model.mlpackage")]) == 0
        listing = millet("inspect", out / "model.mlpackage", "--ops").decode()
        types[len(options)] = dict(re.findall(r"%(\w+): (fp16|fp32)\[", listing))
    before, after = types[0], types[2]
    changed = {v for v in before if before[v] != after[v]}
    assert changed == set(named), changed


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    oracle, prompts = load(ORACLE / "oracle.safetensors"), json.loads((ORACLE / "oracle.json").read_text())["prompts"]
    ids = next(p["ids"] for p in prompts if p["logits_key"] == "p17.logits")
    (work / "ids").write_text(json.dumps(ids))
    artifact = work / "w4"
    millet("convert", MODEL, "-o", artifact, "-q", "--top-k", "0", "--quantize", "w4", "--context", "256")
    report = json.loads(millet("check", artifact, "--against", MODEL, "--ids-file", work / "ids", "--only", "scores",
                               "--json", ok=(0, 1)))
    millet("score", artifact, "--ids-file", work / "ids", "--logits", work / "logits")
    check_scores(report, oracle["p17.logits"], load(work / "logits")["logits"], np.array(ids))
    check_layers(report, artifact, oracle, ids, work)
    check_repetition(artifact, MODEL)
    check_plan(work)
print("scores, layers and repetition as computed here")
