#!/usr/bin/env python3
"""Writes src/text/unicode_tables.c: the character classes and the NFC data of the tokenizers library.

Usage: tools/unicode_tables.py CASES_TOKENIZER_DIR > src/text/unicode_tables.c
Needs the Python package tokenizers (0.23.3 made the committed file). Classes are measured: every code point is shown to
the library's own pre-tokenizers, so the tables are its behaviour and not that of some Unicode version. They are compared
with unicode_classes.json; the NFC data is taken from nfc_tables.json (both in the shared cases' tokenizer folder).
"""
import json
import sys

from tokenizers import Regex, Tokenizer, pre_tokenizers

CATEGORIES = "Cn Cc Cf Co Cs Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
SPACE, WORD, NUMERIC = 0x20, 0x40, 0x80
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))
BLOCK = 128


def regex_class(pattern):
    """The code points that the library's regex engine puts in a class."""
    rest = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(TEXT)
    inside = bytearray(b"\1") * len(POINTS)
    for _, (a, b) in rest:
        inside[a:b] = bytes(b - a)
    return {c for c, i in zip(POINTS, inside) if i}


def numeric():
    """What the Digits pre-tokenizer calls a digit (Rust's char::is_numeric, newer than the regex engine's N)."""
    digits, out = pre_tokenizers.Digits(individual_digits=True), set()
    for i in range(0, len(POINTS), 2000):
        for piece, (a, b) in digits.pre_tokenize_str("a" + "a".join(map(chr, POINTS[i : i + 2000])) + "a"):
            if b - a == 1 and piece != "a":
                out.add(ord(piece))
    return out


def single_word():
    """The code points that a single_word added token may not touch (Rust's \\w)."""
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 1, "content": "<T>", "single_word": True, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": False}],
        "pre_tokenizer": None, "decoder": None,
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    }
    t = Tokenizer.from_str(json.dumps(spec))
    return {c for c in POINTS if 1 not in t.encode(chr(c) + "<T>").ids}


def expand(ranges):
    return {c for a, b in ranges for c in range(a, b + 1)}


def two_stage(name, values):
    """values: bytes, one per code point."""
    blocks, index = {}, []
    for i in range(0, 0x110000, BLOCK):
        index.append(blocks.setdefault(bytes(values[i : i + BLOCK]), len(blocks)))
    assert len(blocks) < 65536
    array(f"const uint16_t {name}_index[0x110000 / {BLOCK}]", index)
    array(f"const uint8_t {name}_block[{len(blocks)} * {BLOCK}]", b"".join(blocks))


def array(declaration, numbers):
    print(f"{declaration} = {{")
    line = "   "
    for n in numbers:
        item = f" {n},"
        if len(line) + len(item) > 110:
            print(line)
            line = "   "
        line += item
    print(line + "\n};\n")


def triples(declaration, rows):
    array(declaration, (f"{{{a}, {b}, {c}}}" for a, b, c in rows))


def classes(cases):
    expected = json.load(open(f"{cases}/unicode_classes.json"))
    values = bytearray(0x110000)
    values[0xD800:0xE000] = bytes([CATEGORIES.index("Cs")]) * 0x800
    for i, c in enumerate(CATEGORIES):
        for p in regex_class(r"\p{%s}" % c) if c != "Cs" else ():
            values[p] = i
    space, word = regex_class(r"\s"), regex_class(r"\w")
    assert regex_class(r"\d") == {p for p in POINTS if values[p] == CATEGORIES.index("Nd")}
    assert space == expand(expected["space"])
    for major in "LNM":
        assert {p for p in POINTS if CATEGORIES[values[p]][0] == major} == expand(expected[major]), major
    rust = single_word()
    assert rust == word - {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE} | {0x200C, 0x200D}  # unicode_is_rust_word()
    for chars, bit in (space, SPACE), (word, WORD), (numeric(), NUMERIC):
        for p in chars:
            values[p] |= bit
    two_stage("unicode_class", values)


def nfc(cases):
    t = json.load(open(f"{cases}/nfc_tables.json"))
    decompose = {r[0]: r[1:] for r in t["decompose"]}
    excluded = set(t["compose_excluded"])
    compose = {tuple(d): c for c, d in decompose.items() if len(d) == 2 and c not in excluded}
    seconds = {b for _, b in compose} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    ccc = {p: c for a, b, c in t["ccc"] for p in range(a, b + 1)}
    values = bytearray(0x110000)
    for p in POINTS:
        unstable = p in decompose and (len(decompose[p]) == 1 or p in excluded)
        values[p] = ccc.get(p, 0) or (255 if unstable or p in seconds else 0)

    def full(p):
        return [q for d in decompose[p] for q in full(d)] if p in decompose else [p]

    # A code point of class 0 begins a segment that no earlier text can reach: its decomposition must begin with such one.
    assert all(values[full(p)[0]] == 0 for p in decompose if values[p] == 0)
    two_stage("unicode_nfc", values)
    rows = sorted((c, d[0], d[1] if len(d) == 2 else 0) for c, d in decompose.items())
    print(f"const size_t unicode_decompose_count = {len(rows)};\n")
    triples(f"const unicode_triple unicode_decompose[{len(rows)}]", rows)
    rows = sorted((a, b, c) for (a, b), c in compose.items())
    print(f"const size_t unicode_compose_count = {len(rows)};\n")
    triples(f"const unicode_triple unicode_compose[{len(rows)}]", rows)


def main():
    cases = sys.argv[1]
    print("/* Written by tools/unicode_tables.py; don't edit. Classes: measured on the tokenizers library 0.23.3 (Apache-2.0).")
    print(" * NFC: the data that this library has (about Unicode 9), numbers from the Unicode Character Database, which is under")
    print(" * the Unicode License v3 (copyright Unicode, Inc.; https://www.unicode.org/license.txt). */")
    print("/* clang-format off */")
    print('#include "text/unicode.h"\n')
    classes(cases)
    nfc(cases)


main()
