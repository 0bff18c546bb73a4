#!/usr/bin/env python3
"""Generates with the packages of an artifact, as a script on a Mac does it with coremltools: chunks by metadata.json, the
embedding looked up on the host, a prompt in pieces, then a token at a time.

    driver.py ARTIFACT ID,ID,... NEW_TOKENS [TEMPERATURE [SEED]]        prints the new ids as JSON"""
import json
import pathlib
import sys
import time

import coremltools as ct
import numpy as np


class Table:
    """The embedding table: a header of 64 bytes, then rows of fp16, fp32, or int8 with a scale."""

    def __init__(self, path):
        head = path.read_bytes()[:64]
        kind, width = int.from_bytes(head[12:16], "little"), int.from_bytes(head[24:32], "little")
        size = int.from_bytes(head[32:40], "little")
        rows = np.memmap(path, np.uint8, "r", 64).reshape(-1, size)
        self.scale = rows[:, width:].view(np.float16) if kind == 3 else None
        self.rows = rows[:, :width].view(np.int8) if kind == 3 else rows.view(np.float16 if kind == 1 else np.float32)

    def __call__(self, ids):
        x = self.rows[ids].astype(np.float32)
        return (x * self.scale[ids] if self.scale is not None else x)[None]


class Chunk:
    """One package: its functions over one state."""

    def __init__(self, path, function_names):
        unit = ct.ComputeUnit.CPU_AND_NE
        self.functions = {}
        for name in function_names:
            model = ct.models.MLModel(str(path), compute_units=unit, function_name=name if len(function_names) > 1 else None)
            self.functions[name] = model
        self.state = model.make_state()

    def __call__(self, function, hidden, position, count):
        model = self.functions.get(function) or self.functions["main"]  # a package of one function calls it that
        data = {"hidden": hidden.astype(np.float32), "current_pos": np.array([position], dtype=np.int32),
                "valid_length": np.array([count], dtype=np.int32)}
        data = {name: value for name, value in data.items() if name in model.input_description}
        out = model.predict(data, state=self.state)
        return out["logits"] if "logits" in out else out["hidden_out"]


class Model:
    def __init__(self, directory):
        metadata = json.loads((directory / "metadata.json").read_text())
        self.context, self.sizes = metadata["graph"]["context"], sorted(metadata["graph"]["prefill_sizes"])
        self.chunks = [Chunk(directory / p["path"], [f["name"] for f in p["functions"]]) for p in metadata["packages"]]
        self.table = Table(next(directory.glob("*_embed_tokens.*.bin")))
        self.position = 0

    def feed(self, ids):
        """Logits behind the last of some ids."""
        size = next((s for s in self.sizes if s >= len(ids)), 1) if len(ids) > 1 else 1
        function = "decode" if size == 1 else f"prefill_{size}"
        padded = list(ids) + [ids[-1]] * (size - len(ids))
        x = self.table(padded)
        for chunk in self.chunks:
            x = chunk(function, x, self.position, len(ids))
        self.position += len(ids)
        return x.reshape(-1, x.shape[-1])[min(len(ids), x.reshape(-1, x.shape[-1]).shape[0]) - 1]

    def prompt(self, ids):
        step = self.sizes[-1] if self.sizes else 1
        for i in range(0, len(ids), step):
            logits = self.feed(ids[i : i + step])
        return logits


def sample(logits, temperature, random, top_k=40):
    if not temperature:
        return int(np.argmax(logits))
    best = np.argsort(logits)[-top_k:]
    p = np.exp((logits[best] - logits[best].max()) / temperature)
    return int(random.choice(best, p=p / p.sum()))


def main():
    directory, ids, count = pathlib.Path(sys.argv[1]), [int(i) for i in sys.argv[2].split(",")], int(sys.argv[3])
    temperature = float(sys.argv[4]) if len(sys.argv) > 4 else 0
    random = np.random.default_rng(int(sys.argv[5]) if len(sys.argv) > 5 else 0)
    model = Model(directory)
    began = time.time()
    logits, new = model.prompt(ids), []
    while len(new) < count:
        new.append(sample(logits, temperature, random))
        logits = model.feed(new[-1:])
    print(f"{(len(ids) + len(new)) / (time.time() - began):.1f} tokens/s", file=sys.stderr)
    print(json.dumps(new))


if __name__ == "__main__":
    main()
