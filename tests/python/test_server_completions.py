"""/v1/completions, by OpenAI's own client and by hand: every answer is what `millet run` and `millet score` say alone."""
import json, math, pathlib, re, struct, subprocess, tempfile, threading
from serving import DEMO, MILLET, alone, events, run_tests, serving

PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named Lily", "In the garden there was"]


def log_softmax(prompt, ids):
    """Of each position behind the prompt's first token, from the logits that `millet score` writes, in double precision."""
    import numpy as np
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "ids").write_text(json.dumps(prompt + ids))
        subprocess.run([MILLET, "score", DEMO, "--ids-file", work / "ids", "--logits", work / "logits", "--json"], check=True,
                       capture_output=True)
        data = (work / "logits").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    [entry] = [v for k, v in json.loads(data[8 : 8 + size]).items() if k != "__metadata__"]
    x = np.frombuffer(data[8 + size :], np.float32).reshape(entry["shape"]).astype(np.float64)
    return x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))


def test_equals_run():
    with serving("--sessions", 3) as s:
        c = s.client()
        for p in PROMPTS:
            want = alone(p, 40)
            r = c.completions.create(model="demo", prompt=p, max_tokens=40, temperature=0)
            assert r.choices[0].text == want["text"] and r.choices[0].finish_reason == want["finish_reason"]
            assert r.usage.prompt_tokens == want["prompt_tokens"] and r.usage.completion_tokens == len(want["ids"])
            pieces = list(c.completions.create(model="demo", prompt=p, max_tokens=40, temperature=0, stream=True,
                                               stream_options={"include_usage": True}))
            assert "".join(e.choices[0].text for e in pieces if e.choices) == want["text"]
            assert [e.choices[0].finish_reason for e in pieces[:-1]] == [None] * (len(pieces) - 2) + [want["finish_reason"]]
            assert pieces[-1].usage.completion_tokens == len(want["ids"])


def test_sampling_fields():
    """Each option does what it does for `millet run`, by the same seed."""
    rows = [({"temperature": 1.2, "seed": 5}, ["-t", 1.2, "-s", 5]),
            ({"temperature": 1.2, "seed": 6, "top_k": 3}, ["-t", 1.2, "-s", 6, "--top-k", 3]),
            ({"temperature": 1.5, "seed": 7, "top_p": 0.5}, ["-t", 1.5, "-s", 7, "--top-p", 0.5]),
            ({"temperature": 1.5, "seed": 8, "min_p": 0.2}, ["-t", 1.5, "-s", 8, "--min-p", 0.2]),
            ({"temperature": 0, "repetition_penalty": 1.4}, ["--repetition-penalty", 1.4]),
            ({"temperature": 1, "seed": 9, "presence_penalty": 2}, ["-t", 1, "-s", 9, "--presence-penalty", 2]),
            ({"temperature": 0, "frequency_penalty": 0.8}, ["--frequency-penalty", 0.8])]
    with serving() as s:
        for fields, options in rows:
            want = alone(PROMPTS[0], 90, *options)
            status, got = s.post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 90, **fields})
            assert status == 200 and got["choices"][0]["text"] == want["text"], fields
            assert want["text"] != alone(PROMPTS[0], 90, *options[:-2])["text"], options  # it matters
        plain = alone(PROMPTS[0], 8)
        _, got = s.post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 8, "temperature": 0,
                                            "logit_bias": {str(plain["ids"][0]): -100}})
        assert not got["choices"][0]["text"].startswith(plain["text"][:1])
        _, got = s.post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 3, "temperature": 0, "logit_bias": {"300": 100},
                                            "logprobs": 0})
        assert len(set(got["choices"][0]["logprobs"]["tokens"])) == 1
        _, headers, _ = s.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "temperature": 0.5, "seed": 3})
        assert "temperature=0.5" in headers["x-sampling"] and "seed=3" in headers["x-sampling"]
        # without a seed two answers differ
        texts = {s.post("/v1/completions", {"prompt": "One", "max_tokens": 30, "temperature": 2})[1]["choices"][0]["text"]
                 for _ in range(4)}
        assert len(texts) > 1


def test_many_prompts_and_choices():
    with serving("--sessions", 2) as s:
        ids = alone(PROMPTS[1], 1)
        body = {"prompt": PROMPTS, "n": 3, "max_tokens": 12, "temperature": 1.3, "seed": 11}
        status, got = s.post("/v1/completions", body)
        assert status == 200 and [c["index"] for c in got["choices"]] == list(range(12))
        for i, c in enumerate(got["choices"]):
            assert c["text"] == alone(PROMPTS[i // 3], 12, "-t", 1.3, "-s", 11 + i % 3)["text"]
        joined = [""] * 12
        for e in events(s.request("POST", "/v1/completions", {**body, "stream": True})[2]):
            for c in e["choices"]:
                joined[c["index"]] += c["text"]
        assert joined == [c["text"] for c in got["choices"]]
        _, got = s.post("/v1/completions", {"prompt": [[493, 535], [11, 448, 317]], "max_tokens": 5, "temperature": 0})
        assert [c["text"] for c in got["choices"]] == [alone(p, 5)["text"] for p in ([493, 535], [11, 448, 317])]


def test_stop_strings():
    """Nothing of a stop string is sent, wherever tokens end."""
    with serving() as s:
        want = alone(PROMPTS[0], 40)["text"]
        for a in range(3, 30, 4):
            for n in (1, 2, 3, 7, 12):
                stop = want[a : a + n]
                at = want.find(stop)
                body = {"prompt": PROMPTS[0], "max_tokens": 40, "temperature": 0, "stop": [stop, "\0never"]}
                _, got = s.post("/v1/completions", body)
                assert got["choices"][0]["text"] == want[:at] and got["choices"][0]["finish_reason"] == "stop", stop
                found = events(s.request("POST", "/v1/completions", {**body, "stream": True, "logprobs": 1})[2])
                assert "".join(e["choices"][0]["text"] for e in found) == want[:at]
        # the beginning of one that doesn't come is sent after all
        body = {"prompt": PROMPTS[0], "max_tokens": 40, "temperature": 0, "stop": want[-5:] + "#"}
        assert s.post("/v1/completions", body)[1]["choices"][0]["text"] == want


def test_log_probabilities():
    with serving() as s:
        for p in PROMPTS[:2]:
            body = {"prompt": p, "max_tokens": 10, "temperature": 0, "logprobs": 5, "echo": True}
            _, got = s.post("/v1/completions", body)
            choice = got["choices"][0]
            scores = choice["logprobs"]
            n = got["usage"]["prompt_tokens"]
            tokens, top = scores["tokens"], scores["top_logprobs"]
            assert choice["text"] == p + alone(p, 10)["text"] == "".join(tokens) and len(tokens) == n + 10
            assert [choice["text"][o:].startswith(t) for o, t in zip(scores["text_offset"], tokens)] == [True] * (n + 10)
            assert scores["token_logprobs"][0] is None and top[0] is None
            encoded = subprocess.run([MILLET, "tokenize", DEMO / "Tokenizer", "--json-lines"], input=json.dumps({"text": p}),
                                     capture_output=True, text=True, check=True)
            prompt = json.loads(encoded.stdout)["ids"]
            ids = alone(p, 10)["ids"]
            want = log_softmax(prompt, ids)
            for i, id in enumerate((prompt + ids)[1:]):
                assert math.isclose(scores["token_logprobs"][i + 1], want[i][id], abs_tol=2e-5)  # fp32 of values below 20
                best = sorted(want[i])[::-1][:5]
                assert all(math.isclose(a, b, abs_tol=2e-5) for a, b in zip(top[i + 1].values(), best))
            streamed = events(s.request("POST", "/v1/completions", {**body, "stream": True})[2])
            assert [t for e in streamed for t in e["choices"][0]["logprobs"]["tokens"]] == tokens
            assert [t for e in streamed for t in e["choices"][0]["logprobs"]["token_logprobs"]] == scores["token_logprobs"]
        # nothing new: the prompt's own scores
        _, got = s.post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 0, "echo": True, "logprobs": 0})
        assert got["choices"][0]["text"] == PROMPTS[0] and len(got["choices"][0]["logprobs"]["token_logprobs"]) == 4


def test_side_by_side():
    """Long and short prompts, sampled and not, at once, on fewer sessions: each gets what it gets alone."""
    with serving("--sessions", 3, "--linear", "int16") as s:
        work = [{"prompt": (PROMPTS[i % 4] + " ") * (1 + 9 * (i % 3)), "max_tokens": 20 + i, "temperature": 0.9 * (i % 2), "seed": i}
                for i in range(14)]
        answers = [None] * len(work)

        def ask(i):
            answers[i] = s.post("/v1/completions", work[i])
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(work))]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for w, (status, got) in zip(work, answers):
            want = alone(w["prompt"], w["max_tokens"], "--linear", "int16",
                         *(["-t", w["temperature"], "-s", w["seed"]] if w["temperature"] else []))
            assert status == 200 and got["choices"][0]["text"] == want["text"]


def test_errors():
    import openai
    rows = [({}, 400, "prompt", "Missing required"), ({"prompt": 5}, 400, "prompt", "expected a string or an array"),
            ({"prompt": "x", "temperature": "hot"}, 400, "temperature", "expected a number, but got a string"),
            ({"prompt": "x", "temperature": 3}, 400, "temperature", "<= 2"), ({"prompt": "x", "n": 0}, 400, "n", ">= 1"),
            ({"prompt": "x", "max_tokens": 1.5}, 400, "max_tokens", "expected an integer, but got a decimal"),
            ({"prompt": "x", "stop": [""]}, 400, "stop", "empty"), ({"prompt": "x", "stop": ["a"] * 17}, 400, "stop", "at most"),
            ({"prompt": "x", "logit_bias": {"a": 1}}, 400, "logit_bias", "'a'"),
            *(({"prompt": "x", "logit_bias": {key: 1}}, 400, "logit_bias", "Invalid key") for key in ("01", "+1", "-0", "1 ", "1\0", "", "99999")),
            ({"prompt": "x", "logit_bias": {"1": 101}}, 400, "logit_bias[1]", "<= 100"),
            ({"prompt": "x", "suffix": "y"}, 400, "suffix", "gaps"), ({"prompt": "x", "flavour": 1}, 400, "flavour", "Unknown"),
            ({"prompt": [[1, 99999]]}, 400, "prompt", "outside the vocabulary"), ({"prompt": []}, 400, "prompt", "empty"),
            ({"prompt": "x", "max_tokens": 99999}, 400, "prompt", "maximum context length"),
            ({"prompt": [1] * 3000}, 400, "prompt", "at most 2048 tokens"),
            ({"prompt": "x", "stream_options": {}}, 400, "stream_options", "only allowed"),
            ({"prompt": "x", "model": "other"}, 404, "model", "does not exist"),
            ({"prompt": "x", "model": "demo\0x"}, 404, "model", "does not exist"), ({"prompt": "x", "seed\0": 1}, 400, "seed", "Unknown")]
    with serving() as s:
        for body, status, param, text in rows:
            code, got = s.post("/v1/completions", body)
            e = got["error"]
            assert code == status and e["param"] == param and text in e["message"], (body, got)
            assert set(e) == {"message", "type", "param", "code"}
        for body in ("", "{", "[]", '{"prompt": "x"} x', '{"prompt": "x", "prompt": "y"}', b'{"prompt": "\xff"}', "[" * 1000):
            code, got = s.post("/v1/completions", body)
            assert code == 400 and got["error"]["code"] == "invalid_json", got
        for body, place in (('{"prompt": "abc', 15), ('{"prompt": 1,, "n": 1}', 14), ('{"prompt": 1} x', 14), ("[1, 2", 5)):
            found = int(re.search(r"request: not valid JSON at column (\d+) ", s.post("/v1/completions", body)[1]["error"]["message"])[1])
            assert abs(found - 1 - place) <= 1, (body, found)
        assert s.post("/v1/completions", {"prompt": "x", "user": "u", "metadata": {}, "temperature": None})[0] == 200
        c = s.client()
        for call, kind in [(lambda: c.completions.create(model="gone", prompt="x"), openai.NotFoundError),
                           (lambda: c.completions.create(model="demo", prompt="x", temperature=9), openai.BadRequestError),
                           (lambda: c.embeddings.create(model="demo", input="x"), openai.BadRequestError),
                           (lambda: c.models.retrieve("gone"), openai.NotFoundError)]:
            try:
                call()
                assert False
            except kind as e:
                assert e.body["message"]
        assert [m.id for m in c.models.list()] == ["demo"] and c.models.retrieve("demo").owned_by == "millet"


run_tests(globals())
