"""pip install ./bindings/python: no network, no compiler; the library goes in, and the installed package works away from the
tree. A wheel lists its files as they are; without a library the package finds one, or says what to do."""
import base64, hashlib, json, os, pathlib, subprocess, sys, tempfile, zipfile

import binding

sys.path.insert(0, str(binding.SOURCE / "bindings" / "python"))
import backend

golden = binding.SOURCE / "tests" / "data" / "generate" / "tiny-qwen3.5.json"
plain = {k: v for k, v in os.environ.items() if k not in ("MILLET_LIBRARY", "PYTHONPATH")}


def python(*arguments, **environment):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env={**plain, **environment})


def wheels_list_their_files(work):
    for library, tag in ((None, "py3-none-any"), (binding.LIBRARY.resolve(), f"py3-none-linux_{os.uname().machine}")):
        name = backend.make(work, library)
        assert name == f"millet-{backend.version()}-{tag}.whl", name
        with zipfile.ZipFile(work / name) as wheel:
            info = f"millet-{backend.version()}.dist-info"
            record = dict(line.split(",", 1) for line in wheel.read(f"{info}/RECORD").decode().splitlines())
            assert sorted(record) == sorted(wheel.namelist()) and "millet/py.typed" in record
            assert ("millet/lib/libmillet.so" in record) == (library is not None)
            for member, entry in record.items():
                if not member.endswith("/RECORD"):
                    digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(member)).digest()).rstrip(b"=").decode()
                    assert entry == f"sha256={digest},{len(wheel.read(member))}", member
            assert f"Tag: {tag}\n" in wheel.read(f"{info}/WHEEL").decode()
            assert "\nRequires-Dist: numpy" in wheel.read(f"{info}/METADATA").decode()
        first = (work / name).read_bytes()
        backend.make(work, library)
        assert (work / name).read_bytes() == first


def pip_installs_what_works(work):
    artifact = work / "artifact"
    subprocess.run([binding.BUILD / "millet", "convert", binding.SOURCE / "models" / "tiny-qwen3.5", "-o", artifact, "-q",
                    "--precision", "float32", "--context", "128"], check=True)
    installed = python("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--target",
                       work / "site", binding.SOURCE / "bindings" / "python", MILLET_LIBRARY=str(binding.LIBRARY))
    assert installed.returncode == 0, installed.stderr
    assert (work / "site" / f"millet-{backend.version()}.dist-info").is_dir()
    done = python(binding.SOURCE / "tests" / "python" / "check_wheel.py", work / "site", artifact, golden)
    assert done.returncode == 0, done.stderr
    print(done.stdout, end="")


def a_library_is_found_or_asked_for(work):
    with zipfile.ZipFile(work / f"millet-{backend.version()}-py3-none-any.whl") as wheel:
        wheel.extractall(work / "bare")
    script = "import sys, millet; print(millet.__version__)"
    for named in (binding.LIBRARY, binding.LIBRARY.parent):
        found = python("-c", script, PYTHONPATH=str(work / "bare"), MILLET_LIBRARY=str(named))
        assert found.stdout.strip() == backend.version(), found.stderr
    missing = python("-c", script, PYTHONPATH=str(work / "bare"), MILLET_LIBRARY="/nowhere/libmillet.so")
    assert missing.returncode and "ImportError" in missing.stderr and "/nowhere/libmillet.so" in missing.stderr
    assert "set MILLET_LIBRARY" in missing.stderr


with tempfile.TemporaryDirectory() as directory:
    for test in (wheels_list_their_files, pip_installs_what_works, a_library_is_found_or_asked_for):
        test(pathlib.Path(directory))
        print(f"{test.__name__}: ok", flush=True)
