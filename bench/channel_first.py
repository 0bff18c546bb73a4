#!/usr/bin/env python3
"""Writes the weights of one of our own packages (family qwen3, preset chunks, a palette for all matrices) once more, as converters for
the Neural Engine write them: channels first, 1x1 convolutions, RMS norms as layer_norm over (x, -x), masks as inputs, one state
for all keys and values, functions infer and prefill, embeddings and a head in 16 parts as packages of their own.

    bench/channel_first.py ARTIFACT OUT [--group 8] [--chunks 2] [--batch 64] [--layers N]      (needs coremltools)

Tables are repeated for every --group rows of a matrix, so both packages hold the same weights. --layers N: the first N only."""
import argparse, glob, os, warnings
import numpy as np

warnings.filterwarnings("ignore")
import coremltools as ct  # noqa: E402
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.converter import mil_convert  # noqa: E402
from coremltools.converters.mil.mil import Function, Program, get_new_symbol, types  # noqa: E402
from coremltools.libmilstoragepython import _BlobStorageReader as Blobs  # noqa: E402

PREFIX, SPLITS, STATE = "qwen", 16, "model_model_kv_cache_0"
F16, I32 = types.fp16, types.int32


# ---- our package ----

class Ours:
    """Palettes and vectors of the function decode, by name."""

    def __init__(self, artifact):
        package = glob.glob(os.path.join(artifact, "*.mlpackage"))[0]
        spec = ct.utils.load_spec(package)
        self.blobs = Blobs(os.path.join(package, "Data/com.apple.CoreML/weights/weight.bin"))
        f = spec.mlProgram.functions["decode"]
        self.ops = next(iter(f.block_specializations.values())).operations
        self.made = {o.name: op for op in self.ops for o in op.outputs}
        info = dict(spec.description.metadata.userDefined)
        self.context, self.vocab = int(info["context_length"]), int(info["vocab_size"])

    def shape(self, name):
        return [d.constant.size for d in self.made[name].outputs[0].type.tensorType.dimensions]

    def vector(self, name):
        op = self.made[name]
        offset = op.attributes["val"].blobFileValue.offset
        wide = op.outputs[0].type.tensorType.dataType == ct.proto.MIL_pb2.DataType.FLOAT32
        return np.array(self.blobs.read_float_data(offset)) if wide else np.array(self.blobs.read_fp16_data(offset)).view(np.float16)

    def palette(self, name):
        """Codes [rows, columns] and tables [groups of rows, 64]."""
        op, shape = self.made[name], self.shape(name)
        codes, table = (op.inputs[k].arguments[0].value if op.inputs[k].arguments[0].HasField("value") else
                        self.made[op.inputs[k].arguments[0].name].attributes["val"] for k in ("indices", "lut"))
        codes = np.array(self.blobs.read_uint6_data(codes.blobFileValue.offset), np.uint8).reshape(shape)
        table = np.array(self.blobs.read_fp16_data(table.blobFileValue.offset)).view(np.float16).reshape(-1, 64)
        return codes, table

    def tall(self, prefix):
        """A matrix in parts, put together with a table for every 8 rows."""
        parts = [self.palette(n) for n in self.made if n.startswith(prefix)]
        return (np.concatenate([c for c, _ in parts]),
                np.concatenate([np.repeat(t, len(c) // len(t) // 8, 0) for c, t in parts]))


def embedding(artifact):
    raw = np.fromfile(glob.glob(os.path.join(artifact, "*_embed_tokens.int8.bin"))[0], np.uint8)
    rows, width = raw[16:32].view(np.uint64)
    rows = raw[64:].reshape(int(rows), int(width) + 2)
    return (rows[:, :-2].view(np.int8) * rows[:, -2:].copy().view(np.float16).astype(np.float32)).astype(np.float16)


# ---- graphs ----

class Graph:
    def __init__(self, ours, group):
        self.ours, self.group, self.serial = ours, group, 0

    def name(self, stem):
        self.serial += 1
        return f"{stem}_{self.serial}"

    def shared(self, stem, value):
        """A constant that functions share in the weight file."""
        v = mb.const(val=value, name=self.name(stem))
        v.op.weight_id = stem
        return v

    def weight(self, stem, codes, table, rank=4):
        rows, ones = codes.shape[0], (1,) * (rank - 2)
        repeat = rows // len(table) // self.group if rows // len(table) > self.group else 1
        table = np.repeat(table, repeat, 0)
        return mb.constexpr_lut_to_dense(
            indices=self.shared(stem + "_codes", codes.reshape(codes.shape + ones).astype(types.np_uint6_dtype)),
            lut=self.shared(stem + "_table", table.reshape(len(table), 1, *ones, 64, 1)), name=self.name(stem))

    def norm(self, x, name):
        n, rank = x.shape[-1], len(x.shape)
        both = mb.concat(values=[x, mb.mul(x=x, y=np.float16(-1))], axis=-1)
        unit = mb.layer_norm(x=both, axes=[-1], epsilon=np.float16(1e-6))
        half = mb.slice_by_index(x=unit, begin=[0] * rank, end=list(x.shape), end_mask=[True] * (rank - 1) + [False])
        return mb.mul(x=half, y=self.shared(name, self.ours.vector(name).astype(np.float16)))

    def rotate(self, x, cos, sin):
        n, lead = x.shape[-1], list(x.shape[:-1])
        mask = [True] * len(lead)
        low = mb.slice_by_index(x=x, begin=[0] * len(x.shape), end=lead + [n // 2], end_mask=mask + [False])
        high = mb.slice_by_index(x=x, begin=[0] * len(lead) + [n // 2], end=lead + [n], end_mask=mask + [True])
        turned = mb.concat(values=[mb.mul(x=high, y=np.float16(-1)), low], axis=-1)
        return mb.add(x=mb.mul(x=x, y=cos), y=mb.mul(x=turned, y=sin))

    def project(self, x, layer, name, rank=4):
        stem = f"layer_{layer}_{name}_proj_weight"
        return mb.conv(x=x, weight=self.weight(stem, *self.ours.palette(stem), rank))

    def tables(self, position, tokens, depth, context):
        at = np.arange(context)[:, None] * (1e6 ** (-np.arange(0, depth, 2) / depth))
        at = np.concatenate([at, at], 1)
        out = []
        for name, f in (("cos", np.cos), ("sin", np.sin)):
            rows = mb.gather(x=self.shared("rope_" + name, f(at)[None].astype(np.float16)), indices=position, axis=1, batch_dims=0,
                             validate_indices=False)
            out.append(mb.reshape(x=rows, shape=[1, 1, 1, depth] if tokens == 1 else [1, tokens, 1, depth]))
        return out if tokens == 1 else [mb.transpose(x=t, perm=[0, 2, 1, 3]) for t in out]

    def heads(self, x, count, depth, tokens):
        if tokens == 1:
            return mb.reshape(x=x, shape=[1, count, 1, depth])
        return mb.transpose(x=mb.reshape(x=x, shape=[1, count, depth, tokens]), perm=[0, 1, 3, 2])

    def put(self, state, row, slot, position, end):
        old = mb.read_state(input=state)
        fixed = lambda v: np.array([v], np.int32)  # noqa: E731
        begin = mb.concat(values=[fixed(slot), fixed(0), position, fixed(0)], axis=0)
        behind = mb.concat(values=[fixed(slot + 1), fixed(0), end, fixed(0)], axis=0)
        new = mb.slice_update(x=old, update=row, begin=begin, end=behind, stride=[1, 1, 1, 1], begin_mask=[False] * 4,
                              end_mask=[False, True, False, True], squeeze_mask=[False] * 4)
        mb.coreml_update_state(state=state, value=new)

    def cache(self, state, slot, repeats):
        _, kv, context, depth = state.shape if hasattr(state, "shape") and state.shape else self.cache_shape
        all_ = mb.slice_by_index(x=mb.read_state(input=state), begin=[slot, 0, 0, 0], end=[slot + 1, kv, context, depth],
                                 end_mask=[False, True, True, True])
        one = mb.expand_dims(x=mb.squeeze(x=all_, axes=[0]), axes=[1])
        return mb.reshape(x=mb.tile(x=one, reps=[1, repeats, 1, 1]), shape=[1, -1, context, depth])

    def layer(self, x, i, layers, tokens, position, end, mask, state, tables):
        kv, depth = self.cache_shape[1], self.cache_shape[3]
        p = f"layer_{i}_"
        q_heads = self.ours.shape(p + "self_attn_q_proj_weight")[0] // depth
        first = lambda v: mb.expand_dims(x=mb.transpose(x=v, perm=[0, 2, 1]), axes=[2])  # noqa: E731
        rows = lambda v: mb.transpose(x=mb.squeeze(x=v, axes=[2]), perm=[0, 2, 1])  # noqa: E731
        h = first(self.norm(x, p + "input_layernorm_weight"))
        q, k, v = (self.heads(self.project(h, i, "self_attn_" + n), c, depth, tokens)
                   for n, c in (("q", q_heads), ("k", kv), ("v", kv)))
        q = self.rotate(self.norm(q, p + "self_attn_q_norm_weight"), *tables)
        k = self.rotate(self.norm(k, p + "self_attn_k_norm_weight"), *tables)
        self.put(state, k, i, position, end)
        self.put(state, v, layers + i, position, end)
        keys, values = self.cache(state, i, q_heads // kv), self.cache(state, layers + i, q_heads // kv)
        scores = mb.mul(x=mb.matmul(x=q, y=keys, transpose_y=True), y=np.float16(depth ** -0.5))
        y = mb.matmul(x=mb.softmax(x=mb.add(x=scores, y=mask), axis=-1), y=values)
        y = mb.reshape(x=mb.transpose(x=y, perm=[0, 2, 1, 3]), shape=[1, tokens, q_heads * depth])
        y = self.project(mb.transpose(x=y, perm=[0, 2, 1]), i, "self_attn_o", 3)
        x = mb.add(x=x, y=mb.transpose(x=y, perm=[0, 2, 1]))
        h = first(self.norm(x, p + "post_attention_layernorm_weight"))
        up = mb.mul(x=mb.silu(x=self.project(h, i, "mlp_gate")), y=self.project(h, i, "mlp_up"))
        return mb.add(x=x, y=rows(self.project(up, i, "mlp_down")))


# ---- packages ----

def array(name, shape, kind):
    """shape: sizes, or a list of all shapes that are allowed."""
    f = ct.proto.Model_pb2.FeatureDescription(name=name)
    if isinstance(shape, list):
        for s in shape:
            f.type.multiArrayType.enumeratedShapes.shapes.add(shape=s)
        shape = shape[0]
    f.type.multiArrayType.shape.extend(shape)
    f.type.multiArrayType.dataType = {F16: 65552, I32: 131104}[kind]
    return f


def save(path, functions):
    """functions: {name: (Function, inputs {name: (shape, kind)}, outputs {name: shape}, state shape or None)}"""
    program, description = Program(), ct.proto.Model_pb2.ModelDescription()
    for name, (f, inputs, outputs, state) in functions.items():
        program.add_function(name, f)
        d = ct.proto.Model_pb2.FunctionDescription(name=name)
        d.input.extend(array(n, *t) for n, t in inputs.items())
        d.output.extend(array(n, s, F16) for n, s in outputs.items())
        if state:
            s = d.state.add(name=STATE)
            s.type.stateType.arrayType.shape.extend(state)
            s.type.stateType.arrayType.dataType = 65552
        description.functions.append(d)
    description.defaultFunctionName = program.default_function_name = next(iter(functions))
    program.skip_all_passes = program.export_as_multifunction = True
    mil_convert(program, convert_to="mlprogram", convert_from="milinternal", specification_version=9,
                compute_units=ct.ComputeUnit.CPU_ONLY, model_description=description, skip_model_load=True).save(path)


def function(inputs, state, body):
    holes = {n: mb.placeholder(shape=s, dtype=k) for n, (s, k) in inputs.items()}
    if state:
        holes[STATE] = mb.state_tensor_placeholder(shape=state, dtype=F16)
    with Function(holes, opset_version=ct.target.iOS18) as f:
        f.set_outputs(body(f.inputs))
    return f


def chunk(g, first, last, layers, tokens, hidden, context):
    inputs = {"hidden_states": ((1, tokens, hidden), F16), "position_ids": ((tokens,), I32),
              "causal_mask": ((1, 1, tokens, context), F16), "current_pos": ((1,), I32)}

    def body(i):
        x, end = i["hidden_states"], mb.add(x=i["current_pos"], y=np.array([tokens], np.int32))
        tables = g.tables(i["current_pos"] if tokens == 1 else i["position_ids"], tokens, g.cache_shape[3], context)
        for n in range(first, last):
            x = g.layer(x, n, layers, tokens, i["current_pos"], end, i["causal_mask"], i[STATE], tables)
        if last == layers and tokens == 1:
            x = g.norm(x, "norm_weight")
        if last == layers and tokens > 1: # of a prompt only the states matter
            x = mb.slice_by_index(x=x, begin=[0, 0, 0], end=[1, 1, hidden], end_mask=[True, False, True])
        return [mb.identity(x=x, name="output_hidden_states")]

    out = {"output_hidden_states": (1, 1 if last == layers else tokens, hidden)}
    return function(inputs, g.cache_shape, body), inputs, out, g.cache_shape


def head(g, hidden):
    inputs = {"hidden_states": ((1, 1, hidden), F16)}
    codes, table = g.ours.tall("lm_head_weight")
    rows = np.array_split(np.arange(len(codes) // 8), SPLITS)

    def body(i):
        x, out = mb.expand_dims(x=mb.transpose(x=i["hidden_states"], perm=[0, 2, 1]), axes=[2]), []
        for n, r in enumerate(rows):
            w = g.weight(f"head_{n}", codes[8 * r[0]:8 * r[-1] + 8], table[r])
            y = mb.squeeze(x=mb.conv(x=x, weight=w), axes=[2])
            out.append(mb.transpose(x=y, perm=[0, 2, 1], name=f"logits{n + 1}"))
        return out

    return function(inputs, None, body), inputs, {f"logits{n + 1}": (1, 1, 8 * len(r)) for n, r in enumerate(rows)}, None, [8 * len(r) for r in rows]


def embed(g, table, sizes):
    """For any of these numbers of tokens."""
    inputs = {"input_ids": ((1, get_new_symbol()), I32)}

    def body(i):
        x = i["input_ids"]
        at = mb.select(cond=mb.greater_equal(x=x, y=np.int32(0)), a=x, b=mb.add(x=x, y=np.int32(len(table))))
        return [mb.gather(x=g.shared("embed", table), indices=at, axis=0, batch_dims=0, validate_indices=False, name="hidden_states")]

    return function(inputs, None, body), {"input_ids": ([(1, n) for n in sizes], I32)}, {"hidden_states": ()}, None


META = """model_info:
  name: {prefix}-channel-first
  version: 0.3.5
  architecture: qwen3
  parameters:
    context_length: {context}
    batch_size: {batch}
    lut_embeddings: none
    lut_ffn: 6
    lut_lmhead: 6
    num_chunks: {chunks}
    model_prefix: {prefix}
    embeddings: {prefix}_embeddings.mlmodelc
    lm_head: {prefix}_lm_head_lut6.mlmodelc
    ffn: {prefix}_FFN_PF_lut6_chunk_01of{chunks:02}.mlmodelc
    split_lm_head: {splits}
    vocab_size: {vocab}
    lm_head_chunk_sizes: {sizes}
    prefill_dynamic_slice: true
"""


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("artifact"), a.add_argument("out")
    for name, default in (("group", 8), ("chunks", 2), ("batch", 64), ("layers", 0)):
        a.add_argument("--" + name, type=int, default=default)
    o = a.parse_args()
    ours = Ours(o.artifact)
    layers = o.layers or sum(n.endswith("_mlp_up_proj_weight") for n in ours.made)
    hidden = ours.shape("layer_0_self_attn_q_proj_weight")[1]
    depth = ours.vector("layer_0_self_attn_q_norm_weight").size
    shape = (2 * layers, ours.shape("layer_0_self_attn_k_proj_weight")[0] // depth, ours.context, depth)
    os.makedirs(o.out, exist_ok=True)
    cuts = np.linspace(0, layers, o.chunks + 1).astype(int)

    def graph():
        g = Graph(ours, o.group)
        g.cache_shape = shape
        return g

    for n in range(o.chunks):
        g = graph()
        save(os.path.join(o.out, f"{PREFIX}_FFN_PF_lut6_chunk_{n + 1:02}of{o.chunks:02}.mlpackage"),
             {name: chunk(g, cuts[n], cuts[n + 1], layers, tokens, hidden, ours.context)
              for name, tokens in (("infer", 1), ("prefill", o.batch))})
    *f, sizes = head(graph(), hidden)
    save(os.path.join(o.out, f"{PREFIX}_lm_head_lut6.mlpackage"), {"main": f})
    g = graph()
    save(os.path.join(o.out, f"{PREFIX}_embeddings.mlpackage"), {"main": embed(g, embedding(o.artifact), (1, o.batch))})
    with open(os.path.join(o.out, "meta.yaml"), "w") as f:
        f.write(META.format(prefix=PREFIX, context=ours.context, batch=o.batch, chunks=o.chunks, splits=SPLITS, vocab=ours.vocab,
                            sizes=sizes))


if __name__ == "__main__":
    main()
