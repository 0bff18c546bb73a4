"""millet inspect --json against what coremltools says about every package of the shared cases."""
import json, os, pathlib, subprocess, sys

cases = pathlib.Path(os.environ["MILLET_CASES"]) / "coreml"
if not cases.is_dir():
    print(f"skipped: {cases} is not there (set MILLET_CASES)")
    sys.exit(77)


def described(features):
    """Name -> (dtype, shape, range, shapes) of either side's list; flexible outputs have no declared shape."""
    return {
        f["name"]: (f.get("dtype", f.get("type")), f.get("shape") or None, f.get("range"), f.get("enumerated", f.get("shapes")))
        for f in features
    }


bad = checked = 0
for path in sorted(cases.glob("*.json")):
    want = json.loads(path.read_text())
    run = subprocess.run([os.environ["MILLET_BIN"], "inspect", cases / want["package"], "--json"], capture_output=True)
    if run.returncode:
        print(path.name, run.stderr.decode())
        bad += 1
        continue
    got = json.loads(run.stdout)
    functions = {f["name"]: f for f in got["functions"]}
    facts = [("specification", got["specification"], want["specificationVersion"])]
    ops = {}
    for part in got.get("parts", [got]):
        for function in part["functions"]:
            for op, n in function["ops"].items():
                ops[op] = ops.get(op, 0) + n
    if want["op_histogram"]:
        facts.append(("ops", ops, {k: v for k, v in want["op_histogram"].items() if k != "const"}))
    for name, function in want.get("functions", {}).items():
        own = functions.get(name, {"inputs": [], "outputs": [], "states": []})
        for kind in ("inputs", "outputs", "states"):
            facts.append((f"{name} {kind}", described(own[kind]), described(function[kind])))
        if not got.get("parts"):
            facts.append((f"{name} opset", own.get("opset"), want["opsets"][name]))
    for what, mine, theirs in facts:
        checked += 1
        if mine != theirs:
            print(f"{path.name}: {what}: {mine}, not {theirs}")
            bad += 1
print(f"{checked} facts, {bad} wrong")
sys.exit(bad > 0 or not checked)
