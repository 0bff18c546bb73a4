#!/usr/bin/env python3
"""Packages that were read and written again: coremltools loads them, and Google's protobuf finds the same message."""
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
CASES = os.environ.get("MILLET_CASES", "../shared/cases")
ROOTS = [os.path.join(CASES, "coreml"), os.path.join(CASES, "thirdparty")]


def message(package):
    from coremltools.proto import Model_pb2

    model = Model_pb2.Model()
    with open(os.path.join(package, "Data", "com.apple.CoreML", "model.mlmodel"), "rb") as f:
        model.ParseFromString(f.read())
    return model


def originals():
    for root in ROOTS:
        for path in glob.glob(os.path.join(root, "**", "*.mlpackage"), recursive=True):
            yield os.path.basename(path), path


def main():
    if not os.path.isdir(ROOTS[0]):
        print(f"skipped: {ROOTS[0]} is not there (set MILLET_CASES)")
        return 77
    import check_coremltools

    writer = os.path.join(os.path.dirname(os.environ["MILLET_BIN"]), "tests", "test_coreml_roundtrip")
    with tempfile.TemporaryDirectory() as kept:
        subprocess.run([writer], check=True, env={**os.environ, "MILLET_KEEP": kept})
        written = {os.path.basename(p): p for p in glob.glob(os.path.join(kept, "*.mlpackage"))}
        differ = 0
        for name, path in originals():
            one = message(path)
            # With several functions weights may come in another order: the message's offsets differ then.
            if len(one.mlProgram.functions) < 2 and one != message(written[name]):
                print(f"FAILED {name}: another message than before")
                differ += 1
        return check_coremltools.main(sorted(written.values())) or int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
