"""Writes what two of the shared cases give in double precision, to tell how far others are from what the program says:

    qwen35_fp32_double.npz   the logits of tiny_qwen35_decode_s1_fp32
    ios_double.npz           a prompt of eight and one of three tokens behind it through the functions of tiny_ios_b2

The reader is the cases' own (poc/interp.py), which is made to compute in fp64, and to know the ops and types of the second: there, copies
from one layout to another are taken as they are.

    make_coreai_double.py CASES/coreai tests/data/coreai    (numpy)
"""
import pathlib, sys
import numpy as np

case, to = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
text = (case / "poc" / "interp.py").read_text()
for old, new in [
    ("6:'f4',7:'f2'}\nclass", "6:'f8',7:'f8'}\nclass"),  # what casts and states make
    ("dt=np.dtype(INT[c]) if c!=8 else ml_dtypes.bfloat16;", "dt=np.dtype({6: 'f4', 7: 'f2'}.get(c, INT[c]));"),  # as they lie in the file
    ("constant_v1=lambda M,o,x:[const(M,o)]", "constant_v1=lambda M,o,x:[wide(const(M,o))]"),
    ("np.float32", "np.float64"),
    ("np, ml_dtypes, time", "np, time"),
    ("if c==2: nd=r.vi(); return", "if c in (2,3): nd=r.vi(); return"),  # 3: with a layout behind it
    ("    d,s,o1,o2=x; \n", "    d,s,o1,o2=[np.asarray(v) for v in x]\n    if s.ndim==0: s,o1,o2=[np.broadcast_to(v,[1]*d.ndim) for v in (s,o1,o2)]\n"),
]:
    assert old in text, old
    text = text.replace(old, new)
sys.path.insert(0, str(case / "poc"))
reader = {"__name__": "reader", "wide": lambda y: y.astype(np.float64) if y.dtype in (np.float32, np.float16) else y}
exec(text, reader)
depthwise = reader["PRIM"]["conv2d_v1"]


def conv2d(M, o, x):
    """A kernel of one element is a product over channels."""
    if x[1].shape[2:] != (1, 1) or int(x[4]) != 1:
        return depthwise(M, o, x)
    return [np.einsum("bihw,oi->bohw", x[0], x[1][:, :, 0, 0])]


reader["PRIM"] |= {"conv2d_v1": conv2d, "ax.copy_with_constraints_v1": lambda M, o, x: [x[0]], "ax.copy_discarding_constraints_v1": lambda M, o, x: [x[0]]}


def state(shape):
    s = reader["H"]()
    s.v = np.zeros(shape)
    return s


def call(program, function, *inputs):
    """The results that are no tokens."""
    return [v for v in reader["run"](program, function, list(inputs)) if v is not None]


def hybrid():
    name = "tiny_qwen35_decode_s1_fp32"
    given = np.load(case / name / "oracle.npz")
    program = reader["load"](str(case / name / f"{name}.aimodel"))
    states = [state(given[shape]) for shape in ("kv_shape", "kv_shape", "conv_shape", "rec_shape")]
    rows = [call(program, "main", given["input_ids"][:, i : i + 1], np.arange(i + 1, dtype=np.int32)[None], *states)[0]
            for i in range(given["input_ids"].shape[1])]
    exact = np.concatenate(rows, 1)
    np.savez(to / "qwen35_fp32_double.npz", logits=exact)
    for other in ("logits_hf_fp32", "logits_coreai_runtime"):
        d = given[other].astype(np.float64) - exact
        print(other, f"largest {np.abs(d).max():.3g}, root mean square {np.sqrt((d * d).mean()):.3g}")


def layouts():
    program = reader["load"](str(case / "tiny_ios_b2" / "tiny_ios.aimodel"))
    ids, capacity = np.array([[1, 5, 9, 200, 37, 41, 77, 120, 3, 250, 64]], np.int32), 32
    table = call(program, "load_embeddings")[0]
    states, fresh = ([state((2, 1, 64, 1, capacity)) for _ in range(2)] for _ in range(2))
    kept = {"ids": ids}
    for at, n in ((0, 8), (8, 3)):
        eight = np.zeros((1, 8), np.int32)
        eight[:, :n] = ids[:, at : at + n]
        rows = call(program, "gather_embeddings_8", eight, table)[0][:, :n]
        mask = np.where(np.arange(capacity)[:, None] <= np.arange(at, at + n), 0.0, -40000.0)[None, :, None]
        step = (rows, np.arange(at, at + n, dtype=np.uint16)[None], np.array([at], np.int32), mask)
        call(program, "prompt_opt", *step, *fresh, table)
        kept |= {f"rows{at}": rows, f"mask{at}": mask, f"logits{at}": call(program, "extend", *step, *states, table)[0]}
        assert all(np.array_equal(f.v, s.v) for f, s in zip(fresh, states))  # one function is the other without logits
    kept |= {"key": states[0].v, "value": states[1].v}
    np.savez(to / "ios_double.npz", **{k: v if k == "ids" else np.ascontiguousarray(v, np.float16 if "mask" in k else np.float32) for k, v in kept.items()})


hybrid()
layouts()
