#!/usr/bin/env python3
"""Writes tests/data/op_cases.json: small calls of single ops with results from PyTorch, for the ops and forms that no shared
Core ML case holds. Needs torch. Run from the repository's root: python3 tests/oracle/make_op_cases.py"""
import json, math
import numpy as np, torch
import torch.nn.functional as F

g = torch.Generator().manual_seed(7)
cases = []
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.int32: "int32", torch.int64: "int32", torch.bool: "bool",
         torch.int8: "int8", torch.uint8: "uint8"}


def rnd(*shape, scale=1.0):
    return torch.round(torch.randn(*shape, generator=g) * scale * 256) / 256  # short decimals


def ints(*shape, lo=-5, hi=6):
    return torch.randint(lo, hi, shape, generator=g, dtype=torch.int32)


def num(v):
    v = float(v)
    return "nan" if math.isnan(v) else "inf" if v == math.inf else "-inf" if v == -math.inf else int(v) if v == int(v) else float(str(np.float32(v)))


def enc(t, dtype=None):
    if isinstance(t, str):
        return t
    if isinstance(t, (list, tuple)) and t and isinstance(t[0], torch.Tensor):
        return {"list": [enc(x) for x in t]}
    if not isinstance(t, torch.Tensor):
        a = np.array(t)
        t = torch.tensor(a.astype(np.bool_) if a.dtype == np.bool_ else a.astype(np.int32) if a.dtype.kind == "i" else a.astype(np.float32))
    return {"d": dtype or NAMES[t.dtype], "s": list(t.shape), "v": [num(v) for v in t.reshape(-1).tolist()]}


def case(op, want, note="", spec=9, dtypes=None, **operands):
    """Tensors that are not wrapped in const() are inputs of the function; anything else is a constant."""
    want = want if isinstance(want, (list, tuple)) else [want]
    o = {}
    for k, v in operands.items():
        e = enc(v.t if isinstance(v, const) else v, v.d if isinstance(v, const) else (dtypes or {}).get(k))
        if isinstance(v, torch.Tensor) or (isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor)):
            e["input"] = True
        o[k] = e
    cases.append({"op": op, "note": note, "spec": spec, "operands": o, "want": [enc(w) for w in want]})


class const:
    def __init__(self, t, d=None):
        self.t, self.d = t, d


# ---- einsum
for eq, a, b in [("bnqd,bnkd->bnqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)), ("abc,cd->abd", (2, 3, 4), (4, 5)),
                 ("ab,cb->ca", (3, 4), (5, 4)), ("nchw,nwhu->nchu", (1, 2, 3, 4), (1, 4, 3, 5))]:
    x, y = rnd(*a), rnd(*b)
    case("einsum", torch.einsum(eq, x, y), eq, values=[x, y], equation=eq)

# ---- conv
x, w, b = rnd(2, 4, 9), rnd(6, 2, 3), rnd(6)
case("conv", F.conv1d(x, w, b, stride=2, padding=0, dilation=2, groups=2), "1d groups dilation", x=x, weight=const(w), bias=const(b), strides=[2],
     pad_type="valid", dilations=[2], groups=2)
x, w = rnd(1, 3, 7, 8), rnd(4, 3, 3, 2)
for low in (False, True):
    k = [3, 3]  # dilated extents
    k = [(w.shape[2] - 1) * 2 + 1, w.shape[3]]
    p = []
    for d, s in ((0, 2), (1, 3)):
        o = -(-x.shape[2 + d] // s)
        tot = max((o - 1) * s + k[d] - x.shape[2 + d], 0)
        lo = (tot + 1) // 2 if low else tot // 2
        p.append((lo, tot - lo))
    xp = F.pad(x, (p[1][0], p[1][1], p[0][0], p[0][1]))
    case("conv", F.conv2d(xp, w, stride=(2, 3), dilation=(2, 1)), "2d same" + ("_lower" if low else ""), x=x, weight=const(w), strides=[2, 3],
         pad_type="same_lower" if low else "same", dilations=[2, 1], groups=1)
case("conv", F.conv2d(F.pad(x, (0, 3, 1, 2)), w), "2d custom pad", x=x, weight=const(w), strides=[1, 1], pad_type="custom", pad=[1, 2, 0, 3], dilations=[1, 1],
     groups=1)
x, w, b = rnd(2, 4, 5, 4, 6), rnd(4, 1, 2, 3, 2), rnd(4)
case("conv", F.conv3d(x, w, b, padding=(1, 0, 2), stride=(1, 2, 1), groups=4), "3d depthwise", x=x, weight=const(w), bias=const(b), strides=[1, 2, 1],
     pad_type="custom", pad=[1, 1, 0, 0, 2, 2], dilations=[1, 1, 1], groups=4)
x, w, b = rnd(2, 5, 3, 7), rnd(20, 5, 1, 1), rnd(20)
case("conv", F.conv2d(x, w, b), "1x1 as a product", x=x, weight=const(w), bias=const(b), pad_type="valid")
x = rnd(3, 5, 1, 1)
case("conv", F.conv2d(x, w, b), "1x1 on one pixel", x=x, weight=const(w), bias=const(b), pad_type="valid")
w = rnd(5, 5, 3)
x = rnd(1, 5, 4)
case("conv", F.conv1d(x, w, padding=1), "weight at run time", x=x, weight=w, strides=[1], pad_type="custom", pad=[1, 1], dilations=[1], groups=1)

# ---- conv_transpose
x, w, b = rnd(2, 4, 5), rnd(4, 3, 3), rnd(6)
case("conv_transpose", F.conv_transpose1d(x, w, b, stride=2, groups=2, dilation=2), "1d groups dilation", x=x, weight=const(w), bias=const(b), strides=[2],
     pad_type="valid", dilations=[2], groups=2)
x, w = rnd(1, 3, 4, 3), rnd(3, 2, 3, 2)
case("conv_transpose", F.conv_transpose2d(x, w, stride=(2, 1), padding=(1, 0)), "2d custom", x=x, weight=const(w), strides=[2, 1], pad_type="custom",
     pad=[1, 1, 0, 0], dilations=[1, 1], groups=1)

# ---- norms
x = rnd(2, 3, 4, 5)
case("l2_norm", x / torch.sqrt((x * x).sum((-3, -2, -1), keepdim=True) + 1e-3), x=x, epsilon=1e-3)
gm, bt = rnd(3), rnd(3)
case("instance_norm", F.instance_norm(x, weight=gm, bias=bt, eps=1e-4), x=x, gamma=const(gm), beta=const(bt), epsilon=1e-4)
mean, var = rnd(3), rnd(3).abs() + 0.1
case("batch_norm", F.batch_norm(x, mean, var, gm, bt, eps=1e-3), x=x, mean=const(mean), variance=const(var), gamma=const(gm), beta=const(bt), epsilon=1e-3)
gm, bt = rnd(3, 5), rnd(3, 5)
m = x.mean((1, 3), keepdim=True)
v = ((x - m) ** 2).mean((1, 3), keepdim=True)
case("layer_norm", (x - m) / torch.sqrt(v + 1e-5) * gm[None, :, None, :] + bt[None, :, None, :], "axes that do not adjoin", x=x, axes=[1, 3], gamma=const(gm),
     beta=const(bt), epsilon=1e-5)
case("softmax", torch.softmax(x, 1), "inner axis", x=x, axis=1)
y = x.clone()
y[0, 0, 0, :] = -math.inf
y[0, 0, 1, 2] = math.inf
case("softmax", torch.softmax(y, -1), "rows of infinities", x=y, axis=-1)

# ---- reductions
x = rnd(2, 3, 4, 5)
for ax in ([0], [1, 3], [-1], [0, 1, 2, 3]):
    for keep in (False, True):
        case("reduce_l1_norm", x.abs().sum(ax, keepdim=keep), x=x, axes=ax, keep_dims=keep)
        case("reduce_log_sum", x.abs().sum(ax, keepdim=keep).log(), x=x.abs(), axes=ax, keep_dims=keep)
        p = x
        for d in sorted([q % 4 for q in ax], reverse=True):
            p = p.prod(d, keepdim=True)
        if not keep:
            for d in sorted([q % 4 for q in ax], reverse=True):
                p = p.squeeze(d)
        case("reduce_prod", p, x=x, axes=ax, keep_dims=keep)
        case("reduce_log_sum_exp", torch.logsumexp(x * 30, ax, keepdim=keep), x=x * 30, axes=ax, keep_dims=keep)
case("reduce_sum", x.sum(), "no axes: all", x=x)
case("reduce_max", x.amax((0, 2)), x=x, axes=[0, 2], keep_dims=False)
k = ints(3, 4)
case("reduce_sum", k.sum(1).int(), "int32", x=k, axes=[1], keep_dims=False)
case("reduce_min", k.amin(0), "int32", x=k, axes=[0], keep_dims=False)
case("reduce_sum_square", (k * k).sum((0, 1)).int(), "int32", x=k, axes=[0, 1], keep_dims=False)
case("reduce_argmin", x.argmin(2).int(), x=x, axis=2, keep_dims=False)
case("reduce_argmin", torch.tensor([[0], [1]], dtype=torch.int32), "first of equal ones", x=torch.tensor([[1.0, 1.0, 2.0], [3.0, 0.0, 0.0]]), axis=-1, keep_dims=True)
for ax in (0, 1, 2):
    for rev in (False, True):
        for exc in (False, True):
            y = rnd(3, 2, 4)
            z = y.flip(ax) if rev else y
            z = z.cumsum(ax) - (z if exc else 0)
            z = z.flip(ax) if rev else z
            case("cumsum", z, x=y, axis=ax, exclusive=exc, reverse=rev)
y = rnd(2, 9, 3)
for asc in (False, True):
    s, i = torch.sort(y, dim=1, descending=not asc, stable=True)
    case("topk", [s[:, :4], i[:, :4].int()], x=y, k=4, axis=1, ascending=asc)
    case("argsort", i.int(), x=y, axis=1, ascending=asc)
t = torch.tensor([3.0, 1.0, 3.0, 3.0, 2.0])
case("topk", [torch.tensor([3.0, 3.0, 3.0, 2.0]), torch.tensor([0, 2, 3, 4], dtype=torch.int32)], "ties keep their order", x=t, k=4, axis=0, ascending=False)
s, i = torch.sort(k, dim=1, descending=True, stable=True)
case("topk", [s, i.int()], "k -1: all, int32", x=k, k=-1, axis=1, ascending=False)

# ---- shape
x = rnd(2, 3, 4)
case("flatten2d", x.reshape(2, 12), x=x, axis=1)
case("flatten2d", x.reshape(6, 4), x=x, axis=-1)
case("flatten2d", x.reshape(1, 24), x=x, axis=0)
case("sliding_windows", x.unfold(1, 2, 1).transpose(-1, -2), x=x, axis=1, size=2, stride=1)
y = rnd(7)
case("sliding_windows", y.unfold(0, 3, 2), x=y, axis=0, size=3, stride=2)
case("tile", x.repeat(2, 1, 3), x=x, reps=[2, 1, 3])
case("reverse", x.flip((0, 2)), x=x, axes=[0, 2])
case("reverse", x.flip((0, 1, 2)), "all", x=x)
case("pad", F.pad(x, (1, 2, 0, 1), value=-3.5), x=x, pad=[0, 1, 1, 2], mode="constant", constant_val=-3.5)
case("pad", F.pad(x, (2, 1), mode="reflect"), x=x, pad=[2, 1], mode="reflect")
case("pad", F.pad(x[None], (2, 1, 1, 2), mode="reflect")[0], x=x, pad=[1, 2, 2, 1], mode="reflect")
case("pad", F.pad(x[None], (2, 3, 4, 0), mode="replicate")[0], x=x, pad=[4, 0, 2, 3], mode="replicate")
case("band_part", torch.tril(x), x=x, lower=-1, upper=0)
case("band_part", torch.triu(torch.tril(x, 2), -1), x=x, lower=1, upper=2)
case("non_zero", torch.nonzero(k).int(), x=k)
case("non_zero", torch.tensor([[1], [3]], dtype=torch.int32), "-0 is zero, NaN is not", x=torch.tensor([-0.0, math.nan, 0.0, 2.0]))
case("concat", torch.stack([x, x * 2], 2).reshape(2, 6, 4), "interleave", values=[x, x * 2], axis=1, interleave=True)
case("stack", torch.stack([x, -x, x + 1], 3), values=[x, -x, x + 1], axis=-1)
case("split", list(torch.split(x, [1, 3], 2)), x=x, split_sizes=[1, 3], axis=2)
case("split", [x[:1], x[1:]], "views", x=x, num_splits=2, axis=0)
case("transpose", x.permute(2, 0, 1), x=x, perm=[-1, 0, 1])
case("slice_by_index", x.flip(1)[:, 0:2, ::3], x=x, begin=[0, -1, 0], end=[0, 0, 0], stride=[1, -1, 3], begin_mask=[True, False, True], end_mask=[True, False, True])
case("slice_by_index", x[1, :, -1], "squeeze", x=x, begin=[1, 0, -1], end=[0, 0, 0], squeeze_mask=[True, False, True], begin_mask=[False, True, False],
     end_mask=[False, True, False])
case("slice_by_size", x[:, 1:3, -2:], x=x, begin=[0, 1, -2], size=[-1, 2, -1])
u = rnd(2, 2, 2)
z = x.clone()
z[:, 0:3:2, 1:3] = u
case("slice_update", z, x=x, update=u, begin=[0, 0, 1], end=[2, 3, 3], stride=[1, 2, 1])
u = rnd(3, 4)
z = x.clone()
z[1] = u.flip(0)
case("slice_update", z, "squeeze, backwards", x=x, update=u, begin=[1, -1, 0], end=[2, 0, 0], stride=[1, -1, 1], squeeze_mask=[True, False, False],
     end_mask=[False, True, True])
case("fill_like", torch.full((2, 3, 4), 2.5), ref_tensor=x, value=2.5)
case("range_1d", torch.arange(7, -5, -3, dtype=torch.int32), "int32 downwards", start=7, end=-5, step=-3)
case("range_1d", torch.tensor([0.5, 0.75, 1.0]), start=0.5, end=1.1, step=0.25)
idx = torch.tensor([[0, 2], [3, 1]], dtype=torch.int32)
oh = F.one_hot(idx.long(), 4).float()
case("one_hot", oh * 3 - 1, indices=idx, one_hot_vector_size=4, axis=-1, on_value=2.0, off_value=-1.0)
case("one_hot", oh.permute(2, 0, 1).int(), "axis 0, int32 defaults", indices=idx, one_hot_vector_size=4, axis=0)

# ---- gather, scatter
x = rnd(2, 3, 5)
i = torch.tensor([[4, -1], [0, 2]], dtype=torch.int32)
case("gather", torch.stack([x[b][:, i[b].long() % 5] for b in range(2)]), "batch_dims 1, a dimension between", x=x, indices=i, axis=2, batch_dims=1)
case("gather", x[:, torch.tensor([2, 0, -1])], "axis 1", x=x, indices=torch.tensor([2, 0, -1], dtype=torch.int32), axis=1)
case("gather", x[:, :, torch.tensor([4, 0])], "out of range is clamped", x=x, indices=torch.tensor([99, -99], dtype=torch.int32), axis=2)
ix = ints(2, 3, 2, lo=0, hi=5)
case("gather_along_axis", torch.gather(x, 2, ix.long()), x=x, indices=ix, axis=-1)
nd = torch.tensor([[[0], [2]], [[1], [1]]], dtype=torch.int32)
case("gather_nd", torch.stack([x[b][nd[b, :, 0].long()] for b in range(2)]), "batch_dims 1", x=x, indices=nd, batch_dims=1)
modes = {"update": lambda a, b: b, "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
         "max": torch.maximum, "min": torch.minimum}
for mode, fn in modes.items():
    d, u, j = rnd(2, 4, 3), rnd(2, 3, 3) + 2, torch.tensor([3, 0, 3], dtype=torch.int32)
    z = d.clone()
    for n, q in enumerate(j.tolist()):
        z[:, q] = fn(z[:, q], u[:, n])
    case("scatter", z, mode, data=d, indices=j, updates=u, axis=1, mode=mode)
    j2 = torch.tensor([[[1, 0, 1], [0, 2, 1]], [[3, 3, 0], [1, 1, 1]]], dtype=torch.int32)
    u2 = rnd(2, 2, 3) + 2
    z = d.clone()
    for a in range(2):
        for b in range(2):
            for c in range(3):
                q = int(j2[a, b, c])
                z[a, q, c] = fn(z[a, q, c], u2[a, b, c])
    case("scatter_along_axis", z, mode, data=d, indices=j2, updates=u2, axis=1, mode=mode)
    j3 = torch.tensor([[0, 3], [1, 0], [0, 3]], dtype=torch.int32)
    u3 = rnd(3, 3) + 2
    z = d.clone()
    for n in range(3):
        q = tuple(j3[n].tolist())
        z[q] = fn(z[q], u3[n])
    case("scatter_nd", z, mode, data=d, indices=j3, updates=u3, mode=mode)

# ---- element-wise
a, b = rnd(2, 1, 5, scale=4), rnd(3, 1, scale=3)
case("mod", torch.remainder(a, b), x=a, y=b)
case("floor_div", torch.div(a, b, rounding_mode="floor"), x=a, y=b)
case("pow", torch.pow(a.abs(), b), x=a.abs(), y=b)
case("pow", a * a, "square", x=a, y=2.0)
case("maximum", torch.maximum(a, b), x=a, y=b)
m, n = ints(4, 5, lo=-20, hi=21), torch.tensor([3, -3, 7, -1, 2], dtype=torch.int32)
case("mod", torch.remainder(m, n), "int32", x=m, y=n)
case("floor_div", torch.div(m, n, rounding_mode="floor"), "int32", x=m, y=n)
case("real_div", torch.div(m, n, rounding_mode="floor"), "int32 floors", x=m, y=n)
case("pow", torch.tensor([8, -27, 1, 0], dtype=torch.int32), "int32", x=torch.tensor([2, -3, 5, 0], dtype=torch.int32), y=torch.tensor([3, 3, 0, 4], dtype=torch.int32))
case("mul", torch.tensor([-2147483648, 4], dtype=torch.int32), "int32 wraps", x=torch.tensor([1073741824, 2], dtype=torch.int32), y=2)
x = torch.cat([rnd(20, scale=5), torch.tensor([0.0, -0.0, 100.0, -100.0, 2.5, 3.5, -2.5, 0.5])])
case("softplus", F.softplus(x.double()).float(), x=x)
case("silu", F.silu(x), x=x)
case("sigmoid", torch.sigmoid(x), x=x)
case("gelu", F.gelu(x), "exact", x=x, mode="EXACT")
case("gelu", F.gelu(x, approximate="tanh"), "tanh", x=x, mode="TANH_APPROXIMATION")
case("gelu", x * torch.sigmoid(1.702 * x), "sigmoid", x=x, mode="SIGMOID_APPROXIMATION")
case("round", torch.round(x), x=x)
case("threshold", x.clamp(min=0.5), x=x, alpha=0.5)
case("leaky_relu", F.leaky_relu(x, 0.1), x=x, alpha=0.1)
case("elu", F.elu(x, 0.7), x=x, alpha=0.7)
case("exp2", torch.exp2(x), x=x)
case("inverse", 1 / (x.abs() + 0.25), x=x.abs(), epsilon=0.25)
case("rsqrt", 1 / torch.sqrt(x.abs() + 0.25), x=x.abs(), epsilon=0.25)
case("log", torch.log(x.abs() + 0.25), x=x.abs(), epsilon=0.25)
case("abs", m.abs(), "int32", x=m)
case("sign", torch.sign(m), "int32", x=m)
al, be = rnd(3).abs() + 0.5, rnd(3).abs() + 0.5
y = rnd(2, 3, 4)
case("softplus_parametric", al[None, :, None] * F.softplus(y * be[None, :, None]), x=y, alpha=const(al), beta=const(be))
c = torch.tensor([[True], [False]])
case("select", torch.where(c, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[7.0, math.inf, math.nan]])), "three-way broadcast; the branch not taken does not leak", cond=c,
     a=torch.tensor([1.0, 2.0, 3.0]), b=torch.tensor([[7.0, math.inf, math.nan]]).repeat(2, 1))
case("cast", torch.tensor([2, -2, 0, 7], dtype=torch.int32), "truncates", x=torch.tensor([2.9, -2.9, -0.4, 7.0]), dtype="int32")
case("cast", torch.tensor([True, False, True]), x=torch.tensor([0.1, 0.0, -3.0]), dtype="bool")
case("cast", torch.tensor([2048, -5], dtype=torch.float16), "2049 is no half", x=torch.tensor([2049, -5], dtype=torch.int32), dtype="fp16")
h = rnd(64, scale=3).half()
h2 = rnd(64, scale=300).half()
for op, fn in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "real_div": torch.div}.items():
    case(op, fn(h.float(), h2.float()).half(), "rounded once", x=h, y=h2)
case("exp", torch.exp(h.float()).half(), "fp16", x=h)
case("mul", torch.tensor([math.inf, -math.inf], dtype=torch.float16), "fp16 overflows", x=torch.tensor([300.0, -300.0], dtype=torch.float16), y=torch.tensor([300.0, 300.0], dtype=torch.float16))

# ---- tensors without elements
z = torch.zeros(0, 3)
case("matmul", torch.zeros(2, 3), "no terms", x=torch.zeros(2, 0), y=z)
case("concat", rnd(2, 3) * 0 + 1, "an empty value", values=[z, torch.ones(2, 3)], axis=0, interleave=False)
case("reduce_sum", torch.zeros(3), "nothing to sum", x=z, axes=[0], keep_dims=False)
case("softmax", z, "empty", x=z, axis=-1)
case("gather", z, "no indices", x=rnd(4, 3), indices=torch.zeros(0, dtype=torch.int32), axis=0)
case("slice_by_index", z, "an empty slice", x=rnd(4, 3), begin=[2, 0], end=[2, 3])
case("add", z, "empty", x=z, y=torch.ones(1, 3))
case("linear", torch.zeros(0, 5), "no rows", x=z, weight=const(rnd(5, 3)))

# ---- products
x, y = rnd(5, 37), rnd(37, 19)
case("matmul", x @ y, x=x, y=y)
case("matmul", x @ y, "transposed", x=x.T.contiguous(), y=y.T.contiguous(), transpose_x=True, transpose_y=True)
x, y = rnd(2, 1, 3, 20), rnd(4, 20, 33)
case("matmul", x @ y, "broadcast batch", x=x, y=y)
x, y = rnd(7), rnd(2, 7, 3)
case("matmul", x @ y, "vector x", x=x, y=y)
case("matmul", y.transpose(1, 2) @ x, "vector y", x=y.transpose(1, 2).contiguous(), y=x)
p, q = ints(3, 4), ints(4, 2)
case("matmul", p @ q, "int32", x=p, y=q)
x, w, b = rnd(3, 270), rnd(18, 270), rnd(18)
case("linear", F.linear(x, w, b), "fp32", x=x, weight=const(w), bias=const(b))
wh = w.half()
case("linear", F.linear(x, wh.float()), "fp16 weight, fp32 x", x=x, weight=const(wh))
case("linear", F.linear(x[0], wh.float()), "one row", x=x[0].contiguous(), weight=const(wh))
tiny = (rnd(16, 16) * 4e-6).half()
case("linear", F.linear(x[:, :16] * 1e4, tiny.float()), "subnormal halves", x=(x[:, :16] * 1e4).contiguous(), weight=const(tiny))
qq, kk, vv = rnd(2, 3, 4, 8), rnd(2, 3, 6, 8), rnd(2, 3, 6, 5)
mask = torch.randint(0, 2, (2, 1, 4, 6), generator=g).bool()
mask[..., 0] = True
case("scaled_dot_product_attention", F.scaled_dot_product_attention(qq, kk, vv, attn_mask=mask), "bool mask", query=qq, key=kk, value=vv, attn_mask=mask)
fm = rnd(4, 6)
case("scaled_dot_product_attention", F.scaled_dot_product_attention(qq, kk, vv, attn_mask=fm), "float mask", query=qq, key=kk, value=vv, attn_mask=fm)

# ---- compressed
case("constexpr_cast", h.float(), source_val=const(h), output_dtype="fp32")
xq = rnd(3, 4, scale=40)
sc, zp = torch.tensor([0.5, 0.25, 2.0]), torch.tensor([3, 200, 7], dtype=torch.uint8)
r = (torch.round(xq / sc[:, None]) + zp[:, None].float()).clamp(0, 255)
case("quantize", r.to(torch.uint8), "by axis", input=xq, scale=const(sc), zero_point=const(zp), axis=0, output_dtype="uint8")
case("dequantize", sc[:, None] * (r - zp[:, None].float()), "by axis", input=r.to(torch.uint8), scale=const(sc), zero_point=const(zp), axis=0)

json.dump({"cases": cases}, open("tests/data/op_cases.json", "w"), separators=(",", ":"))
print(len(cases), "cases")
