#!/usr/bin/env python3
"""What coremltools' own compression of a checkpoint's shape costs, beside bench/convert.py.   bench/coremltools_cost.py SHAPE...

Needs coremltools and scikit-learn; one thread. For each scheme: one MLP matrix (for lut6 its first 64 rows) is compressed as
coremltools.optimize.coreml does it, with random bf16 weights in fp16; CPU time is scaled up to all matrices of the shape (see
bench/make_checkpoint.py). Peak memory: a process that compresses the embedding matrix alone to int8 per channel, less what it
holds before it has weights; a whole conversion holds the whole model besides."""
import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import logging
import multiprocessing
import resource
import sys
import time

logging.disable(logging.WARNING)
import coremltools.models.neural_network.quantization_utils as utils
import numpy as np
from coremltools.optimize.coreml._quantization_passes import linear_quantize_weights, palettize_weights
from make_checkpoint import SHAPES, tensors


def weights(rows, cols):
    x = np.random.RandomState(0).standard_normal((rows, cols)).astype(np.float32) * np.float32(0.02)
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float16)


def linear(nbits, block):
    return lambda w: linear_quantize_weights.blockwise_compress(w, nbits, "LINEAR_SYMMETRIC", True, block)


def palettes(method):
    def run(w):
        utils._HAS_KMEANS1D = method == "kmeans1d"
        return palettize_weights.blockwise_compress(w[:64], "KMEANS", 6, [32, 0])
    return run


def peak_of_head(rows, cols, answer):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    w = np.empty((rows, cols), np.float16)
    w[:] = weights(1024, cols)[np.arange(rows) % 1024]
    linear(8, [1, 0])(w)
    answer.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main():
    methods = {"lut6, scikit-learn": palettes("scikit-learn")}
    if utils._HAS_KMEANS1D:
        methods["lut6, kmeans1d"] = palettes("kmeans1d")
    methods |= {"w8": linear(8, [1, 0]), "w8b32": linear(8, [1, 32]), "w4": linear(4, [1, 32])}
    print("| shape | scheme | weights/s | all matrices, CPU | peak memory for the head alone |\n|---|---|---|---|---|")
    for name in sys.argv[1:]:
        _, h, mlp, *_ = shape = SHAPES[name]
        total = sum(int(np.prod(dims)) for t, _, dims, _ in tensors(*shape) if len(dims) == 2)
        w, answer = weights(mlp, h), multiprocessing.Queue()
        child = multiprocessing.get_context("fork").Process(target=peak_of_head, args=(shape[6], h, answer))
        child.start()
        peak = answer.get()
        child.join()
        for scheme, compress in methods.items():
            start = time.process_time()
            compress(w)
            speed = (64 * h if scheme.startswith("lut") else w.size) / (time.process_time() - start)
            print(f"| {name} | {scheme} | {speed:.3g} | {total / speed:.0f} s | "
                  + (f"{peak:.0f} MiB |" if scheme == "w8" else "|"), flush=True)


if __name__ == "__main__":
    main()
