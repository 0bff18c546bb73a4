"""What takes a package takes a Core AI bundle: one checkpoint in precision float32 in both formats, through `millet chat`, `do`, `serve`,
the other commands and the binding. Replies are transformers' (tests/data/generate), or those of the package; fp32 has no near ties here."""
import binding
import json, os, pathlib, subprocess, tempfile
import numpy as np

import millet
from cases import load
from serving import MILLET, alone, events, serving

CHECKPOINT = binding.SOURCE / "models" / "tiny-qwen3.5"
GOLDEN = json.loads((binding.SOURCE / "tests" / "data" / "generate" / "tiny-qwen3.5.json").read_text())
GREEDY = {"repetition_penalty": 1, "max_new_tokens": 64, "ignore_eos": True}
FRANCE, PARIS = "What is the capital of France?", "The capital of France is Paris."
work = pathlib.Path((held := tempfile.TemporaryDirectory()).name)
both = ["-q", "--precision", "float32", "--context", "256", "--prefill", "4,16"]
PACKAGE, BUNDLE = work / "package", work / "bundle"
subprocess.run([MILLET, "convert", CHECKPOINT, "-o", PACKAGE, *both], check=True)
subprocess.run([MILLET, "convert", CHECKPOINT, "-o", BUNDLE, "--format", "coreai", *both], check=True)
ASSET = BUNDLE / "tiny-qwen3.5.aimodel"


def output(*command, text=None, code=0):
    done = subprocess.run([MILLET, *map(str, command)], input=text, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


def same(*command, artifact, text=None):
    """What a command says of both; `artifact` is its place in the command."""
    said = [output(*command[:artifact], path, *command[artifact:], text=text) for path in (PACKAGE, BUNDLE)]
    assert said[0] == said[1], said
    return said[1]


def run_and_score():
    for prompt in GOLDEN["prompts"]:
        got = alone(prompt["ids"], 64, "--ignore-eos", "--repetition-penalty", 1, artifact=BUNDLE)
        assert got["ids"] == prompt["greedy"] and got["text"] == prompt["greedy_text"]
    ids = work / "ids.json"
    ids.write_text(json.dumps(GOLDEN["teacher_forced"]["ids"]))
    score = json.loads(output("score", BUNDLE, "--ids-file", ids, "--json"))
    assert abs(score["mean_nll"] - GOLDEN["teacher_forced"]["mean_nll"]) < 1e-4, score


def chat():
    greedy = ("--temperature", "0", "-n", "100")
    assert output("chat", BUNDLE, *greedy, text=FRANCE + "\n") == PARIS + "\n"
    turns = same("chat", *greedy, artifact=1, text=FRANCE + "\nHello\nTell me a story\n")
    assert turns.startswith(PARIS + "\n") and turns.count("\n") >= 3
    kept = work / "kept"  # states on disk: the second program feeds what is new
    assert output("chat", BUNDLE, *greedy, text=f"{FRANCE}\n/save {kept}\n") == PARIS + "\n"
    assert turns.startswith(PARIS + "\n" + output("chat", BUNDLE, *greedy, "--load", kept, text="Hello\n"))


def tasks():
    text = "Ben found a red ball near the road.\nThen he saw a horse.\n"
    schema = {"type": "object", "properties": {"animal": {"type": "string", "maxLength": 10}}, "required": ["animal"],
              "additionalProperties": False}
    (work / "schema.json").write_text(json.dumps(schema))
    for command in (["summarize"], ["proofread"], ["translate", "--to", "German"], ["decide", "--options", "yes,no"],
                    ["extract", "--json-schema", work / "schema.json"]):
        said = same("do", command[0], *command[1:], artifact=2, text=text)
        assert said.strip()
    assert set(json.loads(said)) == {"animal"}


def serve():
    ask = {"model": "bundle", "messages": [{"role": "user", "content": FRANCE}], "max_completion_tokens": 60, "temperature": 0}
    with serving("--sessions", 2, artifact=BUNDLE) as s:
        assert s.post("/v1/chat/completions", ask)[1]["choices"][0]["message"]["content"] == PARIS
        status, _, text = s.request("POST", "/v1/chat/completions", {**ask, "stream": True})
        pieces = [e["choices"][0]["delta"].get("content") or "" for e in events(text) if e["choices"]]
        assert status == 200 and "".join(pieces) == PARIS
        for prompt in GOLDEN["prompts"]:  # the second time in front of kept prefixes
            for _ in range(2):
                got = s.post("/v1/completions", {"model": "bundle", "prompt": prompt["ids"], "max_tokens": 32, "temperature": 0})[1]
                want = alone(prompt["ids"], 32, "--temperature", 0, artifact=BUNDLE)
                assert got["choices"][0]["text"] == want["text"]
        several = s.post("/v1/completions", {"model": "bundle", "prompt": [p["ids"] for p in GOLDEN["prompts"]], "max_tokens": 8,
                                             "temperature": 0})[1]
        assert [c["text"] for c in several["choices"]] == [alone(p["ids"], 8, "--temperature", 0, artifact=BUNDLE)["text"]
                                                           for p in GOLDEN["prompts"]]


def model_of_the_binding():
    with millet.Model(BUNDLE) as model:
        assert model.context == 256 and model.vocabulary == 4096
        for prompt in GOLDEN["prompts"]:
            assert model.generate(prompt["text"], **GREEDY).ids == prompt["greedy"]
            assert [p.id for p in model.stream(prompt["ids"], **GREEDY) if p.id is not None] == prompt["greedy"]
        score = model.score(GOLDEN["teacher_forced"]["ids"])
        assert abs(score.mean - GOLDEN["teacher_forced"]["mean_nll"]) < 1e-4
        ids = GOLDEN["prompts"][0]["ids"] + GOLDEN["prompts"][0]["greedy"][:10]
        assert model.logits(ids).argmax(-1)[2:].tolist() == GOLDEN["prompts"][0]["greedy"][:11]
        with millet.ChatSession(model) as session:
            assert session.send(FRANCE, temperature=0).text == PARIS
            assert session.send("Hello", temperature=0, max_new_tokens=4).prompt_tokens > 0


def programs_of_the_binding():
    """The asset alone, call by call: states go on, and start anew."""
    ids = GOLDEN["prompts"][0]["ids"] + GOLDEN["prompts"][0]["greedy"][:4]
    asset = millet.MLModel(ASSET)
    for _ in range(2):
        state, best = asset.make_state(), []
        for i, id in enumerate(ids):
            call = {"input_ids": np.array([[id]], np.int32), "position_ids": np.arange(i + 1, dtype=np.int32)[None]}
            best.append(int(asset.predict(call, state)["logits"].argmax()))
        assert best[2:] == GOLDEN["prompts"][0]["greedy"][:5]


def predict():
    """The asset alone, one call a token, states going on."""
    ids = GOLDEN["prompts"][1]["ids"]
    head, data = {}, b""
    for i, id in enumerate(ids):
        for name, values in (("input_ids", [id]), ("position_ids", range(i + 1))):
            raw = np.array(values, np.int32).tobytes()
            head[f"{name}{i}"] = {"dtype": "I32", "shape": [1, len(raw) // 4], "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(head).encode()
    (work / "in.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    calls = [{"state": "a", "inputs": {n: f"{n}{i}" for n in ("input_ids", "position_ids")}} for i in range(len(ids))]
    (work / "calls.json").write_text(json.dumps({"tensors": "in.safetensors", "calls": calls}))
    output("predict", ASSET, "--calls", work / "calls.json", "-o", work / "out.safetensors")
    got = load(work / "out.safetensors")
    assert got[f"call{len(ids) - 1}.out.logits"].argmax() == GOLDEN["prompts"][1]["greedy"][0]


def other_commands():
    for path in (BUNDLE, ASSET):
        assert "prefill_16" in output("inspect", path)
    assert "every rule is kept" in output("inspect", BUNDLE, "--verify")
    report = json.loads(output("check", BUNDLE, "--against", CHECKPOINT, "--only", "structure,weights,scores", "--budget", "16", "--json"))
    assert not report["failures"]
    assert json.loads(output("bench", BUNDLE, "-p", "8", "-n", "2", "-r", "1", "--json"))


binding.run([run_and_score, chat, tasks, serve, model_of_the_binding, programs_of_the_binding,
             predict, other_commands])
