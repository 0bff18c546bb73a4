"""tests/python/driver.py, a script against coremltools, runs with its import line changed and nothing else, on every layout of
packages: greedy ids are transformers'."""
import binding
import json, os, pathlib, subprocess, sys, tempfile

script = (pathlib.Path(__file__).parent / "driver.py").read_text()
LINE = "import coremltools as ct\n"
assert script.count("coremltools as ct") == script.count(LINE) == 1
golden = json.loads((binding.SOURCE / "tests" / "data" / "generate" / "tiny-qwen3.5.json").read_text())["prompts"]
environment = {**os.environ, "PYTHONPATH": sys.path[0]}


def run(work, *arguments):
    done = subprocess.run([sys.executable, work / "driver.py", *map(str, arguments)], capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    (work / "driver.py").write_text(script.replace(LINE, LINE.replace("coremltools", "millet")))
    for n, options in enumerate((["--precision", "float32"], ["--precision", "float32", "--chunks", "2", "--prefill", "4"],
                                 ["--prefill", "4,16", "--kv", "stacked"], ["--chunks", "3", "--table", "int8"])):
        artifact = work / f"artifact{n}"
        subprocess.run([binding.BUILD / "millet", "convert", binding.SOURCE / "models" / "tiny-qwen3.5", "-o", artifact, "-q",
                        "--context", "128", *options], check=True)
        for prompt in golden:
            ids = ",".join(map(str, prompt["ids"]))
            # up to the first pair of candidates that the precision may change places of
            margins = prompt["greedy_margin"] if "float32" not in options else []
            near = next((i for i, m in enumerate(margins) if m < 0.2), 64)
            assert run(work, artifact, ids, 64)[:near] == prompt["greedy"][:near], options
        hot = [run(work, artifact, ids, 12, 1.5, seed) for seed in (1, 1, 2)]
        assert hot[0] == hot[1] != hot[2]
        print(" ".join(options), "ok", flush=True)
