"""Makes the Python binding of the source tree importable, with the library of the build under test."""
import os, pathlib, subprocess, sys

SOURCE = pathlib.Path(os.environ.get("MILLET_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ["MILLET_BIN"]).parent if "MILLET_BIN" in os.environ else SOURCE / "build"
LIBRARY = BUILD / "libmillet.so"
sys.path.insert(0, str(SOURCE / "bindings" / "python"))
os.environ["MILLET_LIBRARY"] = str(LIBRARY)
os.environ.setdefault("MILLET_THREADS", "1")  # sharing work is tested elsewhere; threads that wait for each other cost time


def _preload_sanitizer():
    """A library built with AddressSanitizer needs its runtime to come first in the process."""
    if os.environ.get("LD_PRELOAD") or b"__asan_init" not in LIBRARY.read_bytes():
        return
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    os.environ.update(LD_PRELOAD=runtime.strip(), ASAN_OPTIONS="detect_leaks=0")  # the interpreter itself leaks
    os.execv(sys.executable, [sys.executable] + sys.argv)


_preload_sanitizer()


def run(tests):
    """Runs functions one after another; exit status 1 at the first one that fails."""
    for test in tests:
        test()
        print(f"{test.__name__}: ok", flush=True)


def raises(kind, words, function, *arguments, **named):
    """That a call raises kind with all words in its message."""
    try:
        function(*arguments, **named)
    except kind as e:
        missing = [w for w in words if w not in str(e)]
        assert not missing, f"{missing} not in: {e}"
        return
    raise AssertionError(f"{function} did not raise {kind.__name__}")
