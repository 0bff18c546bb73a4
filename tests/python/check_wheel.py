"""check_wheel.py SITE ARTIFACT GOLDEN: what an unpacked wheel must do, with nothing but numpy around: the library inside is the
one that runs, and greedy ids are transformers'. (tools/wheel --check; test_wheel.py)"""
import json
import platform
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import millet as ct

assert ct._native.lib._name.startswith(sys.argv[1]), ct._native.lib._name
with open(sys.argv[3]) as f:
    prompt = json.load(f)["prompts"][0]
with ct.Model(sys.argv[2]) as model:
    got = model.generate(prompt["text"], max_new_tokens=8, repetition_penalty=1, ignore_eos=True)
    assert got.ids == prompt["greedy"][:8], got
    assert "".join(model.stream(prompt["ids"], max_new_tokens=8, repetition_penalty=1)) == got.text
decode = ct.models.MLModel(sys.argv[2])
state = decode.make_state()
with open(f"{sys.argv[2]}/tiny-qwen3.5_embed_tokens.fp32.bin", "rb") as f:
    f.seek(64)
    table = np.frombuffer(f.read(), np.float32).reshape(-1, 256)
for position, token in enumerate(prompt["ids"]):
    logits = decode.predict({"hidden": table[token].reshape(1, 1, -1), "current_pos": [position]}, state)["logits"]
assert logits.argmax() == prompt["greedy"][0]
print(f"millet {ct.__version__} on {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}: ok")
