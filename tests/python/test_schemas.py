#!/usr/bin/env python3
"""What millet convert and millet bench write follows docs/schema/*.schema.json, and these are strict: a document with a member more, a
member less or a value of another kind does not."""
import copy
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ["MILLET_SOURCE"]
MODELS = os.path.join(os.environ.get("MILLET_CASES", "../shared/cases"), "models")

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("skipped: no jsonschema (tools/setup test installs it)")
    sys.exit(77)


def validator(name):
    with open(os.path.join(SOURCE, "docs", "schema", name + ".schema.json")) as f:
        schema = json.load(f)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def contracts():
    """What is shipped follows the schema; with a word more in any object but those whose keys are names, it doesn't."""
    schema = validator("contract")
    folder = os.path.join(SOURCE, "share", "contracts")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as f:
            document = json.load(f)
        schema.validate(document)
        for path in places(document):
            if path and path[-1] in ("inputs", "outputs", "equals", "caches"):
                continue
            bad = copy.deepcopy(document)
            at(bad, path)["more"] = 1
            assert not schema.is_valid(bad), (name, path)


def convert(work, model, *options):
    out = os.path.join(work, str(len(os.listdir(work))))
    subprocess.run([os.environ["MILLET_BIN"], "convert", model, "-o", out, "-q", "--context", "64", *options], check=True,
                   stderr=subprocess.DEVNULL)
    return out


def places(value, path=()):
    """Every object of the document, by the path to it."""
    if isinstance(value, dict):
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, path + (key,))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def shortened(value):
    """The first four elements of each list: enough for each kind of row."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    return [shortened(inner) for inner in value[:4]] if isinstance(value, list) else value


# Objects whose keys are data, or that others may extend.
OPEN = {"skipped", "kept_fp32", "vanished", "gate"}


def check_strict(schema, document):
    """Each member of each object is needed and typed, and no other is allowed. Of long lists of equal rows the first few are tried:
    each damage validates the whole document."""
    document = shortened(document)
    assert schema.is_valid(document)
    tried = 0
    for path in places(document):
        if path and path[-1] in OPEN:
            continue
        for damage in ["more"] + list(at(document, path)):
            bad = copy.deepcopy(document)
            if damage == "more":
                at(bad, path)["more"] = 1
            else:
                del at(bad, path)[damage]
            assert not schema.is_valid(bad), f"valid with {damage} {'added' if damage == 'more' else 'taken away'} at {path}"
            if damage != "more":
                at(bad, path)[damage] = [{}]
                assert not schema.is_valid(bad), f"valid with {damage} of another kind at {path}"
            tried += 1
    return tried


def check(schema, path):
    with open(path) as f:
        document = json.load(f)
    return check_document(schema, path, document)


def check_document(schema, path, document):
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in schema.iter_errors(document)]
    assert not errors, "\n".join([path] + errors[:5])
    return document


def bench(*arguments):
    done = subprocess.run([os.environ["MILLET_BIN"], "bench", *arguments, "--json"], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main():
    contracts()
    if not os.path.isdir(MODELS):
        print(f"skipped: {MODELS} is not there (set MILLET_CASES)")
        return 77
    single = os.path.join(MODELS, "tiny-qwen3")
    hybrid = os.path.join(MODELS, "tiny-qwen3.5")
    small = os.path.join(MODELS, "rand-qwen2")
    kinds = [("metadata", (
        (hybrid, "--chunks", "3", "--prefill", "4,64", "--quantize", "lut6"),
        (hybrid, "--kv", "stacked", "--precision", "float32"),
        (small, "--preset", "chunks", "--quantize", "w4", "--vocab", "w8b32"),
        (os.path.join(MODELS, "rand-qwen3-bigvocab"), "--preset", "chunks", "--max-file-size", "3000000"),
        (single, "--top-k", "8"),
        (small, "--top-k", "0", "--precision", "float16"),
    )), ("conversion_manifest", (
        (single, "--variants", "fp16,w8,w4"),
        (single, "--variants", "fp16,lut6,w8b32", "--remove-fp16", "--vocab", "w8", "--top-k", "0"),
        (small, "--variants", "lut4", "--precision", "float32"),
    ))]
    tried = documents = 0
    with tempfile.TemporaryDirectory() as work:
        for kind, conversions in kinds:
            schema = validator(kind)
            found = [check(schema, os.path.join(convert(work, *c), kind + ".json")) for c in conversions]
            tried += check_strict(schema, found[0])
            documents += len(found)
    schema = validator("bench")
    demo = os.environ["DEMO"]
    found = [check_document(schema, "bench", bench(*a)) for a in (
        (demo, "-p", "3", "-n", "2", "-r", "1", "-t", "1,2", "--start", "--profile"), (demo, "-n", "1", "-r", "2"), ("--limits",))]
    tried += check_strict(schema, found[0]) + check_strict(schema, found[2])
    documents += len(found)
    print(f"{documents} documents follow their schemas; {tried} damages are refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
