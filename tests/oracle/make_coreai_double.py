"""Writes tests/data/coreai/qwen35_fp32_double.npz: the logits of the shared case tiny_qwen35_decode_s1_fp32 in double precision, to tell
how far transformers' fp32, Apple's runtime and millet are from what the program says. The reader is the cases' own (poc/interp.py), which
is made to compute in fp64.

    make_coreai_double.py CASES/coreai OUT.npz    (numpy)
"""
import importlib.util, pathlib, sys
import numpy as np

case, out = pathlib.Path(sys.argv[1]), sys.argv[2]
name = "tiny_qwen35_decode_s1_fp32"
text = (case / "poc" / "interp.py").read_text()
for old, new in [
    ("6:'f4',7:'f2'}\nclass", "6:'f8',7:'f8'}\nclass"),  # what casts and states make
    ("dt=np.dtype(INT[c]) if c!=8 else ml_dtypes.bfloat16;", "dt=np.dtype({6: 'f4', 7: 'f2'}.get(c, INT[c]));"),  # as they lie in the file
    ("constant_v1=lambda M,o,x:[const(M,o)]", "constant_v1=lambda M,o,x:[wide(const(M,o))]"),
    ("np.float32", "np.float64"),
    ("np, ml_dtypes, time", "np, time"),
]:
    assert old in text, old
    text = text.replace(old, new)
sys.path.insert(0, str(case / "poc"))
reader = {"__name__": "reader", "wide": lambda y: y.astype(np.float64) if y.dtype in (np.float32, np.float16) else y}
exec(text, reader)

given = np.load(case / name / "oracle.npz")
program = reader["load"](str(case / name / f"{name}.aimodel"))
state = {}
for key, shape in (("keyCache", "kv_shape"), ("valueCache", "kv_shape"), ("convState", "conv_shape"), ("recState", "rec_shape")):
    state[key] = reader["H"]()
    state[key].v = np.zeros(given[shape])
rows = []
for i in range(given["input_ids"].shape[1]):
    result = reader["run"](program, "main", [given["input_ids"][:, i : i + 1], np.arange(i + 1, dtype=np.int32)[None], *state.values()])
    rows.append(next(v for v in result if v is not None))
exact = np.concatenate(rows, 1)
np.savez(out, logits=exact)
for other in ("logits_hf_fp32", "logits_coreai_runtime"):
    d = given[other].astype(np.float64) - exact
    print(other, f"largest {np.abs(d).max():.3g}, root mean square {np.sqrt((d * d).mean()):.3g}")
