#!/usr/bin/env python3
"""Writes tests/data/tokenizer_cases.json: what the tokenizers library (0.23.3) does with small tokenizers of many kinds.

Each variant has the text of a tokenizer.json in two parts ("head" and "model": a name in "models") and cases with text, ids,
"decoded" where that isn't the text, and "skipped" where skip_special_tokens changes it. Usage: make_tokenizer_cases.py > tests/data/tokenizer_cases.json
"""
import json
import random

from tokenizers import Tokenizer

rng = random.Random(3)


def byte_chars():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(other)}}


BYTE = byte_chars()


def byte_model(merges, **more):
    vocab = {c: i for i, c in BYTE.items()}
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    return {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
            "merges": merges, **more}


SPACE = BYTE[32]
MERGES = [["t", "h"], ["th", "e"], [SPACE, "the"], ["i", "n"], ["in", "g"], [SPACE, "a"], ["a", "n"], ["an", "d"], ["l", "l"],
          ["'", "s"], ["'", "ll"], ["h", "e"], ["he", "ll"], ["hell", "o"], [SPACE, SPACE], [SPACE * 2, SPACE * 2], ["1", "2"],
          ["a", "a"], ["aa", "aa"], ["a", "b"], ["ab", "c"], ["x", "x"], ["Ċ", "Ċ"], ["Ã", "©"], ["ä", "½"], ["ä½", "ł"]]


def random_model(**more):
    parts, merges = list("abcdef"), []
    while len(merges) < 300:
        pair = [rng.choice(parts), rng.choice(parts)]
        if len("".join(pair)) > 20:
            continue
        merges.append(pair)  # pairs may repeat, tokens may come from several pairs
        parts.append("".join(pair))
    return byte_model(merges, **more)


def text_model(**more):
    """Plain text: characters, not bytes."""
    vocab = {c: i for i, c in enumerate(dict.fromkeys([*map(chr, range(32, 127)), *"éè你好", "<unk>"]))}
    merges = [["t", "h"], ["th", "e"], [" ", "the"], ["你", "好"], ["a", "a"]]
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    return {**byte_model([]), "vocab": vocab, "merges": merges, **more}


MODELS = {
    "bytes": byte_model(MERGES),
    "strings": byte_model(MERGES) | {"merges": [" ".join(m) for m in MERGES]},
    "ignore": byte_model(MERGES[:2] + MERGES[3:], ignore_merges=True,
                         vocab={**byte_model(MERGES)["vocab"], "world": 400, SPACE + "hello": 401}),
    "unreachable": byte_model(MERGES[:2] + MERGES[3:], vocab={**byte_model(MERGES)["vocab"], "world": 400}),
    "random": random_model(),
    "random-ignore": random_model(ignore_merges=True),
    "text": text_model(),
    "text-unk": text_model(unk_token="<unk>"),
    "text-fuse": text_model(unk_token="<unk>", fuse_unk=True),
    "few-bytes": byte_model([], vocab={c: i for i, c in enumerate([*map(chr, range(33, 100)), "<unk>"])},
                            unk_token="<unk>"),
}

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def bytelevel(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def added(content, **flags):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


ADDED = [added("<a>"), added("<a>b", lstrip=True), added("word", single_word=True), added("<n>", normalized=True),
         added("é", normalized=True), added("e\u0301x"), added(" x"), added("<r>", rstrip=True),
         added("<lr>", lstrip=True, rstrip=True, special=True),
         added("THE", single_word=True, normalized=True, lstrip=True), added("\n\n"), added("<|é "),
         added("ni\u0303", normalized=True, rstrip=True), added("<｜end｜>", special=True)]

NFC = {"type": "NFC"}
TEXTS = ["", "a", "Hello  world, don't I'LL we'\u017f say THE words: 123 4567 x1y22!\n", "  \n\n\t x\0y \r\n the\u3000end  ",
         "caf\u00e9 cafe\u0301 A\u030a \u212b \u1e9b\u0323 \uac01 \u1100\u1161\u11a8 nin\u0303o", "हिन्दी ภาษาไทย العَرَبِيَّة 你好，世界 ½Ⅳ① 𞴬",
         "<a>b <a>c <a word words word. THE THE\u00e9 <n><r>  <lr>  x  xx e\u0301x <|é \n\n\n <｜end｜>ni\u0303  ",
         "aaaaaaaaaaaa aaaaaaaaa aaaaa hello hello world the thethe inging", "ÅÉé ſß ﬀ STRASSE straße K\u212a k",
         "HTTPServer's getHTTPResponse() {return a[i]/b;} \u200d\u200c_x_ \U0001f468\u200d\U0001f469 \u0301\u0301 \u0378"]


def variants():
    bl = bytelevel()
    yield "qwen2", sequence(split(QWEN2), bl), "bytes", NFC
    yield "qwen2-strings", sequence(split(QWEN2), bl), "strings", {"type": "Sequence", "normalizers": [NFC]}
    for name, regex in ("qwen2", QWEN2), ("qwen3.5", QWEN35), ("llama3", LLAMA3), ("gpt2", GPT2):
        yield name + "-none", sequence(split(regex), bl), "bytes", None
        yield name + "-general", sequence(split(f"(?:{regex})"), bl), "bytes", None  # not by the hand-written matcher
    yield "o200k", sequence(split(O200K), bl), "bytes", None
    yield "cl100k", sequence(split(CL100K, "Removed", True), bl), "bytes", None
    yield "deepseek", sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), bl), "bytes", None
    yield "smollm", sequence(digits(True), bytelevel(regex=True)), "bytes", None
    yield "digits", sequence(digits(False), bytelevel(regex=True)), "bytes", NFC
    yield "prefix", bytelevel(True, True), "bytes", NFC
    yield "prefix-digits", sequence(digits(True), bytelevel(True, True)), "bytes", NFC
    for behavior in "Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext":
        for invert in False, True:
            yield f"{behavior}-{invert}", sequence(split(r"[aeiou]|\s", behavior, invert), bl), "bytes", None
            yield f"{behavior}-{invert}-text", sequence(split("l", behavior, invert, "String"), bl), "bytes", None
            yield f"{behavior}-{invert}-empty", sequence(split("(?=[aeiou])|x*", behavior, invert), bl), "bytes", None
    yield "boundary", sequence(split(r"\b\w+\b|\B."), bl), "bytes", None
    yield "classes", sequence(split(r"\d+|\D{2,4}?x|\h+|\W\S"), bl), "bytes", None
    yield "anchors", sequence(split(r"^.|.$|\A\s|\s\z|\Z"), bl), "bytes", None
    yield "flags", sequence(split("(?i)(?m:.)a|..|(?-i:B)|k{,2}"), bl), "bytes", None
    yield "caseless", sequence(split(r"(?i:[a-k]+|straße|s)|\p{^Lu}\P{L}|[^\S\n]+"), bl), "bytes", None
    yield "scripts", sequence(split(r"\p{Han}+|\p{Thai}|\p{Latin}+"), bl), "bytes", None
    yield "whole", bl, "bytes", NFC
    for model in "ignore", "unreachable", "random", "random-ignore", "few-bytes":
        yield model, sequence(split(r" ?\S+|\s"), bl), model, None
    for model in "text", "text-unk", "text-fuse":
        yield model, digits(True), model, NFC
    yield "null", None, "text", None


def make(name, pre, model, normalizer, tokens):
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    t = Tokenizer.from_str(json.dumps({**head, "model": MODELS[model]}))
    ids = {v.content: k for k, v in t.get_added_tokens_decoder().items()}  # the library numbers them itself
    for x in tokens:
        x["id"] = ids[x["content"]]
    texts = TEXTS + (["".join(rng.choices("abcdef", k=k)) for k in (3, 12, 39, 40, 41, 42, 90)] if "random" in model else [])
    cases = []
    for text in texts:
        ids = t.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids}
        decoded, skipped = t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)
        if decoded != text:
            case["decoded"] = decoded
        if skipped != decoded:
            case["skipped"] = skipped
        cases.append(case)
    head = json.dumps(head, ensure_ascii=False)[1:-1]
    return {"name": name, "head": head, "model": model, "cases": cases}


def main():
    rows = [make(name, pre, model, normalizer, []) for name, pre, model, normalizer in variants()]
    for name, pre, normalizer in (("added", sequence(split(QWEN35), bytelevel()), NFC),
                                  ("added-none", sequence(split(QWEN35), bytelevel()), None),
                                  ("added-prefix", bytelevel(True, True), NFC)):
        rows.append(make(name, pre, "bytes", normalizer, [dict(x) for x in ADDED]))
    models = {k: json.dumps(v, ensure_ascii=False) for k, v in MODELS.items()}
    print('{"models": ' + json.dumps(models, ensure_ascii=False) + ',\n"variants": [')
    print(",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows))
    print("]}")


main()
