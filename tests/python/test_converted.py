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


def tensors_of(path):
    """name -> fp32 array, of a safetensors file."""
    import numpy as np

    found = {}
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


def tensors(checkpoint):
    """The same of every safetensors file of a checkpoint."""
    found = {}
    for path in glob.glob(os.path.join(checkpoint, "*.safetensors*")):
        if not path.endswith(".json"):
            found |= tensors_of(path)
    return found


def check_table(out, want):
    import numpy as np

    [path] = glob.glob(os.path.join(out, "*_embed_tokens.*.bin"))
    with open(path, "rb") as f:
        head, rows = f.read(64), f.read()
    magic, version, kind, count, width, row_bytes, crc = struct.unpack("<8sIIQQQI", head[:44])
    assert magic == b"MLTEMBED" and version == 1 and kind in (1, 2, 3), "header"
    assert struct.unpack("<I", head[60:])[0] == zlib.crc32(head[:60]), "checksum of the header"
    assert crc == zlib.crc32(rows), "checksum of the rows"
    assert (count, width) == want.shape, "sizes"
    if kind == 3:
        rows = np.frombuffer(rows, np.int8).reshape(count, row_bytes)
        codes, scales = rows[:, :width].astype(np.float32), rows[:, width:].copy().view(np.float16).astype(np.float32)
        largest = np.abs(want).max(axis=1, keepdims=True)
        assert row_bytes == width + 2 and np.array_equal(scales, (largest / np.float32(127)).astype(np.float16)), "scales"
        assert np.array_equal(codes, np.clip(np.rint(want / scales), -127, 127)), "codes"
        return
    dtype = np.float16 if kind == 1 else np.float32
    assert row_bytes == width * dtype().itemsize, "sizes"
    assert np.array_equal(np.frombuffer(rows, dtype).reshape(count, width), want.astype(dtype)), "rows"


def check_weights(packages, checkpoint):
    """Every projection of every layer, by name, each in one of the packages. Returns how many there were."""
    import coremltools as ct
    import numpy as np
    from coremltools.libmilstoragepython import _BlobStorageReader

    wanted = {re.sub(r".*layers\.", "layer_", n).replace(".", "_"): t for n, t in checkpoint.items()
              if re.search(r"layers\.\d+\..*proj(_\w+)?\.weight$", n) and not n.startswith("mtp")}
    seen = 0
    for package in packages:
        spec = ct.utils.load_spec(package)
        reader = _BlobStorageReader(os.path.join(package, "Data", "com.apple.CoreML", "weights", "weight.bin"))
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
            for name, more in (("chunks", []), ("chunks-prefill", ["--prefill", "4,64"]), ("single", []),
                               ("single-logits", ["--top-k", "0"]),
                               ("chunks-2", ["--chunks", "2", "--prefill", "4", "--kv", "stacked", "--table", "int8"])):
                preset = name.split("-")[0]
                for precision in ("mixed",) if name == "chunks-2" else ("mixed", "float16", "float32"):
                    out = os.path.join(work, f"{os.path.basename(source)}-{name}-{precision}")
                    run = subprocess.run([os.environ["MILLET_BIN"], "convert", source, "-o", out, "-q", "--context", "64",
                                          "--preset", preset, "--precision", precision] + more,
                                         capture_output=True, text=True)
                    if preset == "single" and recurrent:
                        assert run.returncode == 1 and "preset single is not for" in run.stderr, run.stderr
                        refused += 1
                        continue
                    assert run.returncode == 0, run.stderr
                    made = sorted(glob.glob(os.path.join(out, "*.mlpackage")))
                    packages += made
                    weights += check_weights(made, held)
                    if preset == "chunks":
                        check_table(out, table)
        print(f"{len(packages)} packages, {weights} weights equal; {refused} refused as they should be")
        return check_coremltools.main(packages)


if __name__ == "__main__":
    sys.exit(main())
