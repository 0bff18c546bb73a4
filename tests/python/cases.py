"""What tests over the shared Core ML cases have in common: reading safetensors, and judging a result."""
import json, os, pathlib, sys
import numpy as np

CASES = pathlib.Path(os.environ.get("MILLET_CASES", "../shared/cases"))


def directory(name):
    """A directory of the shared cases; ends the test as skipped where there is none."""
    path = CASES / name
    if not path.is_dir():
        print(f"skipped: {path} is not there (set MILLET_CASES)")
        sys.exit(77)
    return path


DTYPES = {"F16": np.float16, "F32": np.float32, "I32": np.int32, "BOOL": np.bool_, "I8": np.int8, "U8": np.uint8,
          "I16": np.int16, "U16": np.uint16, "I64": np.int64, "U32": np.uint32}


def load(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {k: np.frombuffer(data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]], DTYPES[v["dtype"]])
                .reshape(v["shape"]) for k, v in header.items()}


def judge(got, want, entry, scores):
    """What is wrong with a result; None when nothing is."""
    if got is None:
        return "is missing"
    if got.shape != want.shape:
        return f"has shape {got.shape}, not {want.shape}"
    if "atol" in entry:
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        return f"is off by {error.max()}, allowed {entry['atol']}" if not (error <= entry["atol"]).all() else None
    if not np.array_equal(got, want) and not (scores and near_ties(got, want, *scores)):
        return f"is {got.ravel()[:8]}, not {want.ravel()[:8]}"


def near_ties(got, want, scores, atol):
    """Top-k ids that differ only where scores, each known within atol, may change places: an id of the list stands in for
    one whose score is within 2 atol of its own; an id from outside, for one within 2 atol of the last."""
    for mine, theirs, score in zip(*(x.reshape(-1, x.shape[-1]) for x in (got, want, scores))):
        place = {int(i): float(s) for i, s in zip(theirs, score)}
        if any(abs(place.get(int(i), float(score[-1])) - s) > 2 * atol for i, s in zip(mine, score)):
            return False
    return True


def scores_of(want, entries, wanted):
    """The float result of the same shape beside integer ones: top-k's values."""
    for entry in entries.values():
        if "atol" in entry and wanted[entry["f32"]].shape == want.shape and want.ndim:
            return wanted[entry["f32"]], entry["atol"]
