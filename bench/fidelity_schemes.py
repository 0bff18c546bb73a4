#!/usr/bin/env python3
"""First choices of compressed models beside transformers' with the checkpoint's own weights (docs/fidelity.md).

    python bench/fidelity_schemes.py build/millet ../shared/cases [SCHEME...]

Needs numpy. The text: the oracles' teacher-forced ids, and greedy continuations of 64 tokens of their prompts of up to 17
tokens; at each position the oracle states its first choice and its lead over the second (oracles/README.md). Counted are
positions where that is at least 0.1."""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

SCHEMES = {s: ["--quantize", s] for s in ("w8", "w8b32", "lut6", "lut8", "lut4", "w4")}
SCHEMES["w4-vocab-w8b32"] = ["--quantize", "w4", "--vocab", "w8b32"]
MODELS = [("tiny-qwen3.5", "chunks"), ("tiny-qwen3", "single")]


def texts(oracle):
    """(ids, first choices, leads) with one choice for each of the last positions."""
    t = oracle["teacher_forced"]
    yield t["ids"], t["top1"], t["margin"]
    for p in oracle["prompts"]:
        if len(p["ids"]) <= 17:
            yield p["ids"] + p["greedy"][:-1], p["greedy"], p["greedy_margin"]


def logits(millet, artifact, ids, work):
    with open(f"{work}/ids", "w") as f:
        json.dump(ids, f)
    subprocess.run([millet, "score", artifact, "--ids-file", f"{work}/ids", "--logits", f"{work}/logits"], check=True,
                   stdout=subprocess.DEVNULL)
    with open(f"{work}/logits", "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        return np.frombuffer(f.read(), np.float32).reshape(head["logits"]["shape"])


def main():
    millet, cases, *wanted = sys.argv[1:]
    print("| checkpoint, preset | scheme | bits per weight | first choices as transformers' |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for model, preset in MODELS:
            with open(f"{cases}/oracles/{model}/oracle.json") as f:
                oracle = json.load(f)
            for scheme in wanted or SCHEMES:
                out, report = f"{work}/out", f"{work}/report"
                subprocess.run([millet, "convert", f"{cases}/models/{model}", "-o", out, "-q", "--overwrite", "--preset", preset,
                                "--context", "512", "--report", report, *(["--top-k", "0"] if preset == "single" else []),
                                *SCHEMES[scheme]], check=True)
                with open(report) as f:
                    held = [t for t in json.load(f)["tensors"] if t["dtype"] == "fp16"]
                bits = 8 * sum(t["bytes"] for t in held) / sum(int(np.prod(t["shape"])) for t in held)
                same = []
                for ids, top, lead in texts(oracle):
                    got = logits(millet, out, ids, work)[-len(top):].argmax(1)
                    same += [g == t for g, t, m in zip(got, top, lead) if m >= 0.1]
                print(f"| {model}, {preset} | {scheme} | {bits:.2f} | {100 * np.mean(same):.1f} % ({sum(same)} of {len(same)}) |",
                      flush=True)


if __name__ == "__main__":
    main()
