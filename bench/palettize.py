#!/usr/bin/env python3
"""Palettes per second beside coremltools' on the same tensor, one thread each, CPU time.

    cmake --build build --target bench_palettize
    python bench/palettize.py build/bench_palettize [ROWS COLS]

Needs coremltools and scikit-learn; it uses kmeans1d instead where that is installed
(an exact method): then both are shown. The tensor is
normal(0, 0.02) rounded to bf16, then fp16; groups of 32 output channels. coremltools compresses the first rows only and its
time is scaled up by the number of weights; "relative error" is over those rows for both."""
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import logging

logging.disable(logging.WARNING)
import coremltools.models.neural_network.quantization_utils as utils
import numpy as np
from coremltools.optimize.coreml._quantization_passes import palettize_weights

GROUP, SAMPLE = 32, 64


def ours(program, weights, bits):
    with tempfile.NamedTemporaryFile() as f:
        f.write(weights.tobytes())
        f.flush()
        run = lambda: json.loads(subprocess.run([program, *map(str, weights.shape), str(bits), f.name], check=True,
                                                capture_output=True).stdout)
        return min((run() for _ in range(3)), key=lambda r: r["cpu_seconds"])


def theirs(weights, bits):
    start = time.process_time()
    p = palettize_weights.blockwise_compress(weights, "KMEANS", bits, [GROUP, 0])
    seconds = time.process_time() - start
    table = p.lut.astype(np.float64).reshape(len(weights) // GROUP, -1)
    d = np.take_along_axis(table, p.indices.reshape(len(table), -1).astype(int), 1).ravel() - weights.ravel().astype(np.float64)
    return seconds, np.sqrt((d**2).sum() / (weights.astype(np.float64) ** 2).sum())


def main():
    program, shape = sys.argv[1], tuple(map(int, sys.argv[2:4])) or (1024, 3072)
    x = (0.02 * np.random.RandomState(0).standard_normal(shape)).astype(np.float32)
    x = (x.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32).astype(np.float16)
    sample = x[:SAMPLE]
    methods = [m for m in ("scikit-learn", "kmeans1d") if m != "kmeans1d" or utils._HAS_KMEANS1D]
    print(f"{shape[0]} x {shape[1]}, {len(sample)} rows of it for coremltools")
    print("| bits | ours, weights/s | error | coremltools with | weights/s | error | times |\n|---|---|---|---|---|---|---|")
    for bits in (4, 6, 8):
        speed = x.size / ours(program, x, bits)["cpu_seconds"]
        error = ours(program, sample, bits)["relative_error"]
        for method in methods:
            utils._HAS_KMEANS1D = method == "kmeans1d"
            seconds, their_error = theirs(sample, bits)
            their_speed = sample.size / seconds
            print(f"| {bits} | {speed:.3g} | {100 * error:.3f} % | {method} | {their_speed:.3g} | {100 * their_error:.3f} % | "
                  f"{speed / their_speed:.0f} |", flush=True)


if __name__ == "__main__":
    main()
