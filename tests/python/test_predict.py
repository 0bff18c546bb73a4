"""millet predict --calls on every package of the shared cases, against PyTorch's float32 results within each case's own
tolerance."""
import json, os, pathlib, subprocess, sys, tempfile
from cases import directory, judge, load, scores_of

cases = directory("coreml")
bad = checked = 0
with tempfile.TemporaryDirectory() as work:
    output = pathlib.Path(work) / "out.safetensors"
    for path in sorted(cases.glob("*.json")):
        case = json.loads(path.read_text())
        run = subprocess.run([os.environ["MILLET_BIN"], "predict", cases / case["package"], "--calls", path, "-o", output],
                             capture_output=True)
        if run.returncode:
            print(f"{path.name}: {run.stderr.decode()}")
            bad += 1
            continue
        wanted, got = load(cases / case["tensors"]), load(output)
        for n, call in enumerate(case["calls"]):
            for kind, entries in (("out", call["outputs"]), ("state", call["states_after"])):
                for name, entry in entries.items():
                    checked += 1
                    want = wanted[entry["f32"]]
                    problem = judge(got.get(f"call{n}.{kind}.{name}"), want, entry, scores_of(want, entries, wanted))
                    if problem:
                        print(f"{path.name}: call {n} {kind} {name} {problem}")
                        bad += 1
print(f"{checked} tensors, {bad} wrong")
sys.exit(bad > 0 or not checked)
