"""Writes tests/fuzz/corpus/bundle: a small Core AI bundle in the form that fuzz_bundle.c unpacks, and damaged ones.

    make_fuzz_bundle.py MILLET TOKENIZER_DIR OUT    (numpy; a tokenizer of few tokens, as that of a shared case)
"""
import json, pathlib, struct, subprocess, sys, tempfile
import numpy as np

millet, tokenizer, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
H, I, V, HEADS, KEYS, D = 16, 32, 256, 2, 1, 8
NAMES = ["metadata.json", "x.aimodel/metadata.json", "x.aimodel/main.hash", "x.aimodel/main.mlirb", "tokenizer/tokenizer.json",
         "tokenizer/tokenizer_config.json", "tokenizer/generation_config.json"]


def checkpoint(path):
    r = np.random.default_rng(1)
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,), layer + "input_layernorm.weight": (H,),
              layer + "post_attention_layernorm.weight": (H,), layer + "self_attn.q_proj.weight": (HEADS * D, H),
              layer + "self_attn.k_proj.weight": (KEYS * D, H), layer + "self_attn.v_proj.weight": (KEYS * D, H),
              layer + "self_attn.o_proj.weight": (H, HEADS * D), layer + "self_attn.q_norm.weight": (D,),
              layer + "self_attn.k_norm.weight": (D,), layer + "mlp.gate_proj.weight": (I, H), layer + "mlp.up_proj.weight": (I, H),
              layer + "mlp.down_proj.weight": (H, I)}
    head, data = {}, b""
    for name, shape in shapes.items():
        values = (r.standard_normal(shape) * 0.2).astype(np.float32).tobytes()
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(head).encode()
    path.mkdir()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (path / "config.json").write_text(json.dumps(dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=H, intermediate_size=I, num_attention_heads=HEADS,
        num_key_value_heads=KEYS, head_dim=D, num_hidden_layers=1, vocab_size=V, rms_norm_eps=1e-6, rope_theta=1e4,
        tie_word_embeddings=True, max_position_embeddings=64, hidden_act="silu", eos_token_id=1)))


def part(name, data=b"", kind="f"):
    index = name if isinstance(name, str) and len(name) == 1 else str(NAMES.index(name))
    return f"{index}{kind}{len(data)}:".encode() + data


def bundle(opened=False, **change):
    """The parts; a change names one and gives its bytes, a kind with them, or None to leave it out. Where opening ends before the
    program (opened is False), that is cut and the tokenizer left out."""
    whole = b""
    for name in NAMES:
        key = name.replace("x.aimodel/", "asset_").replace("tokenizer/", "").replace(".", "_")
        data = change.get(key, None if not opened and name.startswith("tokenizer") else files.get(name))
        if not opened and key == "asset_main_mlirb" and key not in change:
            data = data[:100]
        if data is not None:
            whole += part(name, *data) if isinstance(data, tuple) else part(name, data)
    return whole


with tempfile.TemporaryDirectory() as d:
    d = pathlib.Path(d)
    checkpoint(d / "ck")
    subprocess.run([millet, "convert", d / "ck", "-o", d / "b", "--format", "coreai", "--tokenizer", tokenizer, "-q"], check=True)
    asset = next((d / "b").glob("*.aimodel"))
    files = {n: (asset / n.split("/")[1] if n.startswith("x.") else d / "b" / n) for n in NAMES}
    files = {n: p.read_bytes() for n, p in files.items() if p.exists()}
meta = json.loads(files["metadata.json"])
meta["assets"]["main"] = "x.aimodel"
files["metadata.json"] = json.dumps(meta).encode()


def changed(**over):
    """metadata.json with members a__b replaced."""
    m = json.loads(files["metadata.json"])
    for key, value in over.items():
        at, names = m, key.split("__")
        for n in names[:-1]:
            at = at[n]
        at[names[-1]] = value
    return json.dumps(m).encode()


seeds = {
    "whole": bundle(opened=True), "no_metadata": bundle(metadata_json=None), "no_asset_metadata": bundle(asset_metadata_json=None),
    "no_hash": bundle(opened=True, asset_main_hash=None), "short_hash": bundle(opened=True, asset_main_hash=b"x"), "wrong_hash": bundle(opened=True, asset_main_hash=bytes(32)),
    "hash_link": bundle(opened=True, asset_main_hash=(b"x", "l")), "no_program": bundle(asset_main_mlirb=None),
    "program_link": bundle(asset_main_mlirb=(b"x", "l")), "program_nowhere": bundle(asset_main_mlirb=(b"", "l")),
    "program_directory": bundle(asset_main_mlirb=(b"", "d")), "empty_program": bundle(asset_main_mlirb=b""),
    "short_program": bundle(asset_main_mlirb=files["x.aimodel/main.mlirb"][:700]), "no_tokenizer": bundle(opened=True, tokenizer_json=None),
    "empty_tokenizer": bundle(opened=True, tokenizer_json=b""), "metadata_directory": bundle(metadata_json=(b"", "d")),
    "old_bundle": bundle(metadata_json=changed(metadata_version="0.9")), "kind": bundle(metadata_json=changed(kind="vlm")),
    "asset_version": bundle(asset_metadata_json=b'{"assetVersion":"3.0"}'), "version_number": bundle(asset_metadata_json=b'{"assetVersion":2}'),
    "escape": bundle(metadata_json=changed(assets__main="../in/x.aimodel")), "absolute": bundle(metadata_json=changed(assets__main="/x")),
    "huge_context": bundle(metadata_json=changed(language__max_context_length=1 << 62)),
    "large_context": bundle(opened=True, metadata_json=changed(language__max_context_length=1 << 24)),
    "no_context": bundle(metadata_json=changed(language__max_context_length=0)),
    "other_vocabulary": bundle(opened=True, metadata_json=changed(language__vocab_size=1 << 40)),
    "stops": bundle(opened=True, metadata_json=changed(stop_ids=[1 << 40, -1, "x"])),
    "deep": bundle(metadata_json=b"[" * 3000),
}
out.mkdir(exist_ok=True)
for name, data in seeds.items():
    (out / name).write_bytes(data)
print(f"{len(seeds)} bundles, {sum(map(len, seeds.values()))} bytes")
