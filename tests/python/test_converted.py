#!/usr/bin/env python3
"""Converted checkpoints, all presets and precisions: coremltools loads the packages, and what stands in weight.bin and
*_embed_tokens.*.bin is what the checkpoint holds, read by other programs (safetensors, coremltools' blob reader, zlib)."""
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
MODELS = os.path.join(os.environ.get("MILLET_CASES", "../shared/cases"), "models")
SMALL = os.path.join(os.environ["MILLET_SOURCE"], "models", "tiny-qwen3.5")


def tensors(checkpoint):
    """name -> fp32 array, from every safetensors file."""
    import numpy as np

    found = {}
    for path in glob.glob(os.path.join(checkpoint, "*.safetensors*")):
        if path.endswith(".json"):
            continue
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            base = f.tell()
            for name, t in head.items():
                if name == "__metadata__":
                    continue
                f.seek(base + t["data_offsets"][0])
                raw = f.read(t["data_offsets"][1] - t["data_offsets"][0])
                if t["dtype"] == "BF16":
                    value = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
                else:
                    value = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[t["dtype"]]).astype(np.float32)
                found[name] = value.reshape(t["shape"])
    return found


def check_table(out, want):
    import numpy as np

    [path] = glob.glob(os.path.join(out, "*_embed_tokens.fp*.bin"))
    with open(path, "rb") as f:
        head, rows = f.read(64), f.read()
    magic, version, kind, count, width, row_bytes, crc = struct.unpack("<8sIIQQQI", head[:44])
    assert magic == b"MLTEMBED" and version == 1 and kind in (1, 2), "header"
    assert struct.unpack("<I", head[60:])[0] == zlib.crc32(head[:60]), "checksum of the header"
    assert crc == zlib.crc32(rows), "checksum of the rows"
    dtype = np.float16 if kind == 1 else np.float32
    assert (count, width) == want.shape and row_bytes == width * dtype().itemsize, "sizes"
    assert np.array_equal(np.frombuffer(rows, dtype).reshape(count, width), want.astype(dtype)), "rows"


def check_weights(package, checkpoint):
    """Every projection of every layer, by name. Returns how many there were."""
    import coremltools as ct
    import numpy as np
    from coremltools.libmilstoragepython import _BlobStorageReader

    spec = ct.utils.load_spec(package)
    reader = _BlobStorageReader(os.path.join(package, "Data", "com.apple.CoreML", "weights", "weight.bin"))
    wanted = {re.sub(r".*layers\.", "layer_", n).replace(".", "_"): t for n, t in checkpoint.items()
              if re.search(r"layers\.\d+\..*proj(_\w+)?\.weight$", n) and not n.startswith("mtp")}
    seen = 0
    functions = spec.mlProgram.functions
    for op in functions["main" if "main" in functions else "decode"].block_specializations["CoreML8"].operations:
        if op.type != "const" or op.outputs[0].name not in wanted:
            continue
        value = op.attributes["val"]
        if value.WhichOneof("value") != "blobFileValue":
            continue
        want = wanted[op.outputs[0].name].ravel()
        if value.type.tensorType.dataType == 10:
            got, want = reader.read_fp16_data(value.blobFileValue.offset).view(np.float16), want.astype(np.float16)
        else:
            got = reader.read_float_data(value.blobFileValue.offset)
        assert np.array_equal(got, want), op.outputs[0].name
        seen += 1
    assert seen == len(wanted), f"{seen} of {len(wanted)} weights found"
    return seen


def main():
    import check_coremltools

    sources = sorted(os.path.dirname(p) for p in glob.glob(os.path.join(MODELS, "*", "config.json")))
    if not sources:
        print(f"skipped: checkpoints other than {SMALL}: {MODELS} is not there (set MILLET_CASES)")

    packages, weights, refused = [], 0, 0
    with tempfile.TemporaryDirectory() as work:
        for source in sources or [SMALL]:
            with open(os.path.join(source, "config.json")) as f:
                recurrent = json.load(f)["model_type"].startswith("qwen3_5")
            held = tensors(source)
            table = next(t for n, t in held.items() if n.endswith("embed_tokens.weight") and not n.startswith("mtp"))
            for preset, top_k, more in (("chunks", 64, []), ("chunks", 0, ["--prefill", "4,64"]), ("single", 64, []),
                                        ("single", 0, [])):
                top = ["--top-k", str(top_k)] if preset == "single" else []
                for precision in ("mixed", "float16", "float32"):
                    out = os.path.join(work, f"{os.path.basename(source)}-{preset}-{precision}-{top_k}")
                    run = subprocess.run([os.environ["MILLET_BIN"], "convert", source, "-o", out, "-q", "--context", "64",
                                          "--preset", preset, "--precision", precision] + more + top,
                                         capture_output=True, text=True)
                    if preset == "single" and recurrent:
                        assert run.returncode == 1 and "preset single is not for" in run.stderr, run.stderr
                        refused += 1
                        continue
                    assert run.returncode == 0, run.stderr
                    package = os.path.join(out, "model.mlpackage")
                    packages.append(package)
                    weights += check_weights(package, held)
                    if preset == "chunks":
                        check_table(out, table)
        print(f"{len(packages)} conversions, {weights} weights equal; {refused} refused as they should be")
        return check_coremltools.main(packages)


if __name__ == "__main__":
    sys.exit(main())
