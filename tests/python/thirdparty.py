"""Drivers of other people's packages, each as its README in the shared cases says, in coremltools' call forms: what a user's
own script would do. feed(ids) runs tokens behind those that were fed before and returns the logits that follow the last."""
import json, re
import numpy as np

import millet as ct


def visible(rows, context, first):
    """Causal mask [1,1,rows,context]: row i sees positions up to first + i."""
    return np.where(np.arange(context) <= first + np.arange(rows)[:, None], 0, -np.inf).astype(np.float16)[None, None]


class Driver:
    def __init__(self, path, precision):
        self.path, self.precision, self.position = path, precision, 0

    def open(self, name, function=None):
        return ct.models.MLModel(str(self.path / name), function_name=function, precision=self.precision)

    def feed(self, ids):
        for token in ids:
            logits = self.step(token)
            self.position += 1
        return logits


class Anemll(Driver):
    """Embeddings, chunks with infer and prefill, a split head; one state over all chunks, or one a chunk."""

    def __init__(self, path, precision):
        super().__init__(path, precision)
        meta = dict(re.findall(r"^    (\w+): (\S+)$", (path / "meta.yaml").read_text(), re.M))
        self.context, self.batch = int(meta["context_length"]), int(meta["batch_size"])
        chunks = sorted(p.name for p in path.glob("*_FFN_PF_*.mlpackage"))
        assert len(chunks) == int(meta["num_chunks"])
        self.recurrent = meta.get("infer_only") == "true"
        self.embed, self.head = (self.open(meta[k].replace(".mlmodelc", ".mlpackage")) for k in ("embeddings", "lm_head"))
        self.infer = [self.open(c, None if self.recurrent else "infer") for c in chunks]
        self.prefill = [] if self.recurrent else [self.open(c, "prefill") for c in chunks]
        per_chunk = meta.get("per_chunk_state") == "true"
        self.states = [m.make_state() for m in self.infer] if per_chunk else [self.infer[0].make_state()] * len(chunks)

    def through(self, models, ids):
        x = self.embed.predict({"input_ids": np.array([ids], np.int32)})["hidden_states"]
        call = {"position_ids": np.arange(self.position, self.position + len(ids), dtype=np.int32),
                "causal_mask": visible(len(ids), self.context, self.position),
                "current_pos": np.array([self.position], np.int32)}
        if self.recurrent:
            call["update_mask"] = (np.arange(self.context) == self.position).astype(np.float16).reshape(1, 1, -1, 1)
        for model, state in zip(models, self.states):
            x = model.predict({"hidden_states": x.astype(np.float16), **call}, state)["output_hidden_states"]
        return x

    def step(self, token):
        x = self.through(self.infer, [token])
        out = self.head.predict({"hidden_states": x.astype(np.float16)})
        return np.concatenate([out[f"logits{i + 1}"] for i in range(len(out))], axis=-1)[0, 0]

    def feed(self, ids):
        while self.prefill and len(ids) > self.batch:
            self.through(self.prefill, ids[: self.batch])
            self.position += self.batch
            ids = ids[self.batch :]
        return super().feed(ids)


class ChannelsFirst(Driver):
    """0seba: eight columns a call, for a prompt and for one token; embeddings in a file, a head with temperature."""

    def __init__(self, path, precision):
        super().__init__(path, precision)
        self.table = np.load(path / "embeddings.npy")
        self.chunks, self.head = [self.open(p.name) for p in sorted(path.glob("chunk_*.mlpackage"))], self.open("lm_head.mlpackage")
        self.states = [m.make_state() for m in self.chunks]

    def feed(self, ids):
        for i in range(0, len(ids), 8):
            part = ids[i : i + 8]
            x = self.table[list(part) + [part[-1]] * (8 - len(part))].T[None, :, None, :]
            for model, state in zip(self.chunks, self.states):
                call = {"hidden_states": x, "position_id": np.array([self.position], np.int32)}
                x = model.predict(call, state=state)["output"].astype(np.float16)
            self.position += len(part)
        out = self.head.predict({"hidden_states": x, "temperature": np.ones((1, 1, 1, 1), np.float16)})
        row = out["logits"][0, :, 0, len(part) - 1]
        parts = (out["chunk_logsumexp_stable"] + out["chunk_max"])[0, :, 0, len(part) - 1]
        assert abs(np.logaddexp.reduce(row.astype(np.float64)) - np.logaddexp.reduce(parts.astype(np.float64))) < 0.05
        return row


class Dynamic(Driver):
    """finnvoor: any number of tokens a call; the mask's width tells how many there were before."""

    def __init__(self, path, precision):
        super().__init__(path, precision)
        [package] = path.glob("*.mlpackage")
        self.model = self.open(package.name)
        self.state = self.model.make_state()

    def feed(self, ids):
        call = {"input_ids": np.array([ids], np.int32),
                "causal_mask": visible(len(ids), self.position + len(ids), self.position)}
        self.position += len(ids)
        return self.model.predict(call, self.state)["logits"][0, -1]


class Monolithic(Driver):
    """john-rocky: a token a call, the best id and its logit out."""

    def __init__(self, path, precision):
        super().__init__(path, precision)
        config = json.loads((path / "model_config.json").read_text())
        self.context, self.vocabulary = config["context_length"], config["vocab_size"]
        self.model = self.open(config["parts"]["model"])
        self.state = self.model.make_state()

    def step(self, token):
        one = (np.arange(self.context) == self.position).astype(np.float16).reshape(1, 1, -1, 1)
        out = self.model.predict({"input_ids": [[token]], "position_ids": [self.position],
                                  "causal_mask": visible(1, self.context, self.position), "update_mask": one}, self.state)
        row = np.full(self.vocabulary, -1e4, np.float32)
        row[out["token_id"].item()] = out["token_logit"].item()
        return row


class StatesByHand(Driver):
    """john-rocky, Qwen3.5: recurrent states as inputs and outputs, keys and values as a state, rotations by the host."""

    def __init__(self, path, precision):
        super().__init__(path, precision)
        meta = json.loads((path / "head_meta.json").read_text())
        self.table = np.fromfile(path / "embed_weight.bin", np.float16).reshape(meta["vocab_size"], meta["hidden_size"])
        self.model = self.open("chunk_a.mlpackage")
        shapes = {i.name: list(i.type.multiArrayType.shape) for i in self.model.get_spec().description.input}
        self.context, self.rotated = shapes["causal_mask"][-1], shapes["cos"][-1]
        config = json.loads((path / "hf" / "config.json").read_text())
        rope = config.get("text_config", config)["rope_parameters"]
        self.frequency = rope["rope_theta"] ** -(np.arange(0, self.rotated, 2) / self.rotated)
        self.carried = {n: np.zeros(s, np.float16) for n, s in shapes.items() if "_state_" in n}
        self.state = self.model.make_state()

    def step(self, token):
        angle = np.tile(self.position * self.frequency, 2)[None, None]
        out = self.model.predict({"hidden_in": self.table[token][None, None], "cos": np.cos(angle), "sin": np.sin(angle),
                                  "causal_mask": visible(1, self.context, self.position),
                                  "current_pos": np.array([self.position], np.int32), **self.carried}, self.state)
        self.carried = {n: out["new_" + n] for n in self.carried}
        return out["logits"][0, 0]


DRIVERS = {
    "0seba-qwen3-fp16-2chunk-seq8": ChannelsFirst,
    "anemll035-llama-lut6-4pertensor-6": Anemll,
    "anemll035-qwen3-lut46-2chunk": Anemll,
    "bhctsntrk-anemll-qwen3.5-lut4-2chunk": Anemll,
    "finnvoor-llama-fp16-dynamic": Dynamic,
    "johnrocky-qwen3-fp16-monolithic": Monolithic,
    "johnrocky-qwen3.5-mlkv-lut4": StatesByHand,
}
