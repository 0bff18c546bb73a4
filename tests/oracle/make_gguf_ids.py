#!/usr/bin/env python3
"""Writes tests/data/gguf/ids.json: what the tokenizers library (0.22 made the file in the tree) makes of some texts by the
tokenizer.json that millet convert writes for each pre-tokenizer's name.   Usage: MILLET_BIN=... make_gguf_ids.py"""
import json
import os
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
os.environ.setdefault("MILLET_SOURCE", ROOT)
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
import test_gguf
from tokenizers import Tokenizer

TEXTS = ["Hello, world! It's 12345 o'clock. WE'LL see HTMLParser fooBarBaz 123456", "  spaces\n\n\tand tabs \r\n x", "3.14159e10 ...!!!\n\n",
         "e\u0301a\u0300 Ωμέγα हिन्दी x\u0302 你好 😊 ١٢٣ ﬁ Å", "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n", "a/b //x/\n", "oB\nx\u0302\n", ""]
NAMES = ["gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-r1-qwen", "qwen35", "tekken"]

ids = {}
for pre in NAMES:
    with tempfile.TemporaryDirectory() as work:
        t = Tokenizer.from_file(os.path.join(test_gguf.tokenizer_of(pre, work), "tokenizer.json"))
        ids[pre] = [t.encode(text).ids for text in TEXTS]
with open(os.path.join(ROOT, "tests/data/gguf/ids.json"), "w") as f:
    f.write('{"texts": %s,\n "ids": {\n' % json.dumps(TEXTS) + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in ids.items()) + "}}\n")
