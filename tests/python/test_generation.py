"""millet.Model, Stream, ChatSession and Tokenizer on the small model: ids, texts, scores and chat templates are transformers'
(tests/data/generate, shared oracles)."""
import binding
import gc, json, os, signal, subprocess, sys, tempfile, threading, time, weakref
import numpy as np

import millet
from binding import raises
from cases import CASES

CHECKPOINT = binding.SOURCE / "models" / "tiny-qwen3.5"
GOLDEN = json.loads((binding.SOURCE / "tests" / "data" / "generate" / "tiny-qwen3.5.json").read_text())
work = tempfile.TemporaryDirectory()
PATH = os.path.join(work.name, "artifact")
subprocess.run([binding.BUILD / "millet", "convert", CHECKPOINT, "-o", PATH, "-q", "--precision", "float32", "--context", "256"],
               check=True)
model = millet.Model(PATH)
GREEDY = {"repetition_penalty": 1, "max_new_tokens": 64, "ignore_eos": True}


def greedy_ids_and_text():
    for prompt in GOLDEN["prompts"]:
        pieces = []
        for given in (prompt["text"], prompt["ids"]):
            got = model.generate(given, pieces.append, **GREEDY)
            assert got.ids == prompt["greedy"] and got.text == prompt["greedy_text"] == "".join(pieces)
            assert (got.finish_reason, got.prompt_tokens) == ("length", len(prompt["ids"]))
            assert got.prompt_seconds > 0 and got.decode_seconds > 0
            pieces.clear()
    assert model.context == 256 and model.vocabulary == 4096


def streams_are_the_same():
    for prompt in GOLDEN["prompts"]:
        stream = model.stream(prompt["text"], **GREEDY)
        pieces = list(stream)
        assert "".join(pieces) == prompt["greedy_text"]
        assert [p.id for p in pieces if p.id is not None] == prompt["greedy"] == stream.result.ids
        assert list(stream) == []


def streams_end_early():
    before = threading.active_count()
    with model.stream("Once upon a", **GREEDY) as stream:
        assert next(stream) == " time"
    assert stream.result is None and list(stream) == []
    for piece in model.stream("Once upon a", **GREEDY):
        break
    gc.collect()
    assert threading.active_count() == before
    got = model.generate("Once upon a", lambda piece: piece != " time", **GREEDY)
    assert got.finish_reason == "cancelled" and len(got.ids) == 1
    raises(millet.MilletError, ["4096 at index 0"], list, model.stream([4096]))


def errors_name_what_is_wrong():
    raises(millet.MilletError, ["empty"], model.generate, "")
    raises(millet.MilletError, ["300 tokens"], model.generate, [1] * 300)
    raises(TypeError, ["no option 'temprature'", "temperature"], model.generate, "a", temprature=1)
    raises(ValueError, ["fast, strict"], model.generate, "a", precision="half")
    raises(millet.MilletError, ["nowhere"], millet.Model, "nowhere")
    raises(ZeroDivisionError, [], model.generate, "Once", lambda piece: 1 / 0)  # in the callback, not lost
    with millet.Model(PATH) as other:
        pass
    raises(ValueError, ["closed"], other.generate, "a")
    raises(ValueError, ["closed"], other.tokenizer.encode, "a")
    try:
        model.generate([1] * 300)
    except millet.MilletError as e:
        assert e.code is millet.ErrorCode.LIMIT


def options_reach_the_sampler():
    hot = dict(temperature=1.5, top_k=-1, top_p=1, max_new_tokens=24, ignore_eos=True)
    a, b, c = (model.generate("Once upon a", seed=s, **hot).ids for s in (7, 7, 8))
    assert a == b != c
    assert model.generate("Once upon a", max_new_tokens=0).ids == []
    stop = model.generate(GOLDEN["chat"][0]["ids"], max_new_tokens=96, repetition_penalty=1)
    first = GOLDEN["chat"][0]["greedy_first_stop"]
    assert stop.finish_reason == "stop" and stop.ids == GOLDEN["chat"][0]["greedy"][: first + 1]
    assert model.is_stop(stop.ids[-1]) and not model.is_stop(stop.ids[0])


def scores_are_transformers():
    forced = GOLDEN["teacher_forced"]
    score = model.score(forced["ids"])
    assert score.compared == len(forced["ids"]) - 1 and not score.outside
    assert abs(score.mean - forced["mean_nll"]) < 1e-4, score.mean  # f32 sums in another order
    assert abs(np.log(score.perplexity) - score.mean) < 1e-12
    prompt = GOLDEN["prompts"][0]
    logits = model.logits(prompt["ids"] + prompt["greedy"][:10])
    assert logits.shape == (len(prompt["ids"]) + 10, 4096) and logits.dtype == np.float32
    assert logits[len(prompt["ids"]) - 1 :].argmax(-1).tolist() == prompt["greedy"][:11]
    assert model.score("Once").compared == len(model.tokenizer.encode("Once")) - 1


def threads_generate_at_once():
    got = {}

    def generate(i):
        got[i] = model.generate(GOLDEN["prompts"][i % 2]["text"], **GREEDY).ids

    threads = [threading.Thread(target=generate, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(got[i] == GOLDEN["prompts"][i % 2]["greedy"] for i in range(4))


def interrupts_end_the_work():
    """SIGINT ends a generation, a stream and a program that streams, within a step."""
    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    endless = dict(max_new_tokens=250, ignore_eos=True)
    slow = lambda piece: time.sleep(0.05)
    for generate in (lambda: model.generate("Once", slow, **endless),
                     lambda: [time.sleep(0.05) for _ in model.stream("Once", **endless)]):
        threading.Thread(target=interrupt).start()
        began = time.monotonic()
        try:
            generate()
            raise AssertionError("was not interrupted")
        except KeyboardInterrupt:
            assert time.monotonic() - began < 8
    script = f"import millet\nfor piece in millet.Model({PATH!r}).stream('Once', max_new_tokens=250, ignore_eos=True): raise SystemExit(3)"
    assert subprocess.run([sys.executable, "-c", script], timeout=120, env={**os.environ, "PYTHONPATH": sys.path[0]}).returncode == 3


def what_is_dropped_is_freed():
    held = millet.Model(PATH)
    handle, session = weakref.ref(held._handle), millet.ChatSession(held)
    stream = held.stream("Once", max_new_tokens=2)
    generated = held.generate("Once", max_new_tokens=2)
    del held
    gc.collect()
    assert handle() is not None and generated.ids == [p.id for p in stream if p.id is not None]
    del stream, session
    gc.collect()
    assert handle() is None


def tokenizer_is_the_library_s():
    t = model.tokenizer
    text = "Once upon a time, there was a naïve 🦊.<|im_end|>"
    ids = t.encode(text)
    assert t.decode(ids) == text and t.decode(ids, skip_special_tokens=True) == text[: -len("<|im_end|>")]
    pieces = list(t.stream(iter(ids)))
    assert "".join(pieces) == text and all("\ufffd" not in p for p in pieces)
    assert millet.Tokenizer(t.path).encode(text) == ids
    assert t.encode("") == [] and t.decode([]) == "" and t.encode("a\0b") == t.encode("a") + t.encode("\0b")
    for prompt in GOLDEN["prompts"]:
        assert t.encode(prompt["text"]) == prompt["ids"]
    raises(millet.MilletError, ["nowhere"], millet.Tokenizer, "nowhere")
    with tempfile.TemporaryDirectory() as other:
        form = json.loads((CHECKPOINT / "tokenizer.json").read_text())
        [bos] = t.encode("<|im_start|>")
        single = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        form["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [bos], "tokens": ["<|im_start|>"]}}}
        with open(os.path.join(other, "tokenizer.json"), "w") as f:
            json.dump(form, f)
        t = millet.Tokenizer(other)
        assert t.encode(text) == [bos] + ids and t.encode(text, add_special_tokens=False) == ids


def chat_templates_are_transformers():
    ours = [{"role": "user", "content": "Hi <|im_end|>"}]  # ChatML, and as the small model's own template has it
    text = model.tokenizer.apply_chat_template(ours, tokenize=False, add_generation_prompt=True, template="chatml")
    assert text == "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    ids = model.tokenizer.apply_chat_template(ours, add_generation_prompt=True, template="chatml")
    end, = model.tokenizer.encode("<|im_end|>")
    assert ids.count(end) == 1 and model.tokenizer.decode(ids) == text  # what a user writes ends no turn
    raises(millet.MilletError, ["no chat template", "chatml"], model.tokenizer.apply_chat_template, ours, template="nothing")
    raises(millet.MilletError, ["enable_thinking"], model.tokenizer.apply_chat_template, ours, enable_thinking="maybe")
    path = CASES / "oracles" / "tiny-qwen3.5" / "oracle.json"
    if not path.exists():
        print(f"skipped: {path} is not there")
        return
    for case in json.loads(path.read_text())["chat"]:
        flags = {k: v for k, v in case.items() if k in ("add_generation_prompt", "enable_thinking", "tools") and v is not None}
        assert model.tokenizer.apply_chat_template(case["messages"], tokenize=False, **flags) == case["text"]
        assert model.tokenizer.apply_chat_template(case["messages"], **flags) == case["ids"]
    raises(millet.MilletError, ["System message must be at the beginning"], model.tokenizer.apply_chat_template,
           [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])


def render(tokenizer, case):
    options = {k: v for k, v in case.get("options", {}).items() if v is not None}
    try:
        return tokenizer.apply_chat_template(case["messages"], tokenize=False, template=case["family"], **options)
    except millet.MilletError as e:
        return e


def chat_cases_are_as_in_c():
    """The conversations of tests/golden/test_chat.c: text of every template, what is refused, ids."""
    shipped = binding.SOURCE / "tests" / "data" / "chat_cases.jsonl"
    for line in shipped.open(encoding="utf-8"):
        case = json.loads(line)
        got = render(model.tokenizer, case)
        assert got == case["text"] if case.get("text") is not None else isinstance(got, millet.MilletError), case
    shared = CASES / "tokenizer"
    if not shared.exists():
        print(f"skipped: {shared} is not there")
        return
    t = {name: millet.Tokenizer(shared / name) for name in ("qwen3", "qwen3_5")}
    others = rendered = 0
    for line in (shared / "dev" / "chat.jsonl").open(encoding="utf-8"):
        case = json.loads(line)
        tokenizer = t["qwen3_5" if case["family"].startswith("qwen3_5") else "qwen3"]
        got = render(tokenizer, case)
        if case.get("text") is None:
            assert isinstance(got, millet.MilletError), case
            continue
        assert got == case["text"], case["id"]
        ids = tokenizer.apply_chat_template(case["messages"], template=case["family"], **case["options"])
        others += ids != case["ids"]  # where messages hold texts of control tokens
        rendered += 1
    assert rendered > 300 and others < 40, (rendered, others)


def chats_keep_their_turns():
    options = {"repetition_penalty": 1, "max_new_tokens": 40}
    with millet.ChatSession(model, options=options, template={"enable_thinking": False}) as chat:
        first = chat.send("What is the capital of France?")
        assert first.reused_tokens == 0 and "Paris" in first.text
        pieces = list(chat.stream("And of Italy?", max_new_tokens=30))
        assert [m["role"] for m in chat.messages] == ["user", "assistant"] * 2 and chat.messages[3]["content"] == "".join(pieces)
        ids = model.tokenizer.apply_chat_template(chat.messages[:3], add_generation_prompt=True, enable_thinking=False)
        alone = model.generate(ids, **{**options, "max_new_tokens": 30})
        assert alone.text == "".join(pieces)  # a session's states are what feeding it all gives
        with chat.stream("Stop") as stream:
            next(stream)
        assert len(chat.messages) == 4
        chat.reset()
        assert chat.messages == [] and chat.send("What is the capital of France?").ids == first.ids


if __name__ == "__main__":
    binding.run([greedy_ids_and_text, streams_are_the_same, streams_end_early, errors_name_what_is_wrong,
                 options_reach_the_sampler, scores_are_transformers, threads_generate_at_once, interrupts_end_the_work,
                 what_is_dropped_is_freed, tokenizer_is_the_library_s, chat_templates_are_transformers, chat_cases_are_as_in_c,
                 chats_keep_their_turns])
