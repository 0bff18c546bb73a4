#!/usr/bin/env python3
"""Converted checkpoints, every preset that applies in every precision: coremltools accepts the packages, and its typed
program loader infers the same types."""
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
CASES = os.environ.get("MILLET_CASES", "../shared/cases")
SMALL = os.path.join(os.environ["MILLET_SOURCE"], "models", "tiny-qwen3.5")


def convert(checkpoint, preset, precision, out):
    run = subprocess.run([os.environ["MILLET_BIN"], "convert", checkpoint, "-o", out, "--quiet", "--context", "64",
                          "--preset", preset, "--precision", precision], capture_output=True, text=True)
    return None if run.returncode == 0 else run.stderr.strip()


def main():
    import check_coremltools

    checkpoints = sorted(os.path.dirname(p) for p in glob.glob(os.path.join(CASES, "models", "*", "config.json")))
    if not checkpoints:
        print(f"skipped: checkpoints other than {SMALL}: {CASES}/models is not there (set MILLET_CASES)")
    bad, packages = 0, []
    with tempfile.TemporaryDirectory() as work:
        for checkpoint in checkpoints or [SMALL]:
            with open(os.path.join(checkpoint, "config.json")) as f:
                recurrent = json.load(f)["model_type"].startswith("qwen3_5")
            for preset in ("chunks", "single"):
                for precision in ("mixed", "float16", "float32"):
                    out = os.path.join(work, f"{os.path.basename(checkpoint)}-{preset}-{precision}")
                    problem = convert(checkpoint, preset, precision, out)
                    if recurrent and preset == "single":
                        if not problem or "single" not in problem:
                            bad += 1
                            print(f"FAILED {out}: preset single is not refused: {problem}")
                    elif problem:
                        bad += 1
                        print(f"FAILED {out}: {problem}")
                    else:
                        packages.append(os.path.join(out, "model.mlpackage"))
        print(f"{len(packages)} packages")
        return check_coremltools.main(packages) or int(bad > 0 or not packages)


if __name__ == "__main__":
    sys.exit(main())
