"""Text in, text out: a model that generates, its streams, and chats.

    model = millet.Model("out/qwen3")
    for piece in model.stream("Once upon a time", max_new_tokens=100):
        print(piece, end="", flush=True)

Threads: any number may generate with one :class:`Model` at once, each call on states of its own. A :class:`ChatSession` and
a :class:`Stream` belong to one thread at a time. KeyboardInterrupt ends the work that is under way."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np

from ._native import (
    TOKEN_FN, Error, GenerateOptions, Handle, LmOptions, MilletError, OpenOptions, Scores, SessionOptions,
    failure, lib, opened,
)
from ._native import Generation as NativeGeneration
from ._package import PRECISIONS
from .tokenizer import Message, Tokenizer

Prompt = Union[str, Sequence[int]]
"""A text, or token ids."""
ABSENT = np.float32(-1e4)
"""The logit of an id that a package with a list of candidates does not return."""
_FINISH = ("stop", "length", "cancelled")


@dataclass
class Generation:
    """What a call generated. ``finish_reason``: "stop" (a stop token, the last of ids), "length" or "cancelled"."""

    text: str
    ids: List[int]
    finish_reason: str
    prompt_tokens: int
    reused_tokens: int
    prompt_seconds: float
    decode_seconds: float


@dataclass
class Score:
    """How well a model predicts a text: ``nll`` is the sum of -log p over ``compared - outside`` tokens."""

    tokens: int
    compared: int
    agree: int
    outside: int
    nll: float

    @property
    def mean(self) -> float:
        counted = self.compared - self.outside
        return self.nll / counted if counted else float("nan")

    @property
    def perplexity(self) -> float:
        return float(np.exp(self.mean))


class Piece(str):
    """A piece of generated text, and the id of the token that completed it (None: what was left at the end)."""

    id: Optional[int]

    def __new__(cls, text: str, id: Optional[int]) -> "Piece":
        piece = super().__new__(cls, text)
        piece.id = id
        return piece


class _Run:
    """One generation in a thread of its own. Its pieces, then its result or exception, come through a queue; with steps,
    it makes the next token when go() has been called, so that a stream is lazy and ends where it is told to."""

    def __init__(self, options: Dict[str, Any], steps: bool) -> None:
        self.queue: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._cancel = Handle(lib.millet_cancel_new(), lib.millet_cancel_free)
        self._next = threading.Semaphore(0) if steps else None
        self._stopped = False
        known = {name for name, *_ in GenerateOptions._fields_} - {"size", "on_token", "keep_going", "ctx", "cancel"}
        for name in options:
            if name not in known:
                raise TypeError(f"there is no option {name!r}; there are: {', '.join(sorted(known))}")
        self._options = {k: v for k, v in options.items() if v is not None}
        if "precision" in self._options:
            self._options["precision"] = _precision(self._options["precision"])
        if self._options.get("max_new_tokens") == 0:
            self._options["max_new_tokens"] = -1  # none; the library's 0 is its default

    def __call__(self, function: Callable[..., bool], *arguments: Any) -> Generation:
        """Calls a function of the library that generates."""
        pieces: List[Piece] = []

        def on_token(_: Any, id: int, text: Any, n: int) -> bool:
            pieces.append(Piece(ctypes.string_at(text, n).decode() if n else "", id if id >= 0 else None))
            self.queue.put(pieces[-1])
            if self._next:
                self._next.acquire()
            return not self._stopped

        result, error = NativeGeneration(), Error()
        with self._cancel as flag:
            options = GenerateOptions(on_token=TOKEN_FN(on_token), cancel=flag, **self._options)
            done = function(*arguments, ctypes.byref(options), ctypes.byref(result), ctypes.byref(error))
        try:
            if not done:
                raise failure(error)
            return Generation("".join(pieces), result.ids[: result.n_ids], _FINISH[result.finish], result.prompt_tokens,
                              result.reused_tokens, result.prompt_seconds, result.decode_seconds)
        finally:
            lib.millet_free(result.ids)

    def go(self) -> None:
        if self._next:
            self._next.release()

    def stop(self) -> None:
        """From any thread: ends it within the step under way."""
        self._stopped = True
        with self._cancel as flag:
            lib.millet_cancel_set(flag)
        self.go()


def _precision(name: str) -> int:
    if name not in PRECISIONS:
        raise ValueError(f'precision is one of {", ".join(PRECISIONS)}, not {name!r}')
    return PRECISIONS[name]


class Stream:
    """Pieces of text, each generated when it is asked for. ``result`` is the :class:`Generation` once the stream is at its
    end. Closing it, leaving its ``with``, or dropping it ends the generation."""

    def __init__(self, run: _Run, generate: Callable[[], Generation], on_end: Callable[[Generation], Any]) -> None:
        self.result: Optional[Generation] = None
        self._run = run
        self._on_end = on_end
        self._paused = False  # the thread waits for go()
        self._thread = threading.Thread(target=_produce, args=(generate, run.queue), daemon=True)
        self._end = weakref.finalize(self, _stop, run, self._thread)
        self._thread.start()

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Piece:
        if not self._end.alive:
            raise StopIteration
        try:
            if self._paused:
                self._run.go()
            item = self._run.queue.get()
        except BaseException:
            self.close()
            raise
        self._paused = isinstance(item, Piece)
        if isinstance(item, Piece):
            return item
        self.close()
        if isinstance(item, BaseException):
            raise item
        self.result = item
        self._on_end(item)
        raise StopIteration

    def _consume(self, on_piece: Optional[Callable[[Piece], Any]]) -> Generation:
        """Runs to the end, or until on_piece returns False."""
        with self:
            for piece in self:
                if on_piece is not None and on_piece(piece) is False:
                    self._run.stop()
                    on_piece = None
        assert self.result is not None
        return self.result

    def close(self) -> None:
        """Ends the generation and waits until its step under way is done."""
        self._end()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _produce(generate: Callable[[], Generation], to: "queue.SimpleQueue[Any]") -> None:
    try:
        to.put(generate())
    except BaseException as e:
        to.put(e)


def _stop(run: _Run, thread: threading.Thread) -> None:
    run.stop()
    if thread is not threading.current_thread():
        thread.join()


class Model:
    """A language model: a directory that ``millet convert`` made, a .mlpackage with its table and tokenizer beside it, a
    Core AI bundle, or a set of another converter's packages.

    path: where it is. tokenizer: directory of the tokenizer, where it isn't beside the packages. contract: a file that
    describes how the set is driven (docs/contracts.md). linear: as for ``MLModel``; None: the library's default."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], tokenizer: Union[str, "os.PathLike[str]", None] = None, *,
                 contract: Union[str, "os.PathLike[str]", None] = None, linear: Optional[str] = None) -> None:
        self.path = os.fspath(path)
        open_options = OpenOptions(linear=linear.encode() if linear else None)
        options = LmOptions(open=ctypes.pointer(open_options), tokenizer=os.fsencode(tokenizer) if tokenizer else None,
                            contract=os.fsencode(contract) if contract else None)
        self._handle = opened(lib.millet_lm_open, lib.millet_lm_close, os.fsencode(path), ctypes.byref(options))
        with self._handle as m:
            pointer = lib.millet_lm_tokenizer(m)
            self.tokenizer = Tokenizer._of(self._handle, pointer, os.fsdecode(lib.millet_lm_tokenizer_path(m))) \
                if pointer else None
            self.context: int = lib.millet_lm_context(m)
            self.vocabulary: int = lib.millet_lm_vocabulary(m)

    def close(self) -> None:
        """Lets the model go; work under way is finished first."""
        self._handle.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def is_stop(self, id: int) -> bool:
        """Whether a token ends generation."""
        with self._handle as m:
            return bool(lib.millet_lm_is_stop(m, id))

    def _generate(self, run: _Run, prompt: Prompt) -> Generation:
        with self._handle as m:
            if isinstance(prompt, str):
                return run(lib.millet_generate, m, prompt.encode())
            return run(lib.millet_generate_ids, m, _ids(prompt), len(prompt))

    def generate(self, prompt: Prompt, on_piece: Optional[Callable[[Piece], Any]] = None, **options: Any) -> Generation:
        """Generates behind a prompt. on_piece is called with every new :class:`Piece`; returning False ends it.

        Options: max_new_tokens (256), temperature (0: greedy), top_k, top_p, min_p, repetition_penalty, presence_penalty,
        frequency_penalty, seed, ignore_eos, precision ("fast", "strict"). What is left out is as the checkpoint's
        generation_config.json says, but for the temperature."""
        return self._start(prompt, options, on_piece is not None)._consume(on_piece)

    def stream(self, prompt: Prompt, **options: Any) -> Stream:
        """As :meth:`generate`, as an iterator of pieces."""
        return self._start(prompt, options, True)

    def _start(self, prompt: Prompt, options: Dict[str, Any], steps: bool) -> Stream:
        run = _Run(options, steps)
        return Stream(run, lambda: self._generate(run, prompt), lambda result: None)

    def logits(self, ids: Sequence[int], precision: str = "fast") -> np.ndarray:
        """Logits [n, vocabulary] behind each of n ids, fed one by one. What a package with candidates only does not return
        is ``ABSENT``."""
        rows: List[np.ndarray] = []
        width = self.vocabulary
        with _Generator(self, precision) as g:
            for id in ids:
                score, candidate = g.feed([id])
                width = max(width, len(score) if candidate is None else int(candidate.max()) + 1)
                row = np.full(width, ABSENT, np.float32)
                row[slice(len(score)) if candidate is None else candidate] = score
                rows.append(row)
        for i, row in enumerate(rows):
            if len(row) < width:
                rows[i] = np.concatenate([row, np.full(width - len(row), ABSENT, np.float32)])
        return np.stack(rows) if rows else np.empty((0, width), np.float32)

    def score(self, text: Prompt, precision: str = "fast") -> Score:
        """Feeds a text token by token and compares what the model expects with what comes."""
        ids = self._encoded(text)
        result = Score(len(ids), max(len(ids) - 1, 0), 0, 0, 0.0)
        with _Generator(self, precision) as g:
            for id, following in zip(ids, ids[1:]):
                score, candidate = g.feed([id])
                place = following if candidate is None else next(iter(np.flatnonzero(candidate == following)), -1)
                if not 0 <= place < len(score):
                    result.outside += 1
                    continue
                wide = score.astype(np.float64)
                result.agree += int(score.argmax() == place)
                result.nll += float(np.log(np.exp(wide - wide.max()).sum()) + wide.max() - wide[place])
        return result

    def _encoded(self, text: Prompt) -> List[int]:
        if not isinstance(text, str):
            return [int(i) for i in text]
        if self.tokenizer is None:
            raise MilletError(f"{self.path}: text needs a tokenizer, and there is none beside the packages: name its "
                              "directory, or give token ids")
        return self.tokenizer.encode(text)


def _ids(ids: Sequence[int]) -> Any:
    return (ctypes.c_int32 * len(ids))(*(int(i) for i in ids))


class _Generator:
    """A timeline of a model that stays: what it has been fed is not fed again."""

    def __init__(self, model: Model, precision: str) -> None:
        self._lock = threading.Lock()
        with model._handle as m:
            self.handle = opened(lib.millet_generator_new, lib.millet_generator_free, m,
                                 ctypes.byref(SessionOptions(precision=_precision(precision))), keep=(model._handle,))
        self._model = model

    def __enter__(self) -> "_Generator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.handle.close()

    def feed(self, ids: Sequence[int]) -> Any:
        """Scores behind the last id, and the ids they belong to (None: all in order)."""
        scores, error = Scores(), Error()
        with self._model._handle, self.handle as g:
            if not lib.millet_generator_feed(g, _ids(ids), len(ids), None, ctypes.byref(scores), ctypes.byref(error)):
                raise failure(error)
            score = np.ctypeslib.as_array(scores.score, (scores.n,)).copy()
            return score, np.ctypeslib.as_array(scores.id, (scores.n,)).copy() if scores.id else None

    def run(self, run: _Run, ids: Sequence[int]) -> Generation:
        with self._model._handle, self.handle as g, self._lock:
            return run(lib.millet_generator_run, g, _ids(ids), len(ids))


@dataclass
class ChatSession:
    """A conversation: turns in the model's own chat template, of which only what is new is fed. One thread at a time.

    model: an opened :class:`Model` with a tokenizer that has a chat template. system: the first message, where one is
    wanted. options: of every turn, as for ``Model.generate``. template: variables for the template, as
    ``{"enable_thinking": False}``."""

    model: Model
    system: Optional[str] = None
    options: Dict[str, Any] = field(default_factory=dict)
    template: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.model.tokenizer is None:
            raise MilletError(f"{self.model.path}: a chat needs a tokenizer, and there is none beside the packages")
        self.options = dict(self.options)
        self._generator = _Generator(self.model, self.options.pop("precision", "fast"))
        self.messages: List[Dict[str, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Forgets all turns."""
        self.messages = [{"role": "system", "content": self.system}] if self.system is not None else []

    def _prompt(self, content: str) -> List[int]:
        assert self.model.tokenizer is not None
        turns: List[Message] = [*self.messages, {"role": "user", "content": content}]
        ids = self.model.tokenizer.apply_chat_template(turns, add_generation_prompt=True, **self.template)
        assert isinstance(ids, list)
        return ids

    def _answered(self, content: str, answer: Generation) -> None:
        self.messages += [{"role": "user", "content": content}, {"role": "assistant", "content": answer.text}]

    def send(self, content: str, on_piece: Optional[Callable[[Piece], Any]] = None, **options: Any) -> Generation:
        """The model's answer to a message. Both become turns of the conversation once it is complete."""
        return self._start(content, options, on_piece is not None)._consume(on_piece)

    def stream(self, content: str, **options: Any) -> Stream:
        """As :meth:`send`, as an iterator of pieces. A stream that is left early leaves no turn."""
        return self._start(content, options, True)

    def _start(self, content: str, options: Dict[str, Any], steps: bool) -> Stream:
        run, ids = _Run({**self.options, **options}, steps), self._prompt(content)
        return Stream(run, lambda: self._generator.run(run, ids), lambda answer: self._answered(content, answer))

    def close(self) -> None:
        """Frees the conversation's states."""
        self._generator.handle.close()

    def __enter__(self) -> "ChatSession":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
