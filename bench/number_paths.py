#!/usr/bin/env python3
"""What each number path of linear layers does to a model's predictions, by weight scheme and instruction set.

    bench/number_paths.py build/millet models/tiny-qwen3.5 ORACLE.json [SCHEME ...]

ORACLE.json: of the shared cases (oracles/tiny-qwen3.5/oracle.json, oracles/tiny-qwen3/oracle.json), for its ids. Needs numpy.
The ids are scored, teacher-forced, with one path for calls of every size (a row's result does not depend on how many
rows are in a call, bf16's up to the instruction set), and the logits are held against those of --linear exact: KL(exact || path) in
nats, mean and largest, and how often the first choice is the same. Below the paths stands, for scale, what the scheme itself did:
the same figures of `exact` against the fp16 weights."""
import json, os, struct, subprocess, sys, tempfile
import numpy as np

SCHEMES = ["fp16", "w8", "w8b32", "w4", "lut6", "lut4"]
PATHS = ["int16", "bf16", "int8"]
ISAS = os.environ["ISAS"].split() if "ISAS" in os.environ else ["portable", "avx2", "avx512", "avx512bf16", "amx"]
TOKENS = int(os.environ.get("TOKENS", "2000"))


def sequence(oracle):
    ids = []
    for p in oracle["prompts"]:
        ids += p["ids"] + p["greedy"]
    ids += oracle["teacher_forced"]["ids"]
    for c in oracle["chat"]:
        ids += c["ids"] + c.get("greedy", [])
    return ids[:TOKENS]


def load(path):
    """The one tensor of a safetensors file, F32."""
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    shape = json.loads(raw[8 : 8 + size])["logits"]["shape"]
    return np.frombuffer(raw, np.float32, offset=8 + size).reshape(shape)


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def compare(want, got):
    """KL mean, KL largest, share of equal first choices."""
    a, b = log_softmax(want), log_softmax(got)
    kl = (np.exp(a) * (a - b)).sum(axis=1)
    return kl.mean(), kl.max(), (want.argmax(axis=1) == got.argmax(axis=1)).mean()


def main():
    millet, checkpoint, oracle, *schemes = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work, open(oracle) as f:
        ids = os.path.join(work, "ids.json")
        with open(ids, "w") as out:
            json.dump(sequence(json.load(f)), out)

        def logits(package, path, isa):
            out = os.path.join(work, "logits.safetensors")
            subprocess.run([millet, "score", package, "--ids-file", ids, "--linear", path, "--logits", out, "--json"],
                           env=os.environ | ({"MILLET_ISA": isa} if isa else {}), check=True, stdout=subprocess.DEVNULL)
            return load(out)

        def kernels(package, path, isa):
            """The linear steps of a plan, without names: who computes what."""
            env = os.environ | {"MILLET_ISA": isa, "MILLET_LINEAR": path}
            return subprocess.run([millet, "inspect", package, "--plan"], env=env, check=True, capture_output=True, text=True).stdout

        print("| scheme | path | isa | mean KL | largest KL | equal first choice |\n|---|---|---|---|---|---|")
        plain = None
        for scheme in schemes or SCHEMES:
            package = os.path.join(work, scheme)
            top = [] if "qwen3.5" in checkpoint else ["--top-k", "0"]
            subprocess.run([millet, "convert", checkpoint, "-o", package, "--quantize", scheme, "-q"] + top, check=True)
            exact = logits(package, "exact", None)
            for path in PATHS:
                for isa in ISAS if path != "int16" else [None]:
                    if isa and not any(line.split()[2:3] == ["linear"] and path in line for line in kernels(package, path, isa).split("\n")):
                        continue  # no such kernels: other paths stand in
                    got = logits(package, path, isa)
                    print("| %s | %s | %s | %.2e | %.2e | %.2f %% |" % ((scheme, path, isa or "every one") + figures(exact, got)), flush=True)
            if plain is None:
                plain = exact
            else:
                print("| %s | the scheme itself | | %.2e | %.2e | %.2f %% |" % ((scheme,) + figures(plain, exact)), flush=True)


def figures(want, got):
    mean, most, same = compare(want, got)
    return mean, most, 100 * same


main()
