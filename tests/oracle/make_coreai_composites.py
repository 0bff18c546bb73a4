"""Writes assets with composites to tests/data/coreai: every form of the five that millet runs as what they declare, and some that
it must read from their decomposition, with what Apple's runtime for Linux gives for them. See make_coreai_ops.py.

    make_coreai_composites.py OUT
"""
import re
import numpy as np
from make_coreai_ops import case, hex_of

random = np.random.default_rng(88)
DTYPE = {"f16": np.float16, "f32": np.float32, "si32": np.int32, "ui32": np.uint32}


def tensor(dtype, *shape):
    return "tensor<" + "".join(f"{'?' if d is None else d}x" for d in shape) + dtype + ">"


class Graph:
    """Lines of a graph; values are names with their types."""

    def __init__(self):
        self.lines, self.type = [], {}

    def value(self, text, type, n=0):
        name = f"%v{len(self.type)}"
        self.lines.append(f"    {name}{f':{n}' if n else ''} = {text}")
        self.type[name] = type
        return name

    def constant(self, array, dtype):
        array = np.asarray(array, DTYPE[dtype], order="C")
        type = tensor(dtype, *array.shape)
        if array.ndim == 0 or array.size == 1:
            text = f"{float(array.reshape(-1)[0]):.9e}" if dtype[0] == "f" else str(int(array.reshape(-1)[0]))
        else:
            text = hex_of(array)
        return self.value(f"coreai.constant dense<{text}> : {type}", type)

    def op(self, name, args, type):
        types = ", ".join(self.type[a] for a in args)
        arrow = "to" if name == "expand_dims" else "->"
        sep = f"({types}) {arrow} {type}" if len(args) > 1 else f"{types} -> {type}"
        return self.value(f"coreai.{name} {', '.join(args)} : {sep}", type)

    def both(self, name, a, b, type):
        return self.op(f"decomposable.broadcasting_{name}", [a, b], type)

    def cast(self, a, type):
        return a if self.type[a] == type else self.value(f"coreai.cast {a} : {self.type[a]} to {type}", type)

    def invoke(self, graph, args, types):
        t = ", ".join(self.type[a] for a in args)
        name = self.value(f"coreai.invoke @{graph}({', '.join(args)}) : ({t}) -> {types[0] if len(types) == 1 else '(' + ', '.join(types) + ')'}",
                          types[0], 0 if len(types) == 1 else len(types))
        if len(types) == 1:
            return [name]
        for i, t in enumerate(types):
            self.type[f"{name}#{i}"] = t
        return [f"{name}#{i}" for i in range(len(types))]


def function(name, inputs, body, outputs, kind=None, attrs=""):
    """inputs: name -> type; body(graph, operands) -> results; outputs: names."""
    g = Graph()
    for n, t in inputs.items():
        g.type["%" + n] = t
    results = body(g, *("%" + n for n in inputs))
    listed = ", ".join(f'%{n}: {t} {{coreai.name = "{n}"}}' for n, t in inputs.items())
    made = ", ".join(f'{g.type[r]} {{coreai.name = "{n}"}}' for n, r in zip(outputs, results))
    decl = ""
    if kind:
        names = ", ".join(f'"{n}"' for n in inputs)
        outs = ", ".join(f'"{n}"' for n in (["output"] if len(results) == 1 else [f"output_{i}" for i in range(len(results))]))
        attrs = ", ".join(filter(None, [attrs, "version = 1 : si64"]))
        decl = f' attributes {{composite_decl = #coreai.composite_declaration<"{kind}" = {{input_names = [{names}], op_attrs = {{{attrs}}}, output_names = [{outs}]}}>}}'
    text = "\n".join(g.lines)
    types = ", ".join(g.type[r] for r in results)
    return f"""  coreai.graph {'private noinline ' if kind else ''}@{name}({listed}) -> ({made}){decl} {{
{text}
    coreai.output {', '.join(results)} : {types}
  }}"""


def module(*functions):
    return "module {\n" + "\n".join(functions) + "\n}"


# ---- norms ----

def rms_norm(eps, x, w):
    wide, last = re.sub("f16", "f32", x), re.sub(r"\d+xf(16|32)", r"1xf32", x)

    def body(g, a, scale):
        v = g.cast(a, wide)
        axis = g.constant([-1], "si32")
        mean = g.op("reduce_mean", [g.both("mul", v, v, wide), axis], last)
        unit = g.both("mul", v, g.op("rsqrt", [g.both("add", mean, g.constant(eps, "f32"), last)], last), wide)
        if "f16" in x and "f32" in w:
            return [g.cast(g.both("mul", unit, scale, wide), x)]
        return [g.both("mul", g.cast(unit, x), scale, x)]

    return body


def norms():
    forms = [("rows", tensor("f16", 1, None, 16), "f16", (16,), 1e-6), ("gemma", tensor("f16", 1, None, 16), "f32", (16,), 1e-5),
             ("heads", tensor("f16", 1, 3, None, 16), "f16", (3, 1, 16), 1e-6), ("wide", tensor("f32", 2, 16), "f32", (16,), 1e-3)]
    graphs = [function(f"norm_{n}", {"input": x, "scale": tensor(d, *s)}, rms_norm(e, x, tensor(d, *s)), ["y"], "rms_norm",
                       f"axes = -1 : si64, eps = {e:.9e} : f32") for n, x, d, s, e in forms]
    weights = [random.standard_normal(s).astype(DTYPE[d]) for _, _, d, s, _ in forms]

    def main(g, *x):
        return [g.invoke(f"norm_{f[0]}", [v, g.constant(w, f[2])], [f[1]])[0] for f, v, w in zip(forms, x, weights)]

    graphs.append(function("main", {f[0]: f[1] for f in forms}, main, [f"y_{f[0]}" for f in forms]))
    given = lambda t: {f[0]: random.standard_normal([t if s == "?" else int(s) for s in re.findall(r"[?\d]+(?=x)", f[1])])
                       .astype(DTYPE["f16" if "f16" in f[1] else "f32"]) for f in forms}
    case("composite_norms", module(*graphs), given(1), given(5))


def untrue():
    """Says another epsilon than its decomposition has."""
    x, w = tensor("f32", 2, 16), tensor("f32", 16)
    inner = function("norm", {"input": x, "scale": w}, rms_norm(0.5, x, w), ["y"], "rms_norm", "axes = -1 : si64, eps = 1.0e-06 : f32")
    main = function("main", {"x": x}, lambda g, v: g.invoke("norm", [v, g.constant(random.standard_normal(16), "f32")], [x]), ["y"])
    case("composite_untrue", module(inner, main), {"x": random.standard_normal((2, 16)).astype(np.float32)})


# ---- rotations ----

def rope(x, half, freqs, tables, interleaved=False):
    shape = [None if s == "?" else int(s) for s in re.findall(r"[?\d]+(?=x)", x)]
    d = "f16" if "f16" in x else "f32"
    part = tensor(d, *shape[:3], half)
    big = 2**31 - 1

    def cut(g, a, begin, end, step, type):
        return g.op("slice", [a, g.constant([0, 0, 0, begin], "si32"), g.constant([big, big, big, end], "si32"),
                              g.constant([1, 1, 1, step], "si32")], type)

    def body(g, a, *where):
        if tables:
            cos, sin = where
        else:
            t = [1, 1, None, 1]
            p = g.op("expand_dims", [where[0], g.constant([1], "si32")], tensor("si32", 1, 1, None))
            p = g.op("expand_dims", [g.cast(p, tensor("f32", 1, 1, None)), g.constant([-1], "si32")], tensor("f32", *t))
            angle = g.both("mul", p, g.constant(freqs, "f32"), tensor("f32", 1, 1, None, half))
            cos, sin = (g.cast(g.op(f, [angle], tensor("f32", 1, 1, None, half)), tensor(d, 1, 1, None, half)) for f in ("cos", "sin"))
        x1, x2 = ((cut(g, a, i, 2 * half, 2, part) for i in (0, 1)) if interleaved else
                  (cut(g, a, i, i + half, 1, part) for i in (0, half)))
        y = [g.both("sub", g.both("mul", cos, x1, part), g.both("mul", sin, x2, part), part),
             g.both("add", g.both("mul", sin, x1, part), g.both("mul", cos, x2, part), part)]
        three = g.constant(3, "si32")
        if interleaved:
            wide = tensor(d, *shape[:3], half, 1)
            y = [g.op("expand_dims", [v, g.constant([-1], "si32")], wide) for v in y]
            both = g.op("concat", [g.constant(4, "si32"), *y], tensor(d, *shape[:3], half, 2))
            s = g.op("get_shape", [a], tensor("ui32", 4))
            return [g.op("reshape", [both, s], x)]
        if shape[3] > 2 * half:
            y.append(cut(g, a, 2 * half, big, 1, tensor(d, *shape[:3], shape[3] - 2 * half)))
        return [g.op("concat", [three, *y], x)]

    return body


def rotations():
    x, h = tensor("f32", 1, 2, None, 16), tensor("f16", 1, 3, None, 16)
    p, t = tensor("si32", 1, None), tensor("f32", 1, 1, None, 4)
    freqs = lambda base, half, scale: (scale * (1 / base ** (np.arange(half) / half))).astype(np.float32)
    attrs = lambda base, scale, dims=None, interleaved="false": (
        f"base = {base:.9e} : f32, " + (f"dims = {dims} : si64, " if dims else "") + f"interleaved = {interleaved}, scale = {scale:.9e} : f32")
    graphs = [
        function("whole", {"input": h, "position_ids": p}, rope(h, 8, freqs(1e6, 8, 1), False), ["y"], "rope", attrs(1e6, 1)),
        function("part", {"input": x, "position_ids": p}, rope(x, 4, freqs(1e4, 4, 0.5), False), ["y"], "rope", attrs(1e4, 0.5, 8)),
        function("table", {"input": x, "cos": t, "sin": t}, rope(x, 4, None, True), ["y"], "rope", attrs(1e4, 1, 8)),
        function("pairs", {"input": x, "position_ids": p}, rope(x, 8, freqs(1e4, 8, 1), False, True), ["y"], "rope", attrs(1e4, 1, None, "true")),
        # frequencies are not what the declared base makes
        function("other", {"input": x, "position_ids": p}, rope(x, 8, freqs(1e4, 8, 1) ** 0.9, False), ["y"], "rope", attrs(1e4, 1)),
    ]
    main = lambda g, x_, h_, p_, c, s: [g.invoke("whole", [h_, p_], [h])[0], g.invoke("part", [x_, p_], [x])[0],
                                       g.invoke("table", [x_, c, s], [x])[0], g.invoke("pairs", [x_, p_], [x])[0],
                                       g.invoke("other", [x_, p_], [x])[0]]
    graphs.append(function("main", {"x": x, "h": h, "p": p, "cos": t, "sin": t}, main, ["whole", "part", "table", "pairs", "other"]))

    def given(n, past):
        a = random.uniform(-3, 3, (1, 1, n, 4))
        return {"x": random.standard_normal((1, 2, n, 16)).astype(np.float32), "h": random.standard_normal((1, 3, n, 16)).astype(np.float16),
                "p": np.arange(past, past + n, dtype=np.int32)[None], "cos": np.cos(a).astype(np.float32), "sin": np.sin(a).astype(np.float32)}
    case("composite_ropes", module(*graphs), given(1, 40), given(5, 3))


# ---- attention ----

def attention(scale, causal, window, masked, dims):
    H, K, T, S, D = dims
    q, s = tensor("f32", 1, H, T, D), tensor("f32", 1, H, T, S)

    def body(g, a, k, v, mask=None):
        def repeated(x):
            x = g.op("reshape", [x, g.constant([1, K, 1, S, D], "ui32")], tensor("f32", 1, K, 1, S, D))
            x = g.op("broadcast_to", [x, g.constant([1, K, H // K, S, D], "ui32")], tensor("f32", 1, K, H // K, S, D))
            return g.op("reshape", [x, g.constant([1, H, S, D], "ui32")], tensor("f32", 1, H, S, D))
        kt = g.op("transpose", [repeated(k), g.constant([0, 1, 3, 2], "ui32")], tensor("f32", 1, H, D, S))
        w = g.op("decomposable.broadcasting_batch_matmul", [a, kt], s)
        w = g.both("mul", w, g.constant(scale, "f32"), s)
        hidden = np.zeros((T, S), np.float32)
        for i in range(T):
            for j in range(S):
                at = S - T + i
                hidden[i, j] = -1e4 if (causal and j > at) or (window and j <= at - window) else 0
        w = g.both("add", w, mask or g.constant(hidden, "f32"), s)
        w = g.op("softmax", [w, g.constant(-1, "si32")], s)
        return [g.op("decomposable.broadcasting_batch_matmul", [w, repeated(v)], q)]

    return body


def attentions():
    dims = H, K, T, S, D = 4, 2, 3, 7, 16
    q, k, m = tensor("f32", 1, H, T, D), tensor("f32", 1, K, S, D), tensor("f32", 1, 1, T, S)
    forms = [("causal", 0.3, True, 0, False, True), ("seen", 0.25, False, 0, False, False), ("masked", 0.25, False, 0, True, True),
             ("window", 0.25, True, 2, False, True), ("scaled", 0.3, False, 0, False, True)]
    graphs = []
    for n, scale, causal, window, masked, said in forms:
        inputs = {"query": q, "key": k, "value": k} | ({"attn_mask": m} if masked else {})
        attrs = f"is_causal = {str(causal).lower()}, " + (f"scale = {scale:.9e} : f32, " if said else "") + f"window_size = {window} : si64"
        graphs.append(function(n, inputs, attention(scale, causal, window, masked, dims), ["y"], "scaled_dot_product_attention", attrs))
    main = lambda g, a, b, c, d: [g.invoke(f[0], [a, b, c] + ([d] if f[4] else []), [q])[0] for f in forms]
    graphs.append(function("main", {"q": q, "k": k, "v": k, "m": m}, main, [f[0] for f in forms]))
    draw = lambda *s: random.standard_normal(s).astype(np.float32)
    case("composite_attentions", module(*graphs), {"q": draw(1, H, T, D), "k": draw(1, K, S, D), "v": draw(1, K, S, D), "m": draw(1, 1, T, S)})


# ---- the gated delta rule ----

def delta(d, T, unit):
    """T tokens, one after the other, without a loop."""
    H, K, V = 2, 8, 4
    w = lambda *s: tensor("f32", *s)

    def body(g, q, k, v, decay, beta, state):
        def norm(x):
            t, one = tensor(d, 1, H, T, K), tensor(d, 1, H, T, 1)
            s = g.op("reduce_sum", [g.both("mul", x, x, t), g.constant([3], "si32")], one)
            return g.both("mul", x, g.op("rsqrt", [g.both("add", s, g.constant(1e-6, d), one)], one), t)
        if unit:
            q, k = norm(q), norm(k)
        q, k, v, state = g.cast(q, w(1, H, T, K)), g.cast(k, w(1, H, T, K)), g.cast(v, w(1, H, T, V)), g.cast(state, w(1, H, K, V))
        q = g.both("mul", q, g.constant(K ** -0.5, "f32"), w(1, H, T, K))
        decay = g.op("exp", [g.cast(decay, w(1, H, T))], w(1, H, T))
        beta = g.cast(beta, w(1, H, T))

        def token(x, t, n, *shape):
            rank = 4 if n else 3
            begin, end = [0, 0, t, 0][:rank], [2**31 - 1, 2**31 - 1, t + 1, 2**31 - 1][:rank]
            part = g.op("slice", [x, g.constant(begin, "si32"), g.constant(end, "si32"), g.constant([1] * rank, "si32")],
                        w(1, H, 1, n) if n else w(1, H, 1))
            return g.op("reshape", [part, g.constant(shape, "ui32")], w(*shape))
        rows = []
        for t in range(T):
            qt, kt = token(q, t, K, 1, H, K, 1), token(k, t, K, 1, H, K, 1)
            vt, gt, bt = token(v, t, V, 1, H, 1, V), token(decay, t, 0, 1, H, 1, 1), token(beta, t, 0, 1, H, 1, 1)
            S = w(1, H, K, V)
            state = g.both("mul", state, gt, S)
            recall = g.op("reduce_sum", [g.both("mul", state, kt, S), g.constant([2], "si32")], w(1, H, 1, V))
            change = g.both("mul", g.both("sub", vt, recall, w(1, H, 1, V)), bt, w(1, H, 1, V))
            state = g.both("add", state, g.both("mul", kt, change, S), S)
            rows.append(g.op("reduce_sum", [g.both("mul", state, qt, S), g.constant([2], "si32")], w(1, H, 1, V)))
        out = rows[0] if T == 1 else g.op("concat", [g.constant(2, "si32"), *rows], w(1, H, T, V))
        out = g.op("transpose", [out, g.constant([0, 2, 1, 3], "ui32")], w(1, T, H, V))
        return [g.cast(out, tensor(d, 1, T, H, V)), g.cast(state, tensor(d, 1, H, K, V))]

    return body


def deltas():
    H, K, V = 2, 8, 4
    forms = [("one", "f32", 1, False, "use_qk_l2_norm = false"), ("unit", "f32", 3, True, "use_qk_l2_norm = true"),
             ("half", "f16", 5, True, ""), ("denied", "f32", 1, True, "use_qk_l2_norm = false")]
    shapes = lambda T: {"query": (1, H, T, K), "key": (1, H, T, K), "value": (1, H, T, V), "g": (1, H, T), "beta": (1, H, T),
                        "initial_state": (1, H, K, V)}
    graphs = [function(n, {i: tensor(d, *s) for i, s in shapes(T).items()}, delta(d, T, u), ["y", "s"], "gated_delta_update", a)
              for n, d, T, u, a in forms]
    inputs = {f"{n}_{i}": tensor(d, *s) for n, d, T, _, _ in forms for i, s in shapes(T).items()}

    def main(g, *x):
        results = []
        for i, (n, d, T, _, _) in enumerate(forms):
            results += g.invoke(n, x[6 * i: 6 * i + 6], [tensor(d, 1, T, H, V), tensor(d, 1, H, K, V)])
        return results
    graphs.append(function("main", inputs, main, [f"{n}_{r}" for n, *_ in forms for r in ("y", "state")]))
    given = {}
    for n, d, T, _, _ in forms:
        for i, s in shapes(T).items():
            x = -random.uniform(0, 2, s) if i == "g" else random.uniform(0, 1, s) if i == "beta" else random.standard_normal(s)
            given[f"{n}_{i}"] = x.astype(DTYPE[d])
    case("composite_deltas", module(*graphs), given)


# ---- products with chosen matrices ----

def chosen(E, D, H, shape, fused):
    n = int(np.prod(shape))

    def body(g, x, w, i):
        flat = g.op("reshape", [i, g.constant([n, 1], "ui32")], tensor("si32", n, 1))
        pick = lambda a, t: g.value(f"coreai.gather_nd {a} at {flat} : ({g.type[a]}, {g.type[flat]}) to {t}", t)
        if fused:
            w = g.op("transpose", [w, g.constant([1, 0, 2, 3], "ui32")], tensor("f32", E, 2, D, H))
            m = g.op("reshape", [pick(w, tensor("f32", n, 2, D, H)), g.constant([*shape, 2, D, H], "ui32")], tensor("f32", *shape, 2, D, H))
            r = len(shape)
            m = g.op("transpose", [m, g.constant([r, *range(r), r + 1, r + 2], "ui32")], tensor("f32", 2, *shape, D, H))
        else:
            m = g.op("reshape", [pick(w, tensor("f32", n, D, H)), g.constant([*shape, D, H], "ui32")], tensor("f32", *shape, D, H))
        return [g.op("decomposable.broadcasting_batch_matmul", [x, m], tensor("f32", *([2] if fused else []), *shape, 1, H))]

    return body


def gathers():
    E, D, H, shape = 5, 8, 6, (2, 3, 2)
    x, i = tensor("f32", 2, 3, 1, 1, D), tensor("si32", *shape)
    plain, fused = tensor("f32", E, D, H), tensor("f32", 2, E, D, H)
    graphs = [function("plain", {"lhs": x, "rhs": plain, "rhs_indices": i}, chosen(E, D, H, shape, False), ["y"], "gather_mm", "num_batch_axes = 0 : si64"),
              function("fused", {"lhs": x, "rhs": fused, "rhs_indices": i}, chosen(E, D, H, shape, True), ["y"], "gather_mm", "num_batch_axes = 1 : si64")]
    w = random.standard_normal((E, D, H)), random.standard_normal((2, E, D, H))
    main = lambda g, a, b: [g.invoke("plain", [a, g.constant(w[0], "f32"), b], [tensor("f32", *shape, 1, H)])[0],
                            g.invoke("fused", [a, g.constant(w[1], "f32"), b], [tensor("f32", 2, *shape, 1, H)])[0]]
    graphs.append(function("main", {"x": x, "experts": i}, main, ["plain", "fused"]))
    case("composite_gathers", module(*graphs), {"x": random.standard_normal((2, 3, 1, 1, D)).astype(np.float32),
                                                "experts": random.integers(0, E, shape).astype(np.int32)})


norms()
rotations()
attentions()
deltas()
gathers()
untrue()
