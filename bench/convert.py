#!/usr/bin/env python3
"""Time and memory of a conversion.   bench/convert.py build/millet CHECKPOINT OUT [options of millet convert]

Prints seconds, output MB/s, the peak resident set (VmHWM: it counts pages of the mapped checkpoint, which the kernel can
drop) and the peak of anonymous memory (RssAnon: what the program really needs), and what the weights cost in bits. Beside it the time that plain writes of as
many bytes take, with fsync: conversions are to be measured against that."""
import json, os, re, resource, subprocess, sys, time


def status(pid):
    try:
        text = open(f"/proc/{pid}/status").read()
    except OSError:
        return {}
    return {k: int(v) for k, v in re.findall(r"(VmHWM|RssAnon):\s+(\d+) kB", text)}


def size_of(path):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)


def plain_write(beside, n):
    path, block, start = beside + ".plain", os.urandom(1 << 22), time.monotonic()
    with open(path, "wb") as f:
        for _ in range(n // len(block)):
            f.write(block)
        f.flush()
        os.fsync(f.fileno())
    seconds = time.monotonic() - start
    os.unlink(path)
    return seconds


def main():
    millet, checkpoint, out, *options = sys.argv[1:]
    report = out + ".report"
    start = time.monotonic()
    p = subprocess.Popen([millet, "convert", checkpoint, "-o", out, "--overwrite", "--quiet", "--report", report, *options])
    peak = {"VmHWM": 0, "RssAnon": 0}
    while p.poll() is None:
        for k, v in status(p.pid).items():
            peak[k] = max(peak[k], v)
        time.sleep(0.01)
    seconds, n = time.monotonic() - start, size_of(out) if os.path.isdir(out) else 0
    if p.returncode:
        return f"exit code {p.returncode}"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(report) as f:
        tensors = json.load(f)["tensors"]
    os.unlink(report)
    bits = 8 * sum(t["bytes"] for t in tensors) / sum(8 * t["bytes"] / t["bits_per_weight"] for t in tensors)
    plain = plain_write(out, n)
    print(f"{seconds:.1f} s  {used.ru_utime + used.ru_stime:.1f} s CPU ({used.ru_utime:.1f} user)  {n / 1e6:.0f} MB  "
          f"{bits:.2f} bits per weight  {n / 1e6 / seconds:.0f} MB/s  VmHWM {peak['VmHWM'] / 1024:.0f} MiB  "
          f"RssAnon {peak['RssAnon'] / 1024:.0f} MiB  plain writes {plain:.1f} s ({n / 1e6 / plain:.0f} MB/s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
