#!/usr/bin/env python3
"""Writes tests/data/safetensors with the safetensors library (0.8.0 made the files in the tree):

    kinds.safetensors    every dtype that millet reads, a scalar, an empty tensor, a non-ASCII name, metadata
    plain.safetensors    without metadata: what st_write() must give byte for byte
    verdicts.json        [{"what", "hex", "ok"}]: small files, most of them broken, and whether the library takes them

Element i of every tensor of kinds.safetensors is i + 1 (bool: i % 2)."""
import ctypes, json, os, struct, sys
import safetensors
from safetensors import TensorSpec, serialize, deserialize

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "safetensors")


def bf16(v):
    return struct.pack("<f", v)[2:]


def tensors():
    num = range(1, 7)
    t = {
        "f64": ("F64", [2, 3], struct.pack("<6d", *num)), "f32": ("F32", [3, 2], struct.pack("<6f", *num)),
        "f16": ("F16", [6], struct.pack("<6e", *num)), "bf16": ("BF16", [1, 6], b"".join(bf16(v) for v in num)),
        "i64": ("I64", [6], struct.pack("<6q", *num)), "i32": ("I32", [6], struct.pack("<6i", *num)),
        "i16": ("I16", [6], struct.pack("<6h", *num)), "i8": ("I8", [6], struct.pack("<6b", *num)),
        "u64": ("U64", [6], struct.pack("<6Q", *num)), "u32": ("U32", [6], struct.pack("<6I", *num)),
        "u16": ("U16", [6], struct.pack("<6H", *num)), "u8": ("U8", [6], struct.pack("<6B", *num)),
        "bool": ("BOOL", [6], bytes(i % 2 for i in range(6))),
        "f8_e4m3": ("F8_E4M3", [6], bytes([0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C])),
        "f8_e5m2": ("F8_E5M2", [6], bytes([0x3C, 0x40, 0x42, 0x44, 0x45, 0x46])),
        "scalar": ("F32", [], struct.pack("<f", 1)), "empty": ("F16", [2, 0], b""),
        "gewicht_größe": ("U8", [3], bytes([1, 2, 3])),
    }
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
             "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
             "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
    return {k: (names[d], s, b) for k, (d, s, b) in t.items()}


def save(tensors, metadata):
    spec = {k: TensorSpec(dtype=d, shape=s, data_ptr=ctypes.cast(b, ctypes.c_void_p).value, data_len=len(b)) for k, (d, s, b) in tensors.items()}
    return serialize(spec, metadata)


def raw(header, data=b"", length=None):
    h = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(h) if length is None else length) + h + data


def entry(begin, end, shape=None, dtype="F32"):
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def candidates():
    d = bytes(16)
    yield "good", raw({"a": entry(0, 8), "b": entry(8, 16)}, d)
    yield "names out of order", raw({"b": entry(8, 16), "a": entry(0, 8)}, d)
    yield "trailing spaces", raw(json.dumps({"a": entry(0, 16)}) + "   ", d)
    yield "leading space", raw(" " + json.dumps({"a": entry(0, 16)}), d)
    yield "no tensor", raw({})
    yield "no tensor, data", raw({}, d)
    yield "empty tensors at one place", raw({"a": entry(0, 0), "b": entry(0, 16), "c": entry(16, 16)}, d)
    yield "zero dimension", raw({"a": entry(0, 0, [3, 0, 5])})
    yield "scalar", raw({"a": entry(0, 4, [])}, d[:4])
    yield "metadata", raw({"__metadata__": {"k": "v"}, "a": entry(0, 16)}, d)
    yield "metadata of numbers", raw({"__metadata__": {"k": 1}, "a": entry(0, 16)}, d)
    yield "metadata list", raw({"__metadata__": ["k"], "a": entry(0, 16)}, d)
    yield "empty file", b""
    yield "seven bytes", bytes(7)
    yield "length only", struct.pack("<Q", 0)
    yield "header behind the end", raw("{}", length=3)
    yield "header far behind the end", raw("{}", length=99999999)
    yield "header over the limit", raw("{}", length=100000001)
    yield "header length 2^63", raw("{}", length=1 << 63)
    yield "header length 2^64-1", raw("{}", length=(1 << 64) - 1)
    yield "not JSON", raw("{a}")
    yield "not UTF-8", raw(b'{"\xff":' + json.dumps(entry(0, 16)).encode() + b"}", d)
    yield "an array", raw("[]")
    yield "a number", raw("1")
    yield "two documents", raw("{}{}")
    yield "truncated JSON", raw(json.dumps({"a": entry(0, 16)})[:-1], d)
    yield "truncated data", raw({"a": entry(0, 16)}, d[:15])
    yield "data left over", raw({"a": entry(0, 12)}, d)
    yield "hole", raw({"a": entry(0, 4), "b": entry(8, 16)}, d)
    yield "hole at the start", raw({"a": entry(4, 16)}, d)
    yield "overlap", raw({"a": entry(0, 8), "b": entry(4, 16)}, d)
    yield "same range twice", raw({"a": entry(0, 16), "b": entry(0, 16)}, d)
    yield "reversed range", raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}, d)
    yield "negative offset", raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}, d)
    yield "offset 2^63", raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [1 << 63, (1 << 63) + 16]}}, d)
    yield "one offset", raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0]}}, d)
    yield "three offsets", raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16, 16]}}, d)
    yield "real offset", raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16.5]}}, d)
    yield "shape too small", raw({"a": entry(0, 16, [3])}, d)
    yield "shape too large", raw({"a": entry(0, 16, [5])}, d)
    yield "shape overflows", raw({"a": entry(0, 16, [1 << 62, 1 << 62])}, d)
    yield "shape wraps to the right size", raw({"a": entry(0, 16, [(1 << 62) + 1, 4])}, d)
    yield "negative size", raw({"a": entry(0, 16, [-1])}, d)
    yield "real size", raw({"a": entry(0, 16, [4.5])}, d)
    yield "shape is a number", raw({"a": entry(0, 16, 4)}, d)
    yield "dtype unknown", raw({"a": entry(0, 16, [4], "F31")}, d)
    yield "dtype lower case", raw({"a": entry(0, 16, [4], "f32")}, d)
    yield "dtype is a number", raw({"a": entry(0, 16, [4], 32)}, d)
    yield "no dtype", raw({"a": {"shape": [4], "data_offsets": [0, 16]}}, d)
    yield "no shape", raw({"a": {"dtype": "F32", "data_offsets": [0, 16]}}, d)
    yield "no offsets", raw({"a": {"dtype": "F32", "shape": [4]}}, d)
    yield "tensor is a list", raw({"a": [1]}, d)
    yield "tensor is null", raw({"a": None})
    yield "rank 8", raw({"a": entry(0, 16, [1, 1, 1, 1, 1, 1, 1, 4])}, d)


def main():
    os.makedirs(HERE, exist_ok=True)
    t = tensors()
    open(os.path.join(HERE, "kinds.safetensors"), "wb").write(save(t, {"format": "pt", "note": 'a "quoted" word'}))
    plain = {k: t[k] for k in ("f32", "f16", "bf16", "i8", "scalar", "empty")}
    open(os.path.join(HERE, "plain.safetensors"), "wb").write(save(plain, None))
    verdicts = []
    for what, data in candidates():
        try:
            deserialize(data)
            ok = True
        except Exception as e:
            ok = False
            print(f"{what}: {e}")
        verdicts.append({"what": what, "hex": data.hex(), "ok": ok})
    with open(os.path.join(HERE, "verdicts.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(v) for v in verdicts) + "\n]\n")
    print(safetensors.__version__, [v["what"] for v in verdicts if v["ok"]])


sys.exit(main())
