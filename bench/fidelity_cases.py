"""How far the packages of each precision are from transformers (fp32), and what a 16-bit recurrent state costs a model with slow
decays over a long text (docs/fidelity.md). Needs numpy.

    python bench/fidelity_cases.py build/millet ../shared/cases
"""
import json, os, shutil, struct, subprocess, sys, tempfile
import numpy as np

millet, cases = sys.argv[1:3]
work = tempfile.mkdtemp()
MODELS = [("tiny-qwen3.5", "chunks"), ("rand-qwen3.5-untied", "chunks"), ("rand-qwen3.5-textonly", "chunks"),
          ("tiny-qwen3", "single"), ("rand-qwen2", "single"), ("rand-llama", "single")]


def tensors(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], np.float32).reshape(v["shape"])
            for k, v in header.items() if k != "__metadata__" and v["dtype"] == "F32"}


def convert(model, preset, precision, *more):
    out, checkpoint = f"{work}/artifact", model if "/" in model else f"{cases}/models/{model}"
    subprocess.run([millet, "convert", checkpoint, "-o", out, "--overwrite", "--quiet", "--preset", preset,
                    "--precision", precision, "--top-k", "0", "--context", "2048", *more], check=True, stderr=subprocess.DEVNULL)
    return out


def logits(artifact, ids, mode="strict"):
    with open(f"{work}/ids", "w") as f:
        json.dump(ids, f)
    subprocess.run([millet, "score", artifact, "--ids-file", f"{work}/ids", "--logits", f"{work}/logits", "--precision", mode], check=True,
                   stdout=subprocess.DEVNULL)
    return tensors(f"{work}/logits")["logits"]


def nll(rows, ids):
    rows = rows[:-1].astype(np.float64)
    top = rows.max(1)
    return (top + np.log(np.exp(rows - top[:, None]).sum(1)) - rows[np.arange(len(rows)), ids[1:]]).mean()


def against_transformers():
    print("| checkpoint, preset | precision | largest logit error | top-1 | mean NLL | oracle |\n|---|---|---|---|---|---|")
    for model, preset in MODELS:
        oracle = json.load(open(f"{cases}/oracles/{model}/oracle.json"))
        want, forced = tensors(f"{cases}/oracles/{model}/oracle.safetensors"), oracle["teacher_forced"]
        for precision in ("float32", "mixed", "float16"):
            artifact, mode = convert(model, preset, precision), "fast" if precision == "float32" else "strict"
            error = 0
            for p in oracle["prompts"]:
                w = want[p["logits_key"]]
                error = max(error, np.abs(logits(artifact, p["ids"], mode)[-len(w):] - w).max())
            rows = logits(artifact, forced["ids"], mode)
            sure = np.array(forced["margin"]) >= 0.1
            agree = (rows.argmax(1) == np.array(forced["top1"]))[sure]
            print(f"| {model}, {preset} | {precision} | {error:.2g} | {agree.sum()} of {agree.size} | "
                  f"{nll(rows, forced['ids']):.4f} | {forced['mean_nll']:.4f} |", flush=True)


def slow(model):
    """The checkpoint with every gate near 1: A_log and dt_bias such that the log decay is about -1e-4 a token."""
    out = f"{work}/slow"
    shutil.copytree(f"{cases}/models/{model}", out)
    os.chmod(out, 0o755)
    for name in [n for n in os.listdir(out) if n.endswith(".safetensors")]:
        os.chmod(f"{out}/{name}", 0o644)
        with open(f"{out}/{name}", "r+b") as f:
            n, = struct.unpack("<Q", f.read(8))
            for key, v in json.loads(f.read(n)).items():
                if not key.endswith(("A_log", "dt_bias")):
                    continue
                f.seek(8 + n + v["data_offsets"][0])
                x = np.full(v["shape"], -6.9 if key.endswith("A_log") else -2.2, np.float32)
                f.write(x.tobytes() if v["dtype"] == "F32" else (x.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    return out


def long_text(model, vocab):
    reference = convert(model, "chunks", "float32")
    ids = [int(i) for i in np.random.default_rng(0).integers(0, vocab, 2000)]
    truth = logits(reference, ids, "fast")
    for name, more in (("split", ("--state", "split")), ("fp16", ("--state", "fp16"))):
        rows = logits(convert(model, "chunks", "mixed", *more), ids)
        d = np.abs(rows - truth)
        spans = [(0, 100), (100, 500), (500, 1000), (1000, 1500), (1500, len(ids))]
        agree = (rows.argmax(1) == truth.argmax(1)).mean() * 100
        print(f"| {os.path.basename(model)} | {name} | " + " | ".join(f"{d[a:b].mean():.2g} / {d[a:b].max():.2g}" for a, b in spans) +
              f" | {agree:.2f} % | {nll(rows, ids) - nll(truth, ids):+.5f} |", flush=True)


against_transformers()
print("\n| checkpoint | state | 0-100 | 100-500 | 500-1000 | 1000-1500 | 1500-2000 | top-1 | NLL |\n|---|---|---|---|---|---|---|---|---|")
long_text(slow("rand-qwen3.5-untied"), 700)
