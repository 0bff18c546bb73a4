"""Builds the wheel; nothing is compiled and nothing but the standard library is needed (PEP 517, an in-tree backend).

The shared library goes in where there is one: the file that the config setting "library" or MILLET_LIBRARY names, else what
`make` has left in build/. Without one the wheel is for any machine, and the library is looked for when it is imported.
tools/wheel makes wheels that run elsewhere."""

import base64
import hashlib
import os
import pathlib
import re
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF


def version():
    found = re.search(r"^project\(millet VERSION ([0-9.]+)", (TREE / "CMakeLists.txt").read_text(), re.M)
    if not found:
        raise RuntimeError(f"{TREE}/CMakeLists.txt names no version: build from a source tree of millet")
    return found[1]


def project():
    """The fields of pyproject.toml that METADATA repeats (read by hand: tomllib is not everywhere)."""
    text = (HERE / "pyproject.toml").read_text()
    one = lambda key: re.search(rf'^{key} = (?:{{ text = )?"([^"]*)"', text, re.M)[1]
    many = lambda key: re.findall(r'"([^"]+)"', re.search(rf"^{key} = \[(.*?)\]", text, re.M | re.S)[1])
    return one, many


def metadata():
    one, many = project()
    lines = ["Metadata-Version: 2.1", f"Name: {one('name')}", f"Version: {version()}", f"Summary: {one('description')}",
             f"License: {one('license')}", f"Requires-Python: {one('requires-python')}"]
    lines += [f"Classifier: {c}" for c in many("classifiers")] + [f"Requires-Dist: {d}" for d in many("dependencies")]
    return "\n".join(lines + ["Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text()])


def machine(library):
    head = library.read_bytes()[:20]
    code = int.from_bytes(head[18:20], "little")
    if head[:4] != b"\x7fELF" or code not in MACHINES:
        raise RuntimeError(f"{library} is no library for {' or '.join(MACHINES.values())}")
    return MACHINES[code]


def built_library(settings):
    named = (settings or {}).get("library") or os.environ.get("MILLET_LIBRARY")
    if named:
        return pathlib.Path(named).resolve(strict=True)
    library = TREE / "build" / "libmillet.so"
    return library.resolve() if library.exists() else None


class Wheel:
    """A wheel that is being written, with the list of its files."""

    def __init__(self, directory, tag):
        self.info = f"millet-{version()}.dist-info"
        self.name = f"millet-{version()}-{tag}.whl"
        self.records = []
        self.zip = zipfile.ZipFile(pathlib.Path(directory) / self.name, "w", zipfile.ZIP_DEFLATED)
        pure = "true" if tag.endswith("-any") else "false"
        self.add(f"{self.info}/METADATA", metadata().encode())
        self.add(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: millet\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode())

    def add(self, name, data):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes at any time
        entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        record = "\n".join(self.records + [f"{self.info}/RECORD,,", ""])
        self.add(f"{self.info}/RECORD", record.encode())
        self.zip.close()
        return self.name


def make(directory, library=None, platform=None, licences=()):
    """Writes a wheel with the package and the library (None: without); licences: further files to ship. Returns its name."""
    tag = "py3-none-any" if library is None else f"py3-none-{platform or 'linux_' + machine(library)}"
    wheel = Wheel(directory, tag)
    for path in sorted((HERE / "millet").rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            wheel.add(str(path.relative_to(HERE)), path.read_bytes())
    if library is not None:
        wheel.add("millet/lib/libmillet.so", library.read_bytes())
    wheel.add(f"{wheel.info}/licenses/LICENSE", (TREE / "LICENSE").read_bytes())
    for name, path in licences:
        wheel.add(f"{wheel.info}/licenses/{name}", path.read_bytes())
    return wheel.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return make(wheel_directory, built_library(config_settings))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    wheel = Wheel(wheel_directory, "py3-none-any")
    wheel.add("millet.pth", f"{HERE}\n".encode())
    return wheel.close()


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("there is no source distribution: install from a source tree of millet, or from a wheel")
