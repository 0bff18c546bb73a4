#!/usr/bin/env python3
"""Every compression scheme x preset x checkpoint against transformers.

    python tests/oracle/scheme_matrix.py build/millet ../shared/cases [--only REGEX] [--golden tests/data/scheme_cases.json]

Each combination is converted in float32 and mixed. coremltools loads and type-checks every package and decompresses its
weights; transformers (fp32) runs on these values; `millet score` runs the package in mode strict, where every op rounds to its
declared type, decompression too (mode fast keeps a scale's products with codes in fp32). The table shows the largest difference
of the logits over 64 teacher-forced positions, as a share of their range, and first choices that differ where transformers'
margin is at least 0.1.
--golden writes a few of transformers' logits for tests/golden/test_schemes.c; they belong to the palettes and codes that this
converter chooses, so a converter that chooses others needs a new file.

Needs coremltools, torch, transformers, safetensors (not part of make test)."""
import argparse
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import check_coremltools  # quiets coremltools
import coremltools as ct
import torch
import transformers
from coremltools.converters.mil.frontend.milproto import load as milproto
from coremltools.libmodelpackage import ModelPackage
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

MODELS = [("tiny-qwen3.5", ["chunks"]), ("rand-qwen3.5-untied", ["chunks"]), ("rand-qwen3.5-textonly", ["chunks"]),
          ("tiny-qwen3", ["chunks", "single"]), ("rand-qwen3-bigvocab", ["chunks", "single"]),
          ("rand-qwen2", ["chunks", "single"]), ("rand-llama", ["chunks", "single"])]
SCHEMES = {s: ["--quantize", s] for s in ("fp16", "lut4", "lut6", "lut8", "w8", "w8b32", "w4")}
SCHEMES["w4-vocab-w8b32"] = ["--quantize", "w4", "--vocab", "w8b32"]
MARGIN = 0.1
POSITIONS = 64
GOLDEN_IDS, GOLDEN_POSITIONS, GOLDEN_TOP, GOLDEN_STRIDED = 24, (2, 11, 23), 6, 6


class Bench:
    def __init__(self, millet, cases):
        self.millet, self.cases, self.work = millet, cases, tempfile.mkdtemp()

    def run(self, *args):
        r = subprocess.run([self.millet, *map(str, args)], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def convert(self, model, preset, precision, options):
        out = f"{self.work}/out"
        self.run("convert", f"{self.cases}/models/{model}", "-o", out, "--overwrite", "-q", "--preset", preset, "--precision",
                 precision, "--context", 2048, *(["--top-k", 0] if preset == "single" else []), *options)
        return out

    def logits(self, artifact, ids):
        ids_file, logits = f"{self.work}/ids.json", f"{self.work}/logits.safetensors"
        with open(ids_file, "w") as f:
            json.dump(ids, f)
        self.run("score", artifact, "--ids-file", ids_file, "--logits", logits, "--precision", "strict")
        return load_file(logits)["logits"]

    def oracle(self, model):
        with open(f"{self.cases}/oracles/{model}/oracle.json") as f:
            return json.load(f)

    def transformers(self, model):
        """In fp32, head and table apart."""
        path = f"{self.cases}/models/{model}"
        config = AutoConfig.from_pretrained(path)
        tied = getattr(config, "tie_word_embeddings", False) or getattr(config.get_text_config(), "tie_word_embeddings", False)
        config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = False
        m = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=torch.float32).eval()
        if tied:
            m.lm_head.weight = torch.nn.Parameter(m.get_input_embeddings().weight.detach().clone())
        return m


def packages(artifact):
    return sorted(glob.glob(f"{artifact}/**/*.mlpackage", recursive=True))


def load(path):
    """The typed program of a package, after coremltools' own checks."""
    assert ModelPackage.isValid(path), path
    spec = ct.utils.load_spec(path)
    program = milproto.load(spec, spec.specificationVersion, f"{path}/Data/com.apple.CoreML/weights")
    program.validate()
    program._check_early_error_out_for_invalid_program()
    check_coremltools.check_names(spec)
    return program


def decompressed(artifact):
    """name -> values of all constants of the first function of every package, as coremltools makes them; how many it
    decompressed."""
    found, n = {}, 0
    for path in packages(artifact):
        functions = load(path).functions
        for op in functions["decode" if "decode" in functions else next(iter(functions))].operations:
            if op.op_type.startswith("constexpr_"):
                found[op.outputs[0].name] = np.asarray(op.materialized_val_inference())
                n += 1
            elif op.op_type == "const" and isinstance(op.outputs[0].val, np.ndarray):
                found[op.outputs[0].name] = op.outputs[0].val
    return found, n


def host_table(artifact):
    """The embedding table beside the package (docs/formats.md); None when there is none."""
    paths = glob.glob(f"{artifact}/*embed_tokens*.bin")
    if not paths:
        return None
    with open(paths[0], "rb") as f:
        _, _, kind, rows, width, row_bytes = struct.unpack("<8sIIQQQ", f.read(40))
        f.seek(64)
        raw = np.frombuffer(f.read(rows * row_bytes), np.uint8).reshape(rows, row_bytes)
    if kind in (1, 2):
        return raw.view(np.float16 if kind == 1 else np.float32)[:, :width].astype(np.float32)
    return raw[:, :width].view(np.int8).astype(np.float32) * raw[:, width:].copy().view(np.float16).astype(np.float32)


def load_weights(model, artifact):
    """Puts the package's matrices into the model. Returns how many compressed ones there were."""
    values, n = decompressed(artifact)
    parameters = dict(model.named_parameters())
    heads = [k for k in values if re.fullmatch(r"lm_head_weight(_\d+)?", k)]
    heads.sort(key=lambda k: int(k.rsplit("_", 1)[1]) if k[-1].isdigit() else 0)
    head = np.concatenate([values[k] for k in heads]) if heads else values["embed_tokens_weight"]
    table = host_table(artifact)
    if table is None:
        table = values.get("embed_tokens_weight", head)
    model.get_input_embeddings().weight.data = torch.from_numpy(np.ascontiguousarray(table, np.float32))
    model.lm_head.weight.data = torch.from_numpy(np.ascontiguousarray(head, np.float32))
    for name, p in parameters.items():
        key = re.sub(r".*layers\.", "layer_", name).replace(".", "_")
        if "layers." not in name or (p.dim() != 2 and not name.endswith(".bias")):
            continue
        value = values[key].astype(np.float32)
        assert value.shape == tuple(p.shape), (key, value.shape, p.shape)
        p.data = torch.from_numpy(value)
    return n


def forward(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def sure(want):
    top = np.partition(want, -2, axis=1)
    return top[:, -1] - top[:, -2] >= MARGIN


def golden(want, ids):
    rows = []
    for at in GOLDEN_POSITIONS:
        row = want[at]
        top = np.argsort(-row, kind="stable")[:GOLDEN_TOP]
        rest = np.linspace(0, len(row) - 1, GOLDEN_STRIDED).astype(int)
        rows.append({"position": at, "margin": float(f"{row[top[0]] - row[top[1]]:.4g}"), "ids": [int(i) for i in (*top, *rest)],
                     "logits": [float(f"{row[i]:.7g}") for i in (*top, *rest)]})
    return {"range": float(f"{np.ptp(want[:GOLDEN_IDS]):.6g}"), "rows": rows}


def write_golden(path, cases):
    with open(path, "w") as f:
        f.write('{"made_by": "tests/oracle/scheme_matrix.py", "cases": [\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")


def matrix(bench, only, golden_path):
    bad, kept = 0, []
    print("| checkpoint, preset | scheme | compressed | float32 | mixed | first choices that differ |\n|---|---|---|---|---|---|")
    for name, presets in MODELS:
        ids = bench.oracle(name)["teacher_forced"]["ids"][:POSITIONS]
        model = None
        for preset in presets:
            for scheme, options in SCHEMES.items():
                if not re.search(only, f"{name} {preset} {scheme}"):
                    continue
                model = model or bench.transformers(name)
                cells, differ, held = [], [], []
                for precision in ("float32", "mixed"):
                    artifact = bench.convert(name, preset, precision, [*options, "--report", f"{bench.work}/report.json"])
                    with open(f"{bench.work}/report.json") as f:
                        held.append([t for t in json.load(f)["tensors"] if t["scheme"] != "none"])
                    if precision == "float32":
                        n = load_weights(model, artifact)
                        want = forward(model, ids)
                        if golden_path:
                            kept.append({"checkpoint": name, "preset": preset,
                                         **{k[2:]: v for k, v in zip(options[::2], options[1::2])},
                                         "ids": ids[:GOLDEN_IDS], **golden(want, ids)})
                    else:
                        assert [load(p) for p in packages(artifact)] and held[0] == held[1], "other codes in mixed"
                    got = bench.logits(artifact, ids)
                    error = np.abs(got - want).max() / np.ptp(want)
                    wrong = int((got.argmax(1) != want.argmax(1))[sure(want)].sum())
                    limit = 2e-4 if precision == "float32" else 0.04 if "3.5" in name else 0.01
                    fine = error <= limit and not wrong
                    bad += not fine
                    cells.append(f"{error:.2g}" + ("" if fine else " **over**"))
                    differ.append(f"{wrong}")
                print(f"| {name}, {preset} | {scheme} | {n} | {' | '.join(cells)} | {' and '.join(differ)} of {sure(want).sum()} |",
                      flush=True)
                if golden_path:
                    write_golden(golden_path, kept)
    print(f"{bad} over the bounds")
    return bad > 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("millet")
    p.add_argument("cases")
    p.add_argument("--only", default="", help="combinations whose \"checkpoint preset scheme\" this expression matches")
    p.add_argument("--golden")
    a = p.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    bench = Bench(a.millet, a.cases)
    return matrix(bench, a.only, a.golden)


if __name__ == "__main__":
    sys.exit(main())
