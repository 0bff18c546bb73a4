#!/usr/bin/env python3
"""What the state's number format costs over 2,000 tokens (docs/fidelity.md).

    python bench/fidelity.py build/millet models/tiny-qwen3.5 ../shared/cases/oracles/tiny-qwen3.5/oracle.json

Needs numpy, safetensors, torch and transformers (not part of make test). The ids are the oracle's own prompts, greedy
continuations and chats, one after the other. transformers (fp32, whole sequence at once) is the truth; every variant is
converted with `millet convert` and scored with `millet score`, teacher-forced.
"""
import json
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

VARIANTS = [("float32", "split"), ("mixed", "split"), ("mixed", "fp16"), ("float16", "split"), ("float16", "fp16")]
WINDOWS = [(0, 250), (250, 500), (500, 1000), (1000, 1500), (1500, 2000)]


def sequence(oracle):
    ids = []
    for p in oracle["prompts"]:
        ids += p["ids"] + p["greedy"]
    ids += oracle["teacher_forced"]["ids"]
    for c in oracle["chat"]:
        ids += c["ids"] + c.get("greedy", [])
    while len(ids) < 2000:
        ids += ids[: 2000 - len(ids)]
    return ids[:2000]


def truth(checkpoint, ids):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def recurrence(steps=2000, dk=64, dv=64, log_decay=-1e-4, beta=0.05):
    """The delta rule alone (facts of gated DeltaNet: decay, recall, write, read) with a memory that hardly fades: the
    state is stored each step as fp16, as fp16 value and remainder, or as fp32; float64 is the truth. Relative rms
    error of the readout at the windows' ends."""
    rng = np.random.default_rng(0)
    store = {
        "float64": lambda s: s,
        "float32": lambda s: s.astype(np.float32).astype(np.float64),
        "split": lambda s: (hi := s.astype(np.float16).astype(np.float64)) + (s - hi).astype(np.float16),
        "fp16": lambda s: s.astype(np.float16).astype(np.float64),
    }
    state = {k: np.zeros((dk, dv)) for k in store}
    unit = lambda v: v / np.linalg.norm(v)
    read = {k: [] for k in store}
    for _ in range(steps):
        q, k, v = unit(rng.standard_normal(dk)), unit(rng.standard_normal(dk)), rng.standard_normal(dv)
        for name, keep in store.items():
            s = state[name] * np.exp(log_decay)
            s = s + np.outer(k, beta * (v - s.T @ k))
            state[name] = keep(s)
            read[name].append(state[name].T @ q)
    want = np.array(read["float64"])
    print(f"delta rule alone, log decay {log_decay:g}, beta {beta:g}, relative error of the readout")
    print("| state | " + " | ".join(f"{a}-{b}" for a, b in WINDOWS) + " |")
    for name in ("float32", "split", "fp16"):
        d = np.array(read[name]) - want
        e = [np.sqrt((d[a:b] ** 2).mean() / (want[a:b] ** 2).mean()) for a, b in WINDOWS]
        print(f"| {name} | " + " | ".join(f"{x:.1e}" for x in e) + " |")


def main(millet, checkpoint, oracle_path):
    ids = sequence(json.load(open(oracle_path)))
    want = truth(checkpoint, ids)
    top = np.sort(want, 1)
    clear = top[:, -1] - top[:, -2] >= 0.1
    print(f"{len(ids)} tokens, {clear.sum()} positions with a margin of at least 0.1; logits span {np.ptp(want):.1f}")
    print("| precision | state | mode | " + " | ".join(f"{a}-{b}" for a, b in WINDOWS) + " | top-1 agreement |")
    for precision, state in VARIANTS:
        with tempfile.TemporaryDirectory() as tmp:
            out, ids_file, logits = tmp + "/out", tmp + "/ids.json", tmp + "/logits.safetensors"
            json.dump(ids, open(ids_file, "w"))
            subprocess.run([millet, "convert", checkpoint, "-o", out, "--precision", precision, "--state", state,
                            "--context", "2048"], check=True, capture_output=True)
            for mode in ("strict", "fast"):
                subprocess.run([millet, "score", out, "--ids-file", ids_file, "--logits", logits, "--precision", mode],
                               check=True, capture_output=True)
                got = load_file(logits)["logits"]
                d = np.abs(got - want)
                rms = [np.sqrt((d[a:b] ** 2).mean()) for a, b in WINDOWS]
                agree = (got.argmax(1) == want.argmax(1))[clear].mean()
                print(f"| {precision} | {state} | {mode} | " + " | ".join(f"{x:.2e}" for x in rms) +
                      f" | {100 * agree:.2f} % |", flush=True)


if __name__ == "__main__":
    recurrence()
    main(*sys.argv[1:4])
