#!/usr/bin/env python3
"""What millet convert --report says of every compressed tensor is what coremltools decompresses, beside the checkpoint."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "e2e")]
CHECKPOINT = os.path.join(os.environ["MILLET_SOURCE"], "models", "tiny-qwen3.5")
# Rounding: the report's sums are of the same numbers in another order.
TOLERANCE = 1e-9


def compressed(package):
    """name -> value of every constexpr op."""
    import coremltools as ct
    from coremltools.converters.mil.frontend.milproto import load as milproto

    spec = ct.utils.load_spec(package)
    program = milproto.load(spec, spec.specificationVersion, os.path.join(package, "Data", "com.apple.CoreML", "weights"))
    function = next(iter(program.functions.values()))
    return {op.outputs[0].name: op.materialized_val_inference() for op in function.operations
            if op.op_type.startswith("constexpr_")}


RECIPE = [("*mlp_up*", "lut6"), ("*mlp_gate*", "lut8"), ("*mlp_down*", "w4"), ("*in_proj_qkv*", "w8b32"), ("*out_proj*", "w8")]


def check(options, weights, work):
    import numpy as np

    out, report = os.path.join(work, "out"), os.path.join(work, "report.json")
    subprocess.run([os.environ["MILLET_BIN"], "convert", CHECKPOINT, "-o", out, "-q", "--overwrite", "--report", report, *options],
                   check=True)
    with open(report) as f:
        rows = {t["name"]: t for t in json.load(f)["tensors"]}
    found = {}
    for name in os.listdir(out):
        if name.endswith(".mlpackage"):
            found |= compressed(os.path.join(out, name))
    assert set(found) == {n for n, t in rows.items() if t["scheme"] != "none"}, "the report lists other tensors than the package"
    assert not [n for n in found if re.search(r"norm|conv|A_log|dt_bias|rope|mask", n)], "what must not be compressed"
    for name, value in found.items():
        want = weights[name].astype(np.float16).astype(np.float64)
        d = value.astype(np.float64) - want
        row = rows[name]
        assert value.dtype == np.float16 and list(value.shape) == row["shape"], name
        error = np.sqrt((d**2).sum() / (want**2).sum())
        assert abs(error - row["relative_error"]) <= TOLERANCE, (name, error, row)
        assert np.abs(d).max() == row["largest_error"], (name, np.abs(d).max(), row)
    for name, row in rows.items():
        assert row["scheme"] != "none" or row["why"], f"{name} stays as it is, and nothing says why"
    schemes = {t["scheme"] for t in rows.values()}
    assert schemes == {"none", "lut4", "w8b32", *(s for _, s in RECIPE)}, schemes
    print(f"{len(found)} tensors of {len(schemes) - 1} schemes, each with the error that the report states")


def main():
    import test_converted
    import check_coremltools  # noqa: F401 (quiets coremltools)

    weights = {}
    for name, value in test_converted.tensors(CHECKPOINT).items():
        if re.search(r"layers\.\d+\.", name) and not name.startswith("mtp"):
            weights[re.sub(r".*layers\.", "layer_", name).replace(".", "_")] = value
        elif name.endswith("embed_tokens.weight") and not name.startswith("mtp"):
            weights["lm_head_weight"] = value
    with tempfile.TemporaryDirectory() as work:
        recipe = os.path.join(work, "recipe.json")
        with open(recipe, "w") as f:
            json.dump({"rules": [{"match": m, "scheme": s} for m, s in RECIPE]}, f)
        check(["--quantize", "lut4", "--group-size", "8", "--vocab", "w8b32", "--recipe", recipe], weights, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
