"""Text to token ids and back, and chat templates."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from ._native import Error, Handle, failure, lib, opened

Message = Mapping[str, Any]
"""A turn of a chat: {"role": "user", "content": "..."}."""


class Tokenizer:
    """A Hugging Face tokenizer (``tokenizer.json``). Ids equal the tokenizers library's. Any number of threads may use it.

    path: the directory with the files."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)
        self._handle = opened(lib.millet_tokenizer_open, lib.millet_tokenizer_close, os.fsencode(path))
        self._borrowed: Optional[int] = None

    @classmethod
    def _of(cls, owner: Handle, pointer: int, path: str) -> "Tokenizer":
        """The tokenizer of an opened model, which keeps that open."""
        t = cls.__new__(cls)
        t.path, t._handle, t._borrowed = path, owner, pointer
        return t

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        """Ids of a text. Texts of added tokens ("<|im_end|>") become their ids. add_special_tokens: with what the files
        put around every text (a BOS, mostly)."""
        data, error = text.encode(), Error()
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        encode = lib.millet_encode_prompt if add_special_tokens else lib.millet_encode
        with self._handle as owner:
            done = encode(self._borrowed or owner, data, len(data), ctypes.byref(ids), ctypes.byref(n), ctypes.byref(error))
        if not done:
            raise failure(error)
        try:
            return ids[: n.value]
        finally:
            lib.millet_free(ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids. What is no UTF-8 becomes U+FFFD; ids that don't exist count for nothing."""
        array, n = (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t()
        with self._handle as owner:
            text = lib.millet_decode(self._borrowed or owner, array, len(ids), skip_special_tokens, ctypes.byref(n))
        try:
            return ctypes.string_at(text, n.value).decode()
        finally:
            lib.millet_free(text)

    def stream(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[str]:
        """The text of ids as they come: whole characters, which joined equal ``decode()``."""
        text, n = ctypes.c_void_p(), ctypes.c_size_t()
        with self._handle as owner:
            stream = Handle(lib.millet_stream_new(self._borrowed or owner, skip_special_tokens), lib.millet_stream_free,
                            self._handle)
        for i in ids:
            with stream as s:
                lib.millet_stream_push(s, i, ctypes.byref(text), ctypes.byref(n))
                piece = ctypes.string_at(text, n.value).decode()
            if piece:
                yield piece
        with stream as s:
            lib.millet_stream_flush(s, ctypes.byref(text), ctypes.byref(n))
            piece = ctypes.string_at(text, n.value).decode()
        if piece:
            yield piece

    @property
    def chat_template(self) -> Optional[str]:
        """The directory's chat template in Jinja, or None: chat_template.jinja, else what tokenizer_config.json holds."""
        path = os.path.join(self.path, "chat_template.jinja")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                return f.read()
        template = self._config().get("chat_template")
        if isinstance(template, list):  # several by name
            template = {t["name"]: t["template"] for t in template}.get("default")
        return template

    def _config(self) -> Dict[str, Any]:
        path = os.path.join(self.path, "tokenizer_config.json")
        if not os.path.exists(path):
            return {}
        with open(path, encoding="utf-8") as f:
            config: Dict[str, Any] = json.load(f)
            return config

    def apply_chat_template(self, messages: Sequence[Message], tokenize: bool = True, add_generation_prompt: bool = False,
                            tools: Optional[Sequence[Any]] = None, template: Optional[str] = None,
                            **options: Any) -> Union[List[int], str]:
        """The messages as the model expects them: ids, or with ``tokenize=False`` the text; by the library's own renderers,
        which know the templates that docs/chat.md lists and refuse others. template: one of these by name, in place of the
        directory's. options: ``enable_thinking``, ``preserve_thinking``. Text of messages never becomes control tokens."""
        options = {k: v for k, v in {**options, "tools": tools, "add_generation_prompt": add_generation_prompt}.items()
                   if v is not None}
        data = json.dumps({"messages": list(messages), "options": options}, ensure_ascii=False).encode()
        text, text_n, error = ctypes.c_void_p(), ctypes.c_size_t(), Error()
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        with self._handle as owner:
            done = lib.millet_chat_encode(self._borrowed or owner, os.fsencode(self.path),
                                          template.encode() if template is not None else None, data, len(data),
                                          ctypes.byref(text), ctypes.byref(text_n), ctypes.byref(ids), ctypes.byref(n),
                                          ctypes.byref(error))
        if not done:
            raise failure(error)
        try:
            return ids[: n.value] if tokenize else ctypes.string_at(text, text_n.value).decode()
        finally:
            lib.millet_free(text)
            lib.millet_free(ids)
