#!/usr/bin/env python3
"""Writes a checkpoint of a true shape with random weights, to measure conversion and speed; what it says is noise.

    bench/make_checkpoint.py qwen3.5-0.8b OUTDIR        (needs numpy; see SHAPES for the names)

Weights are normal(0, 0.02) in bf16, drawn from a pool of 16 million. The decays of gated DeltaNet are near those of trained models, so that the
recurrence stays finite. The same name gives the same bytes."""
import json, os, struct, sys
import numpy as np

#        family     hidden  mlp  layers heads kv  vocab    more
SHAPES = {
    "qwen3-0.6b": ("qwen3", 1024, 3072, 28, 16, 8, 151936, {"head_dim": 128}),
    "qwen3-1.7b": ("qwen3", 2048, 6144, 28, 16, 8, 151936, {"head_dim": 128}),
    "qwen2.5-0.5b": ("qwen2", 896, 4864, 24, 14, 2, 151936, {}),
    "qwen3.5-0.8b": ("qwen3_5", 1024, 3584, 24, 8, 2, 248320, {"head_dim": 256}),
    "qwen3.5-2b": ("qwen3_5", 2048, 6144, 24, 8, 2, 248320, {"head_dim": 256}),
    "qwen3.5-4b": ("qwen3_5", 2560, 9216, 32, 16, 4, 248320, {"head_dim": 256, "linear_num_value_heads": 32}),
    "qwen3-32m": ("qwen3", 512, 1536, 8, 8, 4, 8192, {"head_dim": 64}),  # no model that exists: one that fits a cache
    "llama-1b": ("llama", 2048, 8192, 16, 32, 8, 128256, {"head_dim": 64}),
}
BF16, F32 = "BF16", "F32"
POOL, BLOCK = 1 << 24, 1 << 22
FULL_EVERY, LINEAR_HEADS, LINEAR_DIM, CONV = 4, 16, 128, 4  # of qwen3_5


def config(family, h, mlp, layers, heads, kv, vocab, more):
    c = {"vocab_size": vocab, "hidden_size": h, "intermediate_size": mlp, "num_hidden_layers": layers,
         "num_attention_heads": heads, "num_key_value_heads": kv, "hidden_act": "silu", "rms_norm_eps": 1e-6,
         "max_position_embeddings": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "eos_token_id": 0, **more}
    if family != "qwen3_5":
        arch = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[family]
        return {"architectures": [arch], "model_type": family, "rope_theta": 1e6, **c}
    c |= {"model_type": "qwen3_5_text", "attn_output_gate": True, "full_attention_interval": FULL_EVERY,
          "linear_conv_kernel_dim": CONV, "linear_key_head_dim": LINEAR_DIM, "linear_value_head_dim": LINEAR_DIM,
          "linear_num_key_heads": LINEAR_HEADS, "linear_num_value_heads": more.get("linear_num_value_heads", LINEAR_HEADS), "mamba_ssm_dtype": "float32",
          "layer_types": ["full_attention" if (i + 1) % FULL_EVERY == 0 else "linear_attention" for i in range(layers)],
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                              "mrope_section": [11, 11, 10], "mrope_interleaved": True}}
    return {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": c,
            "tie_word_embeddings": True}


def tensors(family, h, mlp, layers, heads, kv, vocab, more):
    """Yields (name, dtype, shape, kind); kind chooses the distribution."""
    d, hybrid = more.get("head_dim", h // heads), family == "qwen3_5"
    p = "model.language_model." if hybrid else "model."
    norm = "offset" if hybrid else "one"
    yield p + "embed_tokens.weight", BF16, [vocab, h], "normal"
    yield p + "norm.weight", BF16, [h], norm
    for i in range(layers):
        l = f"{p}layers.{i}."
        yield l + "input_layernorm.weight", BF16, [h], norm
        yield l + "post_attention_layernorm.weight", BF16, [h], norm
        for name, shape in (("gate", [mlp, h]), ("up", [mlp, h]), ("down", [h, mlp])):
            yield f"{l}mlp.{name}_proj.weight", BF16, shape, "normal"
        if hybrid and (i + 1) % FULL_EVERY:
            a, n = l + "linear_attn.", more.get("linear_num_value_heads", LINEAR_HEADS)
            k, v = LINEAR_HEADS * LINEAR_DIM, n * LINEAR_DIM
            yield a + "in_proj_qkv.weight", BF16, [2 * k + v, h], "normal"
            yield a + "in_proj_z.weight", BF16, [v, h], "normal"
            yield a + "in_proj_a.weight", BF16, [n, h], "normal"
            yield a + "in_proj_b.weight", BF16, [n, h], "normal"
            yield a + "conv1d.weight", BF16, [2 * k + v, 1, CONV], "normal"
            yield a + "A_log", F32, [n], "decay"
            yield a + "dt_bias", BF16, [n], "dt"
            yield a + "norm.weight", F32, [LINEAR_DIM], "one"
            yield a + "out_proj.weight", BF16, [h, v], "normal"
            continue
        a = l + "self_attn."
        yield a + "q_proj.weight", BF16, [heads * d * (2 if hybrid else 1), h], "normal"
        for name in "kv":
            yield f"{a}{name}_proj.weight", BF16, [kv * d, h], "normal"
        yield a + "o_proj.weight", BF16, [h, heads * d], "normal"
        if family == "qwen2":
            for name, rows in (("q", heads), ("k", kv), ("v", kv)):
                yield f"{a}{name}_proj.bias", BF16, [rows * d], "normal"
        if family in ("qwen3", "qwen3_5"):
            for name in "qk":
                yield f"{a}{name}_norm.weight", BF16, [d], norm


def values(rng, n, kind):
    if kind == "one":
        return np.ones(n, np.float32)
    if kind == "decay":
        return rng.uniform(0.1, 2.5, n).astype(np.float32)
    if kind == "dt":
        return rng.uniform(-4, 0, n).astype(np.float32)
    return rng.standard_normal(n, np.float32) * np.float32(0.02)


def to_bf16(v):
    return (v.view(np.uint32) >> 16).astype(np.uint16)


def main():
    name, out = sys.argv[1:3]
    shape = SHAPES[name]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config(*shape), f, indent=2)
    head, at, parameters = {"__metadata__": {"format": "pt"}}, 0, 0
    todo = list(tensors(*shape))
    for tensor, dtype, dims, _ in todo:
        n = int(np.prod(dims))
        parameters += n
        head[tensor] = {"dtype": dtype, "shape": dims, "data_offsets": [at, at := at + n * (4 if dtype == F32 else 2)]}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    pool = to_bf16(values(rng, POOL + BLOCK, "normal"))
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, dtype, dims, kind in todo:
            left = int(np.prod(dims))
            while left:
                n = min(left, BLOCK)
                if dtype == BF16 and kind == "normal":
                    first = rng.integers(POOL)
                    f.write(pool[first : first + n].data)
                else:
                    v = values(rng, n, kind)
                    f.write(v.tobytes() if dtype == F32 else to_bf16(v).tobytes())
                left -= n
    print(f"{name}: {parameters / 1e6:.1f} million parameters, {at / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
