#!/usr/bin/env python3
"""A real model from its GGUF file (tools/demo-real fetches it): greedy ids and logits are transformers', of the same weights."""
import json
import os
import subprocess
import sys
import tempfile

FILE = os.environ.get("MILLET_SMOLLM2", os.path.join(os.environ["MILLET_SOURCE"], "out/real/SmolLM2-135M-Instruct.Q4_1.gguf"))
ORACLE = os.path.join(os.environ.get("MILLET_CASES", "../shared/cases"), "smollm2")
# transformers ran the weights rounded to bf16: its logits are not better than that, and closer candidates are a tie.
TIE = 0.05


def millet(*args):
    return subprocess.run([os.environ["MILLET_BIN"], *args], check=True, capture_output=True, text=True).stdout


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f)
    return path


def compare(p, out, work):
    """How many ids were compared before a near tie ended it."""
    ids = write_json(os.path.join(work, "ids.json"), p["ids"])
    got = json.loads(millet("run", out, "--raw-ids", ids, "--json", "--ignore-eos", "--max-new-tokens", str(len(p["greedy"]))))["ids"]
    assert len(got) == len(p["greedy"]), p["name"]
    for i, (a, b, margin) in enumerate(zip(got, p["greedy"], p["greedy_margin"])):
        if a != b:
            assert margin < TIE, f"{p['name']}: token {i} is {a}, expected {b} by {margin}"
            return i
    return len(got)


def main():
    for path in (FILE, ORACLE):
        if not os.path.exists(path):
            print(f"skipped: {path} is not there (make demo-real fetches the model; MILLET_CASES has the oracle)")
            return 77
    with open(os.path.join(ORACLE, "oracle.json")) as f:
        prompts = json.load(f)["prompts"]
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        millet("convert", FILE, "-o", out)
        lines = subprocess.run([os.environ["MILLET_BIN"], "tokenize", out, "--json-lines"], check=True, capture_output=True, text=True,
                               input="".join(json.dumps({"text": p["text"]}) + "\n" for p in prompts)).stdout
        for p, line in zip(prompts, lines.splitlines(), strict=True):
            assert json.loads(line)["ids"] == p["ids"], p["name"]
        for p in prompts:
            print(f"{p['name']}: {compare(p, out, work)} of {len(p['greedy'])} ids are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
