"""A Hugging Face checkpoint as a GGUF file, by the gguf package's writer: names, order and form of tensors as converters
to GGUF document them.   Usage: checkpoint_to_gguf.py CHECKPOINT OUT.gguf [F32 | F16 | BF16 | Q8_0 | Q4_0 ...]"""
import json
import math
import os
import re
import sys

import gguf
import numpy as np

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_5": "qwen35", "qwen3_5_text": "qwen35"}
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "linear_attn.in_proj_qkv": "attn_qkv",
         "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta",
         "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
         "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a"}
OUTER = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}


def paired(x, heads):
    """Rows j and j + half of a head side by side."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def tiled(x, keys, each, axis=0):
    """Value heads of all key heads' first one, then of all their second one ..."""
    shape = x.shape
    x = x.reshape(*shape[:axis], keys, each, -1, *shape[axis + 1:])
    return x.swapaxes(axis, axis + 1).reshape(shape)


def transform(name, x, c):
    """One tensor below its layer, as GGUF has it."""
    arch = ARCHITECTURES[c["model_type"]]
    if arch == "llama" and re.match(r"self_attn\.[qk]_proj\.", name):
        return paired(x, c["num_attention_heads"] if ".q_" in name else c.get("num_key_value_heads", c["num_attention_heads"]))
    if arch != "qwen35":
        return x
    if name.endswith("norm.weight") and not name.startswith("linear_attn."):
        return x + np.float32(1)
    if not name.startswith("linear_attn."):
        return x
    keys, values, each = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_num_value_heads"] // c["linear_num_key_heads"]
    front = 2 * keys * c["linear_key_head_dim"]
    if name.endswith("A_log"):
        x = -np.exp(x)
    if "conv1d" in name:
        x = x.squeeze(1)
    if re.search(r"in_proj_qkv|conv1d", name):
        return np.concatenate([x[:front], tiled(x[front:], keys, each)])
    if re.search(r"in_proj_[zab]|A_log|dt_bias", name):
        return tiled(x, keys, each)
    return tiled(x, keys, each, 1) if "out_proj" in name else x


def gguf_name(name, c):
    """None: it has no place in a GGUF file."""
    if name == "lm_head.weight":
        return None if c.get("tie_word_embeddings") else "output.weight"
    below = re.sub(r"^model\.(language_model\.)?", "", name)
    layer = re.match(r"layers\.(\d+)\.(.*?)(\.weight|\.bias)?$", below)
    if not layer:
        return OUTER.get(below)
    inner = NAMES[layer[2]]
    if inner == "ffn_norm" and ARCHITECTURES[c["model_type"]] == "qwen35":
        inner = "post_attention_norm"
    return f"blk.{layer[1]}.{inner}{layer[3] or ''}"


def rope_divisors(c):
    r = c.get("rope_scaling") or c.get("rope_parameters") or {}
    if r.get("rope_type") != "llama3":
        return None
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    theta = c.get("rope_theta") or r["rope_theta"]
    out = []
    for j in range(0, dim, 2):
        turns = r["original_max_position_embeddings"] * theta ** (-j / dim) / (2 * math.pi)
        s = (turns - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
        out.append(1 / ((1 - min(max(s, 0), 1)) / r["factor"] + min(max(s, 0), 1)))
    return np.array(out, np.float32)


def write_metadata(w, c, tokenizer, pre):
    rope = c.get("rope_parameters") or {}
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_block_count(c["num_hidden_layers"]), w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"]), w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"]), w.add_head_count_kv(c["num_key_value_heads"])
    w.add_rope_freq_base(rope.get("rope_theta") or c.get("rope_theta", 10000.0))
    w.add_layer_norm_rms_eps(c.get("rms_norm_eps", 1e-6))
    if c.get("head_dim"):
        w.add_key_length(head), w.add_value_length(head)
    if ARCHITECTURES[c["model_type"]] == "qwen35":
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"]), w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"]), w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_value_head_dim"] * c["linear_num_value_heads"])
        w.add_rope_dimension_count(int(head * rope.get("partial_rotary_factor", 0.25)))
        if "layer_types" in c:
            w.add_array("qwen35.attention.recurrent_layers", [t == "linear_attention" for t in c["layer_types"]])
        else:
            w.add_uint32("qwen35.full_attention_interval", c.get("full_attention_interval", 4))
    elif ARCHITECTURES[c["model_type"]] == "llama":
        w.add_rope_dimension_count(head)
    if tokenizer:
        write_tokenizer(w, c, *tokenizer, pre)


# Merges across what pre-tokenizers cut: digits, signs and line ends, letters of either case, letters and marks.
TELLING = [("1", "2"), ("12", "3"), ("3", "4"), ("4", "5"), ("123", "45"), ("!", "Ċ"), ("/", "Ċ"), ("o", "B"), ("x", "Ì"), ("'", "L"),
           ("'L", "L"), ("Ġ", "1"), ("Ġ", "Ċ"), ("Ċ", "ĉ"), ("Ċ", "Ċ"), ("E", "'")]


def telling(tokenizer):
    """The tokenizer with those in place of its last merges, which nothing is built upon."""
    vocab, merges = dict(tokenizer["model"]["vocab"]), [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in tokenizer["model"]["merges"]]
    new = [m for m in TELLING if "".join(m) not in vocab]
    for old, m in zip(merges[-len(new):], new):
        vocab["".join(m)] = vocab.pop("".join(old))
    merges = merges[:-len(new)] + new
    return {**tokenizer, "model": {**tokenizer["model"], "vocab": vocab, "merges": [" ".join(m) for m in merges]}}


def write_tokenizer(w, c, tokenizer, config, pre):
    if pre:
        tokenizer = telling(tokenizer)
    added = {t["id"]: t for t in tokenizer["added_tokens"]}
    texts = {**{i: t for t, i in tokenizer["model"]["vocab"].items()}, **{i: t["content"] for i, t in added.items()}}
    tokens = [texts.get(i, f"[PAD{i}]") for i in range(c["vocab_size"])]
    types = [(gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED) if i in added
             else gguf.TokenType.NORMAL if i in texts else gguf.TokenType.UNUSED for i in range(c["vocab_size"])]
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre(pre or "qwen35")
    w.add_token_list(tokens), w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    for name, add in (("eos_token", w.add_eos_token_id), ("pad_token", w.add_pad_token_id)):
        t = config.get(name)
        add(tokens.index(t["content"] if isinstance(t, dict) else t)) if t else None
    if config.get("chat_template"):
        w.add_chat_template(config["chat_template"])


def read_json(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def write(checkpoint, tensors, out, kind="BF16", parts=0, pre=None):
    """tensors: name -> array of the checkpoint. Matrices become `kind` where their rows are whole blocks; else, and all
    else, F32. parts: tensors a file, 0: all in one. pre: name of the pre-tokenizer, with merges that tell it from others. Returns GGUF name -> values that the file holds, in fp32."""
    c = read_json(checkpoint, "config.json")
    c = c.get("text_config") or c
    tokenizer = read_json(checkpoint, "tokenizer.json")
    config = read_json(checkpoint, "tokenizer_config.json") or {}
    w = gguf.GGUFWriter(out, ARCHITECTURES[c["model_type"]], split_max_tensors=parts)
    write_metadata(w, c, tokenizer and (tokenizer, config), pre)
    held = {}
    for name, x in sorted(tensors.items()):
        to = gguf_name(name, c) if not name.startswith("mtp.") else None
        if not to:
            continue
        x = np.ascontiguousarray(transform(re.sub(r"^.*layers\.\d+\.", "", re.sub(r"^model\.(language_model\.)?norm", "norm", name)),
                                           x.astype(np.float32), c))
        t = gguf.GGMLQuantizationType[kind]
        if x.ndim != 2 or "conv1d" in to or x.shape[1] % gguf.GGML_QUANT_SIZES[t][0]:
            t = gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(x, t)
        w.add_tensor(to, data, raw_dtype=t)
        held[to] = gguf.quants.dequantize(data, t).reshape(x.shape)
    divisors = rope_divisors(c)
    if divisors is not None:
        w.add_tensor("rope_freqs.weight", divisors)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    return held


if __name__ == "__main__":
    import test_converted

    write(sys.argv[1], test_converted.tensors(sys.argv[1]), *sys.argv[2:])
