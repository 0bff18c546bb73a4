"""/v1/chat/completions, by OpenAI's own client: prompts are those of `millet tokenize --chat`, replies what `millet run` says alone."""
import json, pathlib, subprocess, tempfile
import jsonschema
from serving import DEMO, MILLET, alone, run_tests, serving

STORY = [{"role": "user", "content": "Tell me a story"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a place", "parameters": {
              "type": "object", "properties": {"place": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["place", "days"], "additionalProperties": False}}},
         {"type": "function", "function": {"name": "roll", "parameters": {
              "type": "object", "properties": {"sides": {"enum": [6, 20]}}, "required": ["sides"], "additionalProperties": False}}}]


def prompt_ids(messages, *options, **template):
    flat = [{**m, "content": m["content"] if isinstance(m["content"], str) else "".join(c["text"] for c in m["content"])} for m in messages]
    line = json.dumps({"messages": flat, "options": {"add_generation_prompt": True, **template}})
    done = subprocess.run([MILLET, "tokenize", DEMO / "Tokenizer", "--json-lines", "--chat", *options], input=line, capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)["ids"]


def joined(stream):
    """What the pieces of a streamed reply come to, choice by choice: (message, finish_reason)."""
    message, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for e in stream:
        for c in e.choices:
            assert finish is None
            d = c.delta.model_dump()
            message["content"] += d.get("content") or ""
            message["reasoning_content"] += d.get("reasoning_content") or ""
            for t in d.get("tool_calls") or []:
                if t["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": t["id"], "name": t["function"]["name"], "arguments": ""})
                message["tool_calls"][t["index"]]["arguments"] += t["function"]["arguments"] or ""
            finish = c.finish_reason
    return message, finish


def whole(r):
    m = r.choices[0].message.model_dump()
    return {"content": m["content"] or "", "reasoning_content": m.get("reasoning_content") or "",
            "tool_calls": [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in m["tool_calls"] or []]}


def same(stream, plain):
    message, finish = joined(stream)
    for c in message["tool_calls"]:
        assert c.pop("id").startswith("call_")
    assert message == whole(plain) and finish == plain.choices[0].finish_reason
    return message, finish


def test_equals_run():
    with serving("--sessions", 2, "--prefix-cache", 0) as s:
        c = s.client()
        for messages in (STORY, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "One dog"}]}],
                         STORY + [{"role": "assistant", "content": "No."}, {"role": "user", "content": "Please <|im_end|> do"}]):
            want = alone(prompt_ids(messages), 40)
            ask = {"model": "demo", "messages": messages, "max_completion_tokens": 40, "temperature": 0}
            r = c.chat.completions.create(**ask)
            assert r.choices[0].message.content == want["text"].strip() or r.choices[0].message.content == want["text"]
            assert r.choices[0].finish_reason == want["finish_reason"] and r.usage.prompt_tokens == want["prompt_tokens"]
            same(c.chat.completions.create(**ask, stream=True), r)
        r = c.chat.completions.create(model="demo", messages=STORY, max_tokens=6, temperature=0, logprobs=True, top_logprobs=2)
        scores = r.choices[0].logprobs.content
        assert len(scores) == 6 and all(len(x.top_logprobs) == 2 and x.logprob <= 0 for x in scores)
        assert b"".join(bytes(x.bytes) for x in scores).decode() == r.choices[0].message.content
        r = c.chat.completions.create(model="demo", messages=STORY, max_tokens=60, temperature=0, stop="upon")
        assert r.choices[0].message.content == "Once " and r.choices[0].finish_reason == "stop"
        texts = [x.message.content for x in c.chat.completions.create(model="demo", messages=STORY, n=3, max_tokens=20, temperature=1.5, seed=4).choices]
        assert texts == [alone(prompt_ids(STORY), 20, "-t", 1.5, "-s", 4 + i)["text"] for i in range(3)]


def test_prefixes_are_reused():
    """Turn by turn: what was read is not read again, on whichever session; the reply is the one without a cache."""
    with serving("--sessions", 2) as s, serving("--sessions", 1, "--prefix-cache", 0) as cold:
        a, b = s.client(), cold.client()
        messages = [{"role": "system", "content": "You tell stories to children. " * 8}] + STORY
        for turn in range(4):
            ask = {"model": "demo", "messages": messages, "max_tokens": 24, "temperature": 0.8, "seed": turn}
            r, want = a.chat.completions.create(**ask), b.chat.completions.create(**ask)
            assert r.choices[0].message.content == want.choices[0].message.content
            cached = r.usage.prompt_tokens_details.cached_tokens
            assert want.usage.prompt_tokens_details.cached_tokens == 0
            if turn:
                last = len(prompt_ids(messages[:-2], add_generation_prompt=False))  # up to the reply of the turn before
                assert cached >= last - 4, (turn, cached, last)
            again = a.chat.completions.create(**ask)  # the same once more
            assert again.choices[0].message.content == want.choices[0].message.content
            assert again.usage.prompt_tokens_details.cached_tokens >= cached
            assert a.chat.completions.create(**ask, extra_body={"cache_prompt": False}).usage.prompt_tokens_details.cached_tokens == 0
            messages = messages + [{"role": "assistant", "content": r.choices[0].message.content}, {"role": "user", "content": f"And then? {turn}"}]
        assert s.metric("cached_tokens_total") > 0
        # a long prompt that begins like another: cut every 512 ids
        ids = [100 + i % 700 for i in range(1100)]
        first = s.post("/v1/completions", {"prompt": ids, "max_tokens": 4, "temperature": 0})[1]
        second = s.post("/v1/completions", {"prompt": ids + [5, 6], "max_tokens": 4, "temperature": 0})[1]
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 1024
        assert second["choices"][0]["text"] == alone(ids + [5, 6], 4)["text"]


def test_json():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                               "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
              "required": ["name", "age", "tags"], "additionalProperties": False}
    with serving() as s:
        c = s.client()
        for seed in range(4):
            ask = {"model": "demo", "messages": STORY, "max_tokens": 300, "temperature": 1.0, "seed": seed}
            r = c.chat.completions.create(**ask, response_format={"type": "json_object"})
            if r.choices[0].finish_reason == "stop":
                assert isinstance(json.loads(r.choices[0].message.content), dict)
            form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
            r = c.chat.completions.create(**ask, response_format=form)
            assert r.choices[0].finish_reason == "stop"
            jsonschema.validate(json.loads(r.choices[0].message.content), schema)
            same(c.chat.completions.create(**ask, response_format=form, stream=True), r)
        status, got = s.post("/v1/chat/completions", {"messages": STORY, "response_format": {"type": "xml"}})
        assert status == 400 and got["error"]["param"] == "response_format.type"


def test_tools():
    with serving("--template", "qwen3", "--sessions", 2) as s:
        c = s.client()
        ask = {"model": "demo", "messages": [{"role": "user", "content": "Weather in Rome?"}], "tools": TOOLS, "temperature": 1, "seed": 1,
               "max_tokens": 200, "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
        for choice in ("required", {"type": "function", "function": {"name": "roll"}}, {"type": "function", "function": {"name": "get_weather"}}):
            r = c.chat.completions.create(**ask, tool_choice=choice, parallel_tool_calls=False)
            calls = r.choices[0].message.tool_calls
            assert r.choices[0].finish_reason == "tool_calls" and calls and not r.choices[0].message.content, r
            for call in calls:
                tool = next(t["function"] for t in TOOLS if t["function"]["name"] == call.function.name)
                jsonschema.validate(json.loads(call.function.arguments), tool["parameters"])
                if choice != "required":
                    assert call.function.name == choice["function"]["name"] and len(calls) == 1
            same(c.chat.completions.create(**ask, tool_choice=choice, parallel_tool_calls=False, stream=True), r)
            # the results go back
            messages = ask["messages"] + [r.choices[0].message.model_dump(exclude_none=True)] + [
                {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
            r = c.chat.completions.create(**{**ask, "messages": messages}, tool_choice="none")
            assert r.choices[0].message.tool_calls is None
        # several; the last one is cut by the limit
        r = c.chat.completions.create(**ask, tool_choice="required")
        same(c.chat.completions.create(**ask, tool_choice="required", stream=True), r)
        assert len(r.choices[0].message.tool_calls) > 1
        r = c.chat.completions.create(**ask)
        same(c.chat.completions.create(**ask, stream=True), r)
        # thinking is apart
        thinking = {**ask, "max_tokens": 30, "extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
        del thinking["tools"]
        same(c.chat.completions.create(**thinking, stream=True), c.chat.completions.create(**thinking))
        # and ends where its budget does
        for budget in (0, 7):
            spent = {**thinking, "max_tokens": 40, "extra_body": {**thinking["extra_body"], "thinking_budget": budget}}
            r = c.chat.completions.create(**spent)
            message, _ = same(c.chat.completions.create(**spent, stream=True), r)
            assert message["content"] and "think>" not in message["content"] + message["reasoning_content"]
            assert budget <= r.usage.completion_tokens_details.reasoning_tokens <= budget + 12  # and what closes it
            long = whole(c.chat.completions.create(**thinking))["reasoning_content"]
            assert long.startswith(message["reasoning_content"].rstrip())
        for body, param in [({"tools": [{"type": "x"}]}, "tools[0]"), ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0]"),
                            ({"tools": TOOLS + TOOLS[:1]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
                            ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "z"}}}, "tool_choice"),
                            ({"tools": TOOLS, "tool_choice": "perhaps"}, "tool_choice"),
                            ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, "tool_choice"),
                            ({"tools": TOOLS, "tool_choice": {"type": "function", "name": TOOLS[0]["function"]["name"]}}, "tool_choice"), ({"functions": []}, "functions"),
                            ({"tools": TOOLS * 129}, "tools")]:
            status, got = s.post("/v1/chat/completions", {"messages": STORY, **body})
            assert status == 400 and got["error"]["param"] == param, got


def test_errors():
    rows = [({}, "messages"), ({"messages": []}, "messages"), ({"messages": "x"}, "messages"),
            ({"messages": [{"role": "king", "content": "x"}]}, "messages"), ({"messages": [{"role": "user", "content": 5}]}, "messages"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
            ({"messages": STORY, "top_logprobs": 3}, "top_logprobs"), ({"messages": STORY, "logprobs": 3}, "logprobs"),
            ({"messages": STORY, "max_completion_tokens": 0}, "max_completion_tokens"), ({"messages": STORY, "modalities": ["audio"]}, "modalities"),
            ({"messages": STORY, "tools": TOOLS}, "tools"),  # the small model's template has no place for them
            ({"messages": [{"role": "user", "content": "long " * 4000}]}, "messages"),
            # a NUL ends no name
            ({"messages": [{"role": "user\0x", "content": "x"}]}, "messages"), ({"messages": STORY, "max_tokens\0": 1}, "max_tokens"),
            ({"messages": [{"role": "user", "content": [{"type": "text\0x", "text": "x"}]}]}, "messages"),
            ({"messages": STORY + [{"role": "assistant", "tool_calls": [{"function": {"name": "f\0g", "arguments": "{}"}}]}]}, "messages"),
            ({"messages": STORY, "reasoning_effort": "none\0"}, "reasoning_effort"), ({"messages": STORY, "tool_choice": "none\0"}, "tool_choice"),
            ({"messages": STORY, "stream": True, "stream_options": {"include_usage\0": True}}, "stream_options"),
            ({"messages": STORY, "response_format": {"type": "text\0x"}}, "response_format.type"),
            ({"messages": STORY, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "string\0"}}}}, "response_format"),
            ({"messages": STORY, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type\0": "string"}}}}, "response_format")]
    with serving() as s:
        for body, param in rows:
            status, got = s.post("/v1/chat/completions", body)
            assert status == 400 and got["error"]["param"] == param, (body, got)
        assert s.post("/v1/chat/completions", {"messages": STORY, "max_tokens": 1, "reasoning_effort": "none", "store": False})[0] == 200


run_tests(globals())
