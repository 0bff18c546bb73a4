#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/run: models of the shared Core ML cases with their weights written in place, so that one file
is a whole model. Needs coremltools. Usage: make_fuzz_models.py CASES/coreml"""
import glob, os, struct, sys
from coremltools.proto import Model_pb2

out = os.path.join(os.path.dirname(__file__), "../fuzz/corpus/run")
os.makedirs(out, exist_ok=True)
LIMIT = 40000


def blob(pkg, v):
    name = v.blobFileValue.fileName.replace("@model_path", pkg + "/Data/com.apple.CoreML")
    with open(name, "rb") as f:
        f.seek(v.blobFileValue.offset)
        _, code, size, at = struct.unpack("<IIQQ", f.read(24))
        f.seek(at)
        return code, f.read(size)


def in_place(pkg, v):
    if v.WhichOneof("value") != "blobFileValue":
        return
    code, data = blob(pkg, v)
    t = v.immediateValue.tensor
    if code == 2:
        t.floats.values.extend(struct.unpack("<%df" % (len(data) // 4), data))
    elif code in (14, 6, 7):
        t.ints.values.extend(struct.unpack("<%d%s" % (len(data) // (4 if code == 14 else 2), {14: "i", 6: "h", 7: "H"}[code]), data))
    else:
        t.bytes.values = data


def walk(pkg, block):
    for op in block.operations:
        for v in op.attributes.values():
            in_place(pkg, v)
        for arg in op.inputs.values():
            for b in arg.arguments:
                if b.WhichOneof("binding") == "value":
                    in_place(pkg, b.value)
        for b in op.blocks:
            walk(pkg, b)


for pkg in sorted(glob.glob(sys.argv[1] + "/*.mlpackage")):
    m = Model_pb2.Model()
    m.ParseFromString(open(pkg + "/Data/com.apple.CoreML/model.mlmodel", "rb").read())
    if m.WhichOneof("Type") != "mlProgram":
        continue
    for f in m.mlProgram.functions.values():
        for b in f.block_specializations.values():
            walk(pkg, b)
    data = m.SerializeToString(deterministic=True)
    if len(data) <= LIMIT:
        open(os.path.join(out, os.path.basename(pkg).replace(".mlpackage", ".mlmodel")), "wb").write(data)
        print(os.path.basename(pkg), len(data))
