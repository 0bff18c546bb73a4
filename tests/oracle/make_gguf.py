#!/usr/bin/env python3
"""Writes tests/data/gguf with the gguf package (0.19.0 made the files in the tree):

    types.gguf          a tensor [2, 512] of every type that millet reads, named after it; random blocks whose scales are
                        ordinary numbers, and metadata of every kind
    types.safetensors   what gguf.quants.dequantize() makes of them, fp32

and tests/fuzz/corpus/gguf: models of one or two layers with few tensors, of each architecture."""
import os, struct, sys
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize
from safetensors.numpy import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "gguf")
ROWS, COLS = 2, 512
# Places of fp16 numbers in a block: all bits of the others are random.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def blocks(name, rng):
    size, width = gguf.GGML_QUANT_SIZES[T[name]]
    b = rng.integers(0, 256, (ROWS * COLS // size, width), dtype=np.uint8)
    for at in HALVES[name]:
        scale = (rng.standard_normal(len(b)) * 10.0 ** rng.integers(-6, 2, len(b))).astype(np.float16)
        b[:, at:at + 2] = scale[:, None].view(np.uint8)
    return b.reshape(ROWS, -1)


def byte_tokens():
    """The 256 byte tokens as byte-level BPE spells them."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(rest)) for b in range(256)]


def seed(name, arch, pre, tensors, more):
    w = gguf.GGUFWriter(os.path.join(HERE, "..", "..", "fuzz", "corpus", "gguf", name), arch)
    w.add_block_count(1), w.add_context_length(64), w.add_embedding_length(32), w.add_feed_forward_length(64)
    w.add_head_count(2), w.add_head_count_kv(1), w.add_layer_norm_rms_eps(1e-6), w.add_rope_freq_base(1e4)
    for key, value in more.items():
        w.add_uint32(f"{arch}.{key}", value)
    tokens = byte_tokens() + ["he", "<s>", "</s>", "[PAD259]"]
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre(pre), w.add_token_list(tokens)
    w.add_token_types([1] * 257 + [3, 3, 5]), w.add_token_merges(["h e"]), w.add_chat_template("{{ messages }}")
    w.add_bos_token_id(257), w.add_eos_token_id(258), w.add_add_bos_token(True)
    rng = np.random.default_rng(2)
    for name, shape, kind in tensors:
        t = T[kind]
        w.add_tensor(name, gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32), t), raw_dtype=t)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def seeds():
    os.makedirs(os.path.join(HERE, "..", "..", "fuzz", "corpus", "gguf"), exist_ok=True)
    table = [("token_embd.weight", (8, 32), "Q8_0"), ("output_norm.weight", (32,), "F32")]
    seed("pairs.gguf", "llama", "llama-bpe", table + [("blk.0.attn_q.weight", (32, 32), "Q4_0"), ("blk.0.attn_k.weight", (16, 32), "F16"),
                                                     ("blk.0.attn_q.bias", (32,), "F32"), ("rope_freqs.weight", (8,), "F32"),
                                                     ("blk.0.ffn_up.weight", (64, 32), "Q5_1")], {})
    seed("biases.gguf", "qwen2", "qwen2", table + [("output.weight", (8, 32), "Q4_1"), ("blk.0.attn_q.weight", (32, 32), "Q5_0")], {})
    seed("plain.gguf", "qwen3", "smollm", table + [("blk.0.attn_q_norm.weight", (16,), "F32")], {"attention.key_length": 16, "attention.value_length": 16})
    linear = {"ssm.conv_kernel": 4, "ssm.state_size": 4, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128,
              "nextn_predict_layers": 0, "rope.dimension_count": 4}
    seed("tiled.gguf", "qwen35", "qwen35", table + [
        ("blk.0.attn_qkv.weight", (144, 32), "Q8_0"), ("blk.0.ssm_conv1d.weight", (144, 4), "F32"), ("blk.0.ssm_a", (4,), "F32"),
        ("blk.0.ssm_dt.bias", (4,), "F32"), ("blk.0.ssm_out.weight", (32, 128), "Q8_0"), ("blk.0.ssm_alpha.weight", (4, 32), "BF16")], linear)


def main():
    seeds()
    os.makedirs(HERE, exist_ok=True)
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(os.path.join(HERE, "types.gguf"), "none")
    w.add_uint8("k.u8", 200), w.add_int8("k.i8", -100), w.add_uint16("k.u16", 60000), w.add_int16("k.i16", -30000)
    w.add_uint32("k.u32", 4000000000), w.add_int32("k.i32", -2000000000), w.add_float32("k.f32", 0.1)
    w.add_bool("k.bool", True), w.add_string("k.string", "größe"), w.add_uint64("k.u64", 1 << 40)
    w.add_int64("k.i64", -(1 << 40)), w.add_float64("k.f64", 0.1)
    w.add_array("k.strings", ["a", "", "ä\n"]), w.add_array("k.numbers", [1, -2, 3]), w.add_array("k.bools", [True, False])
    want = {}
    plain = rng.standard_normal((ROWS, COLS)).astype(np.float32)
    for name in ["F32", "F16", "BF16", *HALVES]:
        t = T[name]
        data = blocks(name, rng) if name in HALVES else gguf.quants.quantize(plain, t)
        w.add_tensor(name, data, raw_dtype=t)
        want[name] = np.ascontiguousarray(dequantize(data, t).reshape(ROWS, COLS), dtype=np.float32)
    w.add_tensor("vector", np.arange(5, dtype=np.float32))
    want["vector"] = np.arange(5, dtype=np.float32)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    save_file(want, os.path.join(HERE, "types.safetensors"))


if __name__ == "__main__":
    sys.exit(main())
