#!/usr/bin/env python3
"""GGUF files made from checkpoints by the gguf package: they convert to what the checkpoints convert to, and to
transformers' logits; codes kept as they are stay so, bit for bit; parts, and files that are refused."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "e2e")]
CASES = os.environ.get("MILLET_CASES", "../shared/cases")
SMALL = os.path.join(os.environ["MILLET_SOURCE"], "models", "tiny-qwen3.5")
# fp32 logits of size 45 against transformers', as the test of checkpoints has it.
PARITY = 2e-4


def millet(*args, fails=None, stdin=None):
    r = subprocess.run([os.environ["MILLET_BIN"], *args], input=stdin, capture_output=True, text=True)
    assert r.returncode in ((1, 2) if fails else (0,)), (args, r.stderr)
    if fails:
        lines = r.stderr.strip().split("\n")
        assert len(lines) == 1 and lines[0].startswith("millet: ") and fails in lines[0], (fails, r.stderr)
    return r.stdout


def convert(source, out, *options):
    return millet("convert", source, "-o", out, "--overwrite", *options)


def logits(package, ids, work):
    import test_converted

    path = os.path.join(work, "ids.json")
    with open(path, "w") as f:
        json.dump(ids, f)
    millet("score", package, "--ids-file", path, "--logits", os.path.join(work, "logits.safetensors"))
    return next(iter(test_converted.tensors_of(os.path.join(work, "logits.safetensors")).values()))


def weights_of(out):
    with open(os.path.join(out, "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin"), "rb") as f:
        return f.read()


def kind_of(checkpoint):
    """The checkpoint's own number format, which loses nothing."""
    import glob

    heads = b"".join(open(p, "rb").read(1 << 16) for p in glob.glob(os.path.join(checkpoint, "*.safetensors*")))
    return max(("BF16", "F16", "F32"), key=lambda d: heads.count(b'"dtype":"%s"' % d.encode()))


def check_family(name, work):
    """The same numbers as from the checkpoint, and transformers' logits."""
    import numpy as np
    import checkpoint_to_gguf
    import test_converted

    checkpoint, source, out, of_gguf = os.path.join(CASES, "models", name), *(os.path.join(work, n) for n in ("m.gguf", "a", "b"))
    kind = kind_of(checkpoint)
    checkpoint_to_gguf.write(checkpoint, test_converted.tensors(checkpoint), source, kind)
    convert(checkpoint, out), convert(source, of_gguf)
    a, b = (np.frombuffer(weights_of(o), np.uint8) for o in (out, of_gguf))
    assert len(a) == len(b), (name, len(a), len(b))
    differ = int((a != b).sum())
    # numpy's exp() of the decay rates, and a division of RoPE's frequencies, may round another way
    assert differ <= (96 if "qwen3.5" in name or "llama" in name else 0), (name, differ)
    convert(source, of_gguf, "--precision", "float32", "--top-k", "0") if "qwen3.5" not in name else convert(
        source, of_gguf, "--precision", "float32")
    with open(os.path.join(CASES, "oracles", name, "oracle.json")) as f:
        oracle = json.load(f)
    golden = test_converted.tensors_of(os.path.join(CASES, "oracles", name, "oracle.safetensors"))
    worst = 0
    for p in oracle["prompts"]:
        if p.get("logits_key") not in golden or len(p["ids"]) > 140:
            continue
        want = golden[p["logits_key"]].reshape(-1, golden[p["logits_key"]].shape[-1])
        got = logits(of_gguf, p["ids"], work)[-len(want):]
        worst = max(worst, float(np.abs(got - want).max()))
    assert 0 < worst <= PARITY, (name, worst)
    print(f"{name} as {kind}: {differ} bytes of {len(a)} differ; {worst:.2g} from transformers")


def operands(package):
    """name -> (codes, scales) of every blockwise_shift_scale op, as coremltools reads them."""
    import coremltools as ct
    from coremltools.converters.mil.frontend.milproto import load as milproto

    spec = ct.utils.load_spec(package)
    program = milproto.load(spec, spec.specificationVersion, os.path.join(package, "Data", "com.apple.CoreML", "weights"))
    function = next(iter(program.functions.values()))
    return {op.outputs[0].name: (op.data.val, op.scale.val) for op in function.operations
            if op.op_type == "constexpr_blockwise_shift_scale"}


CODES = {"Q8_0": lambda b: b[..., 2:].view("int8"), "IQ4_NL": None,
         "Q4_0": lambda b: stack(b[..., 2:] & 15, b[..., 2:] >> 4) - 8}


def stack(low, high):
    import numpy as np

    return np.concatenate([low, high], axis=-1).astype(np.int8)


def check_keep(kind, work):
    """Codes and scales in the package are those of the file; its logits those of the same values in fp16."""
    import numpy as np
    import gguf
    import checkpoint_to_gguf
    import test_converted

    source, kept, plain = (os.path.join(work, n) for n in ("k.gguf", "kept", "plain"))
    checkpoint_to_gguf.write(SMALL, test_converted.tensors(SMALL), source, kind)
    summary = convert(source, kept, "--quantize", "keep", "--table", "fp16")
    convert(source, plain, "--table", "fp16")
    assert "error up to 0.00 %" in summary, summary
    found = operands(os.path.join(kept, "model.mlpackage"))
    reader = gguf.GGUFReader(source)
    stored = {t.name: t for t in reader.tensors}
    config = checkpoint_to_gguf.read_json(SMALL, "config.json")["text_config"]
    keys, each = config["linear_num_key_heads"], config["linear_num_value_heads"] // config["linear_num_key_heads"]
    looked = 0
    for name, t in stored.items():
        if t.tensor_type != gguf.GGMLQuantizationType[kind] or name == "token_embd.weight":
            continue
        layer, inner = name.split(".")[1:3]
        below = {v: k for k, v in checkpoint_to_gguf.NAMES.items()}[inner].replace(".", "_")
        codes, scales = found.pop(f"layer_{layer}_{below}_weight")
        blocks = t.data.reshape(t.data.shape[0], -1, gguf.GGML_QUANT_SIZES[t.tensor_type][1])
        want = CODES[kind](blocks).reshape(len(codes), -1)
        d = blocks[..., :2].copy().view(np.float16)[..., 0]
        if inner in ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_out"):  # back from tiled to grouped heads
            axis = 1 if inner == "ssm_out" else 0
            front = 2 * keys * config["linear_key_head_dim"] if inner == "attn_qkv" else 0
            want, d = (np.concatenate([x[:front], grouped(x[front:], keys, each, axis)]) if not axis else grouped(x, keys, each, 1)
                       for x in (want, d))
        assert np.array_equal(codes, want) and np.array_equal(scales.view(np.uint16), d.view(np.uint16)), name
        looked += 1
    assert set(found) == {"lm_head_weight"} and looked > 40, (set(found), looked)
    ids = list(range(1, 60))
    a, b = logits(kept, ids, work), logits(plain, ids, work)
    error = float(np.abs(a - b).max() / (b.max() - b.min()))
    assert error <= 1e-3, (kind, error)
    print(f"keep {kind}: {looked} tensors carried over, logits within {error:.2g} of the range")


def grouped(x, keys, each, axis):
    """The opposite of tiled(): there are `each` rounds of `keys` heads."""
    import checkpoint_to_gguf

    return checkpoint_to_gguf.tiled(x, each, keys, axis)


TEXTS = ["Hello, world! It's 12345 o'clock.", "  spaces\n\n\tand tabs ", "e\u0301a\u0300 Ωμέγα हिन्दी 你好 😊",
         "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n<think>\n"]


def check_tokenizer(work):
    out, source = os.path.join(work, "kept"), os.path.join(work, "k.gguf")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    a, b = (millet("tokenize", d, "--json-lines", stdin=lines) for d in (SMALL, os.path.join(out, "Tokenizer")))
    assert a == b and a.count("ids") == len(TEXTS), (a, b)
    config, want = (json.load(open(os.path.join(d, "tokenizer_config.json"))) for d in (os.path.join(out, "Tokenizer"), SMALL))
    assert config.get("chat_template") == want.get("chat_template") and config["eos_token"] == want["eos_token"]
    millet("convert", source, "-o", out, "--overwrite", "--tokenizer", SMALL, "-q")
    with open(os.path.join(out, "Tokenizer", "tokenizer.json")) as f, open(os.path.join(SMALL, "tokenizer.json")) as g:
        assert f.read() == g.read()


def tokenizer_of(pre, work):
    """A converted model whose GGUF file names that pre-tokenizer."""
    import checkpoint_to_gguf
    import test_converted

    source, out = os.path.join(work, "pre.gguf"), os.path.join(work, "pre")
    checkpoint_to_gguf.write(SMALL, test_converted.tensors(SMALL), source, pre=pre)
    convert(source, out, "-q")
    return os.path.join(out, "Tokenizer")


def check_pretokenizers(work):
    """Ids of the tokenizers library; tests/oracle/make_gguf_ids.py."""
    with open(os.path.join(os.environ["MILLET_SOURCE"], "tests/data/gguf/ids.json")) as f:
        golden = json.load(f)
    for pre, ids in golden["ids"].items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in golden["texts"])
        got = [json.loads(line)["ids"] for line in millet("tokenize", tokenizer_of(pre, work), "--json-lines", stdin=lines).splitlines()]
        assert got == ids, (pre, got, ids)
    assert len({json.dumps(ids) for ids in golden["ids"].values()}) == len(golden["ids"]), "the pre-tokenizers can't be told apart"


def check_options(work):
    """The other options of convert, from a GGUF file; and check --against it."""
    source, out = os.path.join(work, "k.gguf"), os.path.join(work, "out")
    for options in (["--quantize", "lut6", "--vocab", "keep", "--chunks", "2", "--prefill", "4"], ["--quantize", "w4"],
                    ["--quantize", "keep", "--kv", "stacked", "--precision", "float32"]):
        convert(source, out, *options)
        millet("verify-manifest", out, "--against", source)
    convert(source, out, "--quantize", "keep")
    millet("check", out, "--against", source, "--budget", "64")


def check_parts(work):
    """A file in parts is the file in one piece; a missing or foreign part is named."""
    import checkpoint_to_gguf
    import test_converted

    whole, parts = os.path.join(work, "whole.gguf"), os.path.join(work, "parts.gguf")
    tensors = test_converted.tensors(SMALL)
    checkpoint_to_gguf.write(SMALL, tensors, whole)
    checkpoint_to_gguf.write(SMALL, tensors, parts, parts=40)
    names = sorted(n for n in os.listdir(work) if n.startswith("parts-"))
    assert len(names) > 2, names
    first, second = (os.path.join(work, n) for n in names[:2])
    convert(whole, os.path.join(work, "a")), convert(first, os.path.join(work, "b"))
    assert weights_of(os.path.join(work, "a")) == weights_of(os.path.join(work, "b"))
    out = os.path.join(work, "refused")
    millet("convert", second, "-o", out, fails=f"is part 2 of {len(names)}: give the first part")
    os.rename(second, second + ".away")
    millet("convert", first, "-o", out, fails=names[1])
    os.symlink(first, second)
    millet("convert", first, "-o", out, fails=f"is not part 2 of {len(names)}")
    os.rename(second + ".away", second)
    os.symlink(first, os.path.join(work, "renamed.gguf"))
    millet("convert", os.path.join(work, "renamed.gguf"), "-o", out, fails="its name does not end in -00001-of-")
    assert not os.path.exists(out)


def check_refusals(work):
    import gguf

    out = os.path.join(work, "refused")

    def file(**metadata):
        w = gguf.GGUFWriter(os.path.join(work, "bad.gguf"), "llama")
        for key, value in metadata.items():
            (w.add_string if isinstance(value, str) else w.add_uint32)(key.replace("__", "."), value)
        w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
        return os.path.join(work, "bad.gguf")

    millet("convert", file(), "-o", out, fails="bad.gguf: there is no tensor token_embd.weight")
    with open(file(), "r+b") as f:
        f.truncate(30)
    millet("convert", os.path.join(work, "bad.gguf"), "-o", out, fails="truncated?")
    import checkpoint_to_gguf
    import test_converted

    odd = os.path.join(work, "odd.gguf")
    checkpoint_to_gguf.write(SMALL, test_converted.tensors(SMALL), odd, pre="unheard-of")
    millet("convert", odd, "-o", out, fails='odd.gguf: pre-tokenizer "unheard-of" is not supported')
    with open(odd, "rb") as f:
        data = f.read().replace(b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0bert", 1)
    with open(odd, "wb") as f:
        f.write(data)
    millet("convert", odd, "-o", out, fails='odd.gguf: tokenizer "bert" is not supported')
    millet("convert", odd, "-o", os.path.join(work, "other"), "--tokenizer", SMALL)
    millet("convert", SMALL, "-o", out, "--quantize", "keep", fails="scheme keep is for GGUF files")
    assert not os.path.exists(out)


def main():
    try:
        import gguf  # noqa: F401
    except ImportError:
        print("skipped: no gguf package (tools/setup test installs it)")
        return 77
    import check_coremltools  # noqa: F401 (quiets coremltools)

    with tempfile.TemporaryDirectory() as work:
        check_keep("Q4_0", work)
        check_keep("Q8_0", work)
        check_tokenizer(work)
        check_pretokenizers(work)
        check_options(work)
        check_parts(work)
        check_refusals(work)
        names = ["rand-llama", "rand-qwen2", "tiny-qwen3", "rand-qwen3.5-textonly", "rand-qwen3.5-untied", "tiny-qwen3.5"]
        if not os.path.isdir(os.path.join(CASES, "models")):
            print("skipped: the families' checkpoints are not there (set MILLET_CASES)")
            names = []
        for name in names:
            check_family(name, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
