#!/usr/bin/env python3
"""Writes tests/data/palette_cases.json: groups of fp16 weights, the least squared error that palettes of 16, 64 and 256 entries
can have, and what coremltools' palettizer reaches on the same group.

    python tests/oracle/make_palette_cases.py >tests/data/palette_cases.json

Needs coremltools 9.0 and scikit-learn 1.5.1, which coremltools clusters with. "optimum" is the O(k n^2) dynamic program over the
distinct values, in extended precision. "coremltools" is the squared error of its table before the table is rounded,
"coremltools_fp16" that of the table as it is stored."""
import json
import sys

import numpy as np
from coremltools.models.neural_network.quantization_utils import _get_kmeans_lookup_table_and_weight as kmeans
from coremltools.optimize.coreml._quantization_passes import palettize_weights

ROWS, COLS, BITS = 32, 64, (4, 6, 8)


def groups():
    """name -> fp16 [ROWS, COLS]."""
    r, n = np.random.RandomState(0), ROWS * COLS
    normal = lambda: (0.02 * r.standard_normal(n)).astype(np.float32)
    bf16 = lambda x: (x.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)
    yield "normal", normal()
    yield "normal, bf16 source", bf16(normal())
    yield "heavy tail", 0.02 * r.standard_t(2, n)
    yield "12 distinct values", r.choice(r.standard_normal(12), n)
    yield "constant", np.full(n, 0.37)
    yield "mostly zeros", normal() * (r.rand(n) < 0.3)
    yield "subnormals", r.randint(-1000, 1000, n) * 2.0**-24
    parts = [normal(), 3e4 * (r.rand(n) - 0.5), r.randint(-1000, 1000, n) * 2.0**-24, np.full(n, -0.0), 0.02 * r.standard_t(2, n)]
    yield "all together", np.choose(r.randint(0, len(parts), n), parts)


def least_errors(weights, ks):
    values, counts = np.unique(weights.astype(np.longdouble), return_counts=True)
    n, x = len(values), values - values.mean()
    w, s, q = (np.concatenate([[0], np.cumsum(counts * x**p)]) for p in (0, 1, 2))
    begin, end = np.ogrid[: n + 1, : n + 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        cost = (q[end] - q[begin]) - (s[end] - s[begin]) ** 2 / (w[end] - w[begin])
    cost[begin >= end] = np.inf
    best, found = cost[0].copy(), {}
    for k in range(2, max(ks) + 1):
        best = (best[:, None] + cost).min(0)
        if k in ks:
            found[k] = max(float(best[n]), 0.0) if n > k else 0.0
    return found


def squared(weights, table, codes):
    return float(((np.asarray(table, np.float64)[codes.ravel()] - weights.ravel().astype(np.float64)) ** 2).sum())


def main():
    out = []
    for name, values in groups():
        weights = values.astype(np.float16).reshape(ROWS, COLS)
        optimum, fits = least_errors(weights.ravel(), [1 << b for b in BITS]), []
        for bits in BITS:
            table, codes = kmeans(bits, weights)
            stored = palettize_weights.blockwise_compress(weights, "KMEANS", bits, [ROWS, 0])
            fits.append({"bits": bits, "optimum": optimum[1 << bits], "coremltools": squared(weights, table.ravel(), codes),
                         "coremltools_fp16": squared(weights, stored.lut.ravel(), stored.indices)})
        out.append({"name": name, "weights": weights.view(np.uint16).byteswap().tobytes().hex(), "fits": fits})
        print(name, len(np.unique(weights)), fits, file=sys.stderr)
    json.dump({"rows": ROWS, "cols": COLS, "groups": out}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
