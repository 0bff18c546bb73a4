#!/usr/bin/env python3
"""Millet beside other engines and the machine's own limits, as one table.

    bench/peers.py prepare --work DIR [--again]     random checkpoints of true shapes and their packages (needs numpy)
    bench/peers.py run --work DIR [--rows decode,prefill] [--quick] [--json FILE] [--note TEXT]...
                   [--llama 'LBENCH {model} {threads} {flash} {tests}']... [--openvino 'PROGRAM {model} {threads} {tests}']

A peer is a command that prints a JSON line for each test, with at least {"spec": "tg32@2048", "med": tokens a second}: ppN
takes a prompt of N tokens (as often as the environment's REP says), tgN@D generates N behind D. Its models are
DIR/gguf/SHAPE-TYPE.gguf and DIR/ov/SHAPE-int8; docs/performance.md says how they were made. A row whose peer or model is
not there says so, one that fails says why; the others go on.

Engines take turns: in each of five rounds every one is started, measured and ended, in an order that alternates, and millet
reads memory right after it has generated, so that what is compared lies within a minute. Figures are medians over rounds,
ratios those of medians, shares of the read bandwidth medians of the rounds' own. Of several settings of a peer the best of
the first round goes on. --quick: one round, few tokens, small depths: it shows that all works, not how fast."""
import argparse, datetime, json, os, shlex, shutil, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
SHORT, DEEP = 2048, 8448  # contexts of packages, positions
PREFILL = "64,128,512"    # sizes of their prefill functions
SECONDS = 900             # for one program
MODELS, SCHEMES = ("qwen3-0.6b", "qwen3.5-0.8b", "qwen3-1.7b"), ("w8b32", "lut6", "w4")
PACKAGES = [(m, s, SHORT) for m in MODELS for s in SCHEMES] + [
    ("qwen3-0.6b", "w8", SHORT), ("qwen3-0.6b", "w4", DEEP), ("qwen3.5-0.8b", "lut6", DEEP),
    ("qwen3-32m", "w8", SHORT), ("tiny-qwen3.5", "fp16", SHORT)]
TRAINED = {"tiny-qwen3.5": os.path.join(HERE, "..", "models", "tiny-qwen3.5")}
TYPE = {"w8b32": "Q8_0", "lut6": "Q6_K", "w4": "Q4_0"}  # llama.cpp's of about as many bits
TYPES = ("Q4_0", "Q4_K_M", "Q6_K", "Q8_0")


class Missing(Exception):
    """What a row needs is not there."""


# ---- packages ----

def package_path(o, model, scheme, context):
    return os.path.join(o.work, "millet", f"{model}-{scheme}-{context}")


def convert(o, model, scheme, context):
    out = package_path(o, model, scheme, context)
    if os.path.exists(out) and not o.again:
        return
    checkpoint = TRAINED.get(model) or os.path.join(o.work, "ckpt", model)
    if not os.path.exists(checkpoint):
        subprocess.run([sys.executable, os.path.join(HERE, "make_checkpoint.py"), model, checkpoint], check=True)
    print(out, flush=True)
    subprocess.run([o.millet, "convert", checkpoint, "-o", out, "--overwrite", "--quiet", "--preset", "chunks",
                    "--quantize", scheme, "--context", str(context), "--prefill", PREFILL], check=True)


def prepare(o):
    for model in dict.fromkeys(p[0] for p in PACKAGES):
        for p in PACKAGES:
            if p[0] == model:
                convert(o, *p)
        if not o.keep:
            shutil.rmtree(os.path.join(o.work, "ckpt", model), ignore_errors=True)


# ---- one measurement ----

def command(argv, **env):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, env=dict(os.environ, **env))
    if p.returncode:
        raise RuntimeError(f"{os.path.basename(argv[0])}: exit code {p.returncode} {p.stderr.strip()[-200:]}")
    return p.stdout


def millet(o, model, scheme, *options, context=SHORT, threads=2):
    """What millet bench prints."""
    path = package_path(o, model, scheme, context)
    if not os.path.exists(path):
        raise Missing(f"no package {path}")
    return json.loads(command([o.millet, "bench", path, "--json", "-t", str(threads), *options]))


def generation(d, i=0):
    r = d["results"][i]
    return {"rate": r["decode_tokens_per_s"], "bytes": r["bytes_per_token"], "gb": r["gb_per_s"], "share": r["share_of_read"],
            "read": d["limits"][0]["read_best_gb_per_s"], "load": d["load_average"]}


def prompt(d, i=0):
    r = d["results"][i]
    return {"rate": r["prompt_tokens_per_s"], "gflop": r["prompt_gflop_per_s"], "share": r["share_of_arithmetic"], "load": d["load_average"]}


def decode(o, model, scheme, depth=0, n=32, trials=1, **k):
    d = millet(o, model, scheme, "-n", str(n), "-d", str(depth), "-r", str(trials), **k)
    return generation(d)


def peer(o, template, model, test, flash=1, repeat=3):
    if not template:
        raise Missing("no command for this peer")
    if not os.path.exists(model):
        raise Missing(f"no model {model}")
    argv = [w.format(model=model, threads=2, flash=flash, tests=test) for w in shlex.split(template)]
    for line in command(argv, REP=str(repeat)).splitlines():
        d = json.loads(line) if line.startswith("{") else {}
        if d.get("spec") == test:
            return {"rate": d["med"]}
    raise RuntimeError(f"{os.path.basename(argv[0])} printed nothing for {test}")


def llama(o, model, types, test, flashes=(1,), templates=None, repeat=3):
    """Settings to choose from: name -> measurement."""
    choice = {}
    for at, template in enumerate(o.llama[:templates] or [None]):
        for t in types:
            for flash in flashes:
                name = t + ("" if len(flashes) == 1 else " FA on" if flash else " FA off") + (f" #{at + 1}" if len(o.llama) > 1 else "")
                path = os.path.join(o.work, "gguf", f"{model}-{t}.gguf")
                choice[name] = lambda template=template, path=path, flash=flash: peer(o, template, path, test, flash, repeat)
    return choice


def openvino(o, model, test, repeat):
    return {"OpenVINO int8": lambda: peer(o, o.openvino, os.path.join(o.work, "ov", model + "-int8"), test, repeat=repeat)}


# ---- rounds ----

class Side:
    """A measurement, or settings of which the best goes on, over rounds."""

    def __init__(self, choice):
        self.choice, self.name, self.got, self.wrong = choice, "", [], []

    def turn(self):
        best = None
        for name, f in list(self.choice.items()):
            try:
                r = f()
            except (Missing, RuntimeError, subprocess.TimeoutExpired, KeyError, ValueError, TypeError) as e:
                self.wrong.append(f"{name}: {e}")
                del self.choice[name]
                continue
            if not best or r["rate"] > best[1]["rate"]:
                best = (name, r)
        if best:
            self.name = best[0]
            self.choice = {best[0]: self.choice[best[0]]}
            self.got.append(best[1])

    def median(self, key="rate"):
        x = [r[key] for r in self.got if r.get(key) is not None]
        return statistics.median(x) if x else None


def rounds(o, n, *choices):
    sides = [Side(dict(c)) for c in choices]
    for i in range(1 if o.quick else n):
        for s in sides if i % 2 == 0 else reversed(sides):
            s.turn()
    return sides


# ---- the table ----

class Table:
    def __init__(self):
        self.lines = []

    def add(self, row, what, value, least, aim, unit, ours, beside, sides, otherwise=False):
        """otherwise: what counts as reached for another reason."""
        lower = aim < least
        reached = "-"
        if value is not None:
            good = (lambda g: value <= g) if lower else (lambda g: value >= g)
            reached = "aim" if good(aim) else "least" if good(least) else "bandwidth" if otherwise else "no"
        wrong = [w for s in sides for w in s.wrong]
        self.lines.append({"row": row, "what": what, "value": value, "least": least, "aim": aim, "unit": unit, "reached": reached,
                           "millet": ours, "beside": beside, "wrong": wrong,
                           "raw": [{"side": s.name, "rounds": s.got} for s in sides]})
        print(self.line(self.lines[-1]), flush=True)

    def failed(self, row, e):
        self.lines.append({"row": row, "what": row, "value": None, "reached": "failed", "wrong": [f"{type(e).__name__}: {e}"]})
        print(self.line(self.lines[-1]), flush=True)

    @staticmethod
    def head():
        return "| what | figure | at least | aim | reached | millet | beside it |\n|---|---:|---:|---:|---|---|---|"

    @staticmethod
    def figure(v, unit):
        if v is None:
            return "-"
        return f"{100 * v:.0f} %" if unit == "%" else f"{v:.2f} ×" if unit == "x" else f"{v:.3f} s" if unit == "s" else f"{v:,.0f} {unit}"

    def line(self, l):
        if "unit" not in l:
            return f"| {l['what']} | - | | | failed: {'; '.join(l['wrong'])} | | |"
        f = [self.figure(l[k], l["unit"]) for k in ("value", "least", "aim")]
        return "| " + " | ".join([l["what"], *f, l["reached"], l["millet"], l["beside"] + "".join(f" ({w})" for w in l["wrong"])]) + " |"


def speed(s):
    return "-" if s.median() is None else f"{s.median():,.1f} tok/s" if s.median() < 1000 else f"{s.median():,.0f} tok/s"


def moved(s):
    if s.median("gb") is None:
        return speed(s)
    return f"{speed(s)}, {s.median('bytes') / 1e6:,.0f} MB a token, {s.median('gb'):.1f} GB/s"


def reading(s):
    return "-" if s.median("read") is None else f"read {s.median('read'):.1f} GB/s"


def ratio(a, b):
    return a / b if a and b else None


# ---- rows ----

def row_decode(o, t):
    n = 8 if o.quick else 32
    for model in o.models:
        for scheme in SCHEMES:
            ours, theirs = rounds(o, 5, {"millet": lambda: decode(o, model, scheme, n=n)}, llama(o, model, [TYPE[scheme]], f"tg{n}"))
            share, name = ours.median("share"), f"{model} {scheme}, decode"
            t.add("decode", name + ", of read bandwidth", share, 0.8, 0.9, "%", moved(ours), reading(ours), [ours])
            t.add("decode", f"{name} : {theirs.name or TYPE[scheme]}", ratio(ours.median(), theirs.median()), 1.2, 1.4, "x",
                  speed(ours), speed(theirs), [theirs], (share or 0) >= 0.9)


def row_depth(o, t):
    """One round behind 8,192 tokens, five trials in it, and the first build of the peer: the way there takes longest."""
    n, model = (4 if o.quick else 24), "qwen3-0.6b"
    for depth, turns, trials, builds in ((128, 1, 1, 2), (256, 1, 1, 1)) if o.quick else ((2048, 5, 1, 2), (8192, 1, 5, 1)):
        ours, theirs = rounds(o, turns, {"millet": lambda: decode(o, model, "w4", depth, n, trials, context=DEEP)},
                              llama(o, model, ["Q4_0"], f"tg{n}@{depth}", (1, 0), builds))
        share, name = ours.median("share"), f"{model} w4, decode behind {depth:,}"
        t.add("depth", name + ", of read bandwidth", share, 0.65, 0.85, "%", moved(ours), reading(ours), [ours])
        t.add("depth", f"{name} : {theirs.name}", ratio(ours.median(), theirs.median()), 1.8, 2.5, "x", speed(ours), speed(theirs),
              [theirs], (share or 0) >= 0.85)


def row_hybrid(o, t):
    n, depth, kept = (4 if o.quick else 32), (256 if o.quick else 8192), []

    def both():
        d = millet(o, "qwen3.5-0.8b", "lut6", "-n", str(n), "-d", f"0,{depth}", "-r", "1" if o.quick else "5", context=DEEP)
        kept.append(generation(d, 1))
        return generation(d, 0)
    (s,) = rounds(o, 1, {"millet": both})
    deep = Side({})
    deep.name, deep.got = f"behind {depth}", kept
    t.add("hybrid", f"qwen3.5-0.8b lut6, GB/s behind {depth:,} ÷ at 0", ratio(deep.median("gb"), s.median("gb")), 0.92, 0.98, "x",
          moved(deep), "at 0: " + moved(s), [s, deep])


def row_prefill(o, t):
    repeat = "1" if o.quick else "3"
    for n in (128, 512):
        ours, theirs = rounds(o, 5, {"millet": lambda: prompt(millet(o, "qwen3-0.6b", "w8", "-p", str(n), "-r", repeat))},
                              openvino(o, "qwen3-0.6b", f"pp{n}", repeat))
        t.add("prefill", f"qwen3-0.6b w8, prompt of {n} : {theirs.name or 'OpenVINO int8'}", ratio(ours.median(), theirs.median()), 1.1, 1.6,
              "x", f"{speed(ours)}, {ours.median('gflop') or 0:,.0f} GFLOP/s", speed(theirs), [ours, theirs])


def row_prefill35(o, t):
    def ours(scheme):
        return {scheme: lambda: prompt(millet(o, "qwen3.5-0.8b", scheme, "-p", "512", "-r", "1" if o.quick else "3"))}
    a, b, theirs = rounds(o, 5, ours("lut6"), ours("w8b32"), llama(o, "qwen3.5-0.8b", TYPES, "pp512", repeat=1 if o.quick else 3))
    for s in (a, b):
        t.add("prefill35", f"qwen3.5-0.8b {s.name}, prompt of 512 : llama.cpp {theirs.name}", ratio(s.median(), theirs.median()), 1.5, 2.5, "x",
              f"{speed(s)}, {s.median('gflop') or 0:,.0f} GFLOP/s", speed(theirs), [s, theirs])


def row_start(o, t):
    def start(model, scheme):
        d = millet(o, model, scheme, "-n", "16", "-p", "128", "-r", "1", "--start")
        return {"rate": 1, "first": d["start"]["cached_first_token_s"], "opened": d["start"]["cached_opened_s"],
                "cold": d["start"]["cold_first_token_s"], "peak": d["peak_bytes"] / d["package_bytes"], "size": d["package_bytes"]}
    for model, scheme in (("qwen3.5-0.8b", "lut6"), ("qwen3-0.6b", "w4")):
        (s,) = rounds(o, 1, {"millet": lambda: start(model, scheme)})  # five starts in it
        if model == "qwen3.5-0.8b":
            cold = s.median("cold")
            t.add("start", f"{model} {scheme}, process made to first token, files in memory", s.median("first"), 0.25, 0.1, "s",
                  f"opened after {s.median('opened') or 0:.3f} s", f"caches dropped: {cold:.2f} s" if cold else "-", [s])
        t.add("start", f"{model} {scheme}, peak memory ÷ package", s.median("peak"), 1.15, 1.05, "x",
              f"package {(s.median('size') or 0) / 1e6:,.0f} MB", "prompt of 128, 16 tokens", [s])


def row_strict(o, t):
    for model in ("qwen3-0.6b", "qwen3.5-0.8b"):
        def at(precision):
            return {precision: lambda: generation(millet(o, model, "lut6", "-n", "4" if o.quick else "16", "-r", "1", "--precision", precision))}
        strict, fast = rounds(o, 5, at("strict"), at("fast"))
        t.add("strict", f"{model} lut6, decode, strict : fast", ratio(strict.median(), fast.median()), 0.3, 0.6, "x", speed(strict), speed(fast),
              [strict, fast])


def row_tiny(o, t):
    (s,) = rounds(o, 5, {"millet": lambda: decode(o, "tiny-qwen3.5", "fp16", n=256, trials=1 if o.quick else 3)})
    t.add("tiny", "tiny-qwen3.5 fp16, decode", s.median(), 3000, 8000, "tok/s", moved(s), reading(s), [s])


def row_threads(o, t):
    def with_threads(f):
        return [{f"{n} thread{'s' * (n > 1)}": lambda n=n: f(n)} for n in (1, 2)]
    one, two = rounds(o, 5, *with_threads(lambda n: decode(o, "qwen3-32m", "w8", n=128, trials=1 if o.quick else 3, threads=n)))
    t.add("threads", "qwen3-32m w8 (in cache), decode, two threads : one", ratio(two.median(), one.median()), 1.8, 1.95, "x", speed(two),
          speed(one), [one, two])
    one, two = rounds(o, 5, *with_threads(lambda n: prompt(millet(o, "qwen3-0.6b", "w8", "-p", "512", "-r", "1", threads=n))))
    t.add("threads", "qwen3-0.6b w8, prompt of 512, two threads : one", ratio(two.median(), one.median()), 1.8, 1.95, "x", speed(two),
          speed(one), [one, two])


ROWS = {f.__name__[4:]: f for f in (row_decode, row_depth, row_hybrid, row_prefill, row_prefill35, row_start, row_strict, row_tiny, row_threads)}


# ---- the run ----

def about(o):
    d = json.loads(command([o.millet, "bench", "--limits", "--json", "-t", "2"]))
    flags = next((l for l in open("/proc/cpuinfo") if l.startswith("flags")), "")
    has = [x for x in ("amx_int8", "amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f", "avx2") if x in flags]
    w = d["limits"][-1]
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "cpu": d["cpu"], "cpus": os.cpu_count(),
            "has": has, "isa": d["isa"], "millet": command([o.millet, "--version"]).split("\n")[0], "load_average": os.getloadavg()[0],
            "read_gb_per_s": [w["read_best_gb_per_s"], w["read_median_gb_per_s"]],
            "arithmetic": {a["name"]: a["best_gop_per_s"] for a in w["arithmetic"]}, "notes": o.note, "quick": o.quick}


def run(o):
    t, facts, start = Table(), about(o), datetime.datetime.now()
    print(f"{facts['date']}; {facts['cpu']}, {facts['cpus']} CPUs ({' '.join(facts['has'])}); {facts['millet']}, kernels for {facts['isa']}; load "
          f"average {facts['load_average']:.1f}; 2 threads read {facts['read_gb_per_s'][0]:.1f} GB/s (median {facts['read_gb_per_s'][1]:.1f})"
          + "".join(f"; {n}" for n in o.note) + ("\n\n**Quick: not figures to quote.**" if o.quick else "") + "\n")
    print(Table.head(), flush=True)
    for name in o.rows:
        try:
            ROWS[name](o, t)
        except Exception as e:  # whatever it was: the next row goes on
            t.failed(name, e)
    facts["minutes"], facts["load_average_after"] = (datetime.datetime.now() - start).total_seconds() / 60, os.getloadavg()[0]
    print(f"\n{facts['minutes']:.1f} minutes; load average at the end {facts['load_average_after']:.1f}")
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"about": facts, "lines": t.lines}, f, indent=1)


def one_of(names):
    def check(text):
        chosen = text.split(",")
        for c in chosen:
            if c not in names:
                raise argparse.ArgumentTypeError(f"'{c}' is none of {', '.join(names)}")
        return chosen
    return check


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("what", choices=("prepare", "run"))
    a.add_argument("--work", required=True, help="directory of packages and models")
    a.add_argument("--millet", default=os.path.join(HERE, "..", "build", "millet"))
    a.add_argument("--again", action="store_true", help="prepare: convert what is there, too")
    a.add_argument("--keep", action="store_true", help="prepare: keep the checkpoints")
    a.add_argument("--rows", type=one_of(ROWS), default=list(ROWS), help=", ".join(ROWS))
    a.add_argument("--models", type=one_of(MODELS), default=MODELS, help="of the row decode")
    a.add_argument("--llama", action="append", default=[], help="command; several: builds to choose from")
    a.add_argument("--openvino", help="command")
    a.add_argument("--note", action="append", default=[], help="versions of peers, to be printed")
    a.add_argument("--quick", action="store_true")
    a.add_argument("--json", metavar="FILE")
    o = a.parse_args()
    prepare(o) if o.what == "prepare" else run(o)


if __name__ == "__main__":
    main()
