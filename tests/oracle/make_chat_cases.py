#!/usr/bin/env python3
"""Writes tests/data/chat_cases.jsonl: conversations, and what the chat templates' own Jinja text makes of them.

Rendered by jinja2 set up as transformers sets it up (apply_chat_template): trimmed blocks, tojson without escapes, members
of messages that are null left out. TEMPLATES holds a file NAME.jinja for each name of src/text/chat_templates.def, which
also has their digests. A row is {"family", "messages", "options", "text"}, or with "error" in place of the text.
Usage: make_chat_cases.py TEMPLATES > tests/data/chat_cases.jsonl
"""
import hashlib
import json
import pathlib
import random
import re
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = dict((name, sha) for sha, name in
             re.findall(r'^CHAT_KNOWN\("(\w+)", "(\w+)"\)', (ROOT / "src/text/chat_templates.def").read_text(), re.M))
TOOL = {"type": "function", "function": {"name": "add", "description": "Sum of \"a\" & <b>", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 0.5}}, "required": ["a"]}}}
PLAIN = ("chatml", "chatml_think", "smollm2")  # have no place for tools
rng = random.Random(7)


def raise_exception(message):
    raise ValueError(message)


def environment():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    e.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    e.globals["raise_exception"] = raise_exception
    return e


def templates(folder):
    out, e = {}, environment()
    for name, sha in KNOWN.items():
        text = (folder / f"{name}.jinja").read_bytes()
        same = {hashlib.sha256(t).hexdigest() for t in (text, text.rstrip(b"\n"), text.rstrip(b"\n") + b"\n")}
        if sha not in same:
            sys.exit(f"{name}.jinja is another template")
        out[name] = e.from_string(text.decode())
    return out


PIECES = ["a", "Hello", "\n", "\n\n", " ", "\t", "\u3000", "\x1c", "\x85", "\xa0", "<think>", "</think>", "<tool_response>",
          "</tool_response>", "é", "日本", "😀", '"', "\\", "<|im_end|>", '{"a": 1}', "\x07", "\u200b", "\u2028", "\r\n", "\x7f"]
NUMBERS = [0, -1, 2**53 + 1, -2**63, 0.0, -0.0, 1.5, 1e15, 1e16, 123456789012345680.0, 9999999999999998.0, 1e-4, 1e-5,
           0.00012345, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, 1e22, 2.5e-7]


def text(most=5):
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(most + 1)))


def value(depth=0):
    kind = rng.randrange(8 if depth < 2 else 6)
    if kind < 3:
        return [None, True, False][kind]
    if kind == 3:
        return rng.choice(NUMBERS)
    if kind < 6:
        return text(3)
    if kind == 6:
        return [value(depth + 1) for _ in range(rng.randrange(3))]
    return {text(2): value(depth + 1) for _ in range(rng.randrange(3))}


def call():
    f = {"name": rng.choice(["add", "naïve"]), "arguments": {rng.choice(["x", "y", "zé"]): value() for _ in range(rng.randrange(4))}}
    return f if rng.random() < 0.2 else {"type": "function", "function": f}


def message(first):
    role = rng.choice(["user", "user", "assistant", "assistant", "tool"] + ["system"] * (2 if first else 0))
    m = {"role": role, "content": text(7)}
    if role == "assistant":
        if rng.random() < 0.4:
            m["reasoning_content"] = rng.choice([text(), None, ""])
        if rng.random() < 0.4:
            m["tool_calls"] = [call() for _ in range(rng.randrange(3))]
            if rng.random() < 0.3:
                m["content"] = None
    return m


def fixed():
    user = {"role": "user", "content": "What's 1+1?"}
    answer = {"role": "assistant", "content": "2", "reasoning_content": "Easy."}
    inline = {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n2"}
    calls = {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}},
        {"type": "function", "function": {"name": "add", "arguments": {"a": -0.0, "b": True, "c": None, "d": [1, {"é": "x"}]}}}]}
    results = [{"role": "tool", "content": "3.5"}, {"role": "tool", "content": " 1 "}]
    system = {"role": "system", "content": " Be brief.\n"}
    for messages in ([user], [system, user], [user, answer], [user, inline, user], [user, answer, user], [user, calls],
                     [system, user, calls, *results], [user, calls, *results, answer, user], [user, {**calls, "content": "Wait."}],
                     [user, {**calls, "content": None}], [results[0], user], [user, {"role": "developer", "content": "x"}],
                     [user, system], [system], [{"role": "user", "content": "<tool_response>x</tool_response>"}]):
        yield messages


def render(template, messages, options):
    if not messages:
        raise ValueError("empty")
    return template.render(messages=[{k: v for k, v in m.items() if v is not None} for m in messages], **options)


def row(name, template, messages, options):
    out = {"family": name, "messages": messages, "options": options}
    try:
        out["text"] = render(template, messages, options)
    except Exception as e:  # of any kind: the conversation is refused
        out["error"] = str(e)
    return json.dumps(out, ensure_ascii=False)


def without_place(name, messages):
    """The plain templates leave calls and contents out without a word; we refuse these."""
    return name in PLAIN and any(m.get("tool_calls") or m.get("content") is None for m in messages)


def main():
    for name, template in templates(pathlib.Path(sys.argv[1])).items():
        tools = {} if name in PLAIN else {"tools": [TOOL]}
        switches = [{}, {"enable_thinking": False}, {"enable_thinking": True}]
        if name == "qwen3_6":
            switches += [{"preserve_thinking": True}]
        for o in switches:
            print(row(name, template, [{"role": "user", "content": "Hi"}], {"add_generation_prompt": True, **o}))
        print(row(name, template, [{"role": "user", "content": "Hi"}], {"add_generation_prompt": True, **tools}))
        print(row(name, template, [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi"}],
                  {"add_generation_prompt": False, **tools}))
        for i, messages in enumerate(list(fixed()) + [[message(not i) for i in range(rng.randrange(1, 5))] for _ in range(14)]):
            if not without_place(name, messages):
                print(row(name, template, messages, {"add_generation_prompt": i % 2 == 0, **switches[i % len(switches)]}))


main()
