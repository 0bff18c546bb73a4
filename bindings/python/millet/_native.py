"""The C library through ctypes: where it is found, its structs and functions (``millet.h``), errors, and who owns what.

Foreign calls release the GIL. Every object of the library is held by a :class:`Handle`, which frees it when it is closed
or collected, but not while a call uses it."""

from __future__ import annotations

import ctypes
import ctypes.util
import enum
import os
import threading
import weakref
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint,
    c_uint64, c_void_p,
)
from typing import Any, Callable, List, Optional

ABI = 1  # MILLET_ABI of the header that the structs below are written from
MAX_RANK = 8


class ErrorCode(enum.IntEnum):
    """What kind of error it was: ``millet_code`` of the C interface."""

    OK = 0
    USAGE = 1
    IO = 2
    FORMAT = 3
    UNSUPPORTED = 4
    INVALID = 5
    LIMIT = 6
    NUMERIC = 7
    MEMORY = 8
    CANCELLED = 9


class MilletError(RuntimeError):
    """What the library refused, in one line that names file, function, op or tensor. ``code`` tells the kind."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


# ---- the library file ----

def _candidates() -> List[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("MILLET_LIBRARY")
    if named:
        return [os.path.join(named, "libmillet.so") if os.path.isdir(named) else named]
    found = [os.path.join(here, "lib", "libmillet.so")]
    tree = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    if os.path.exists(os.path.join(tree, "include", "millet.h")):
        found.append(os.path.join(tree, "build", "libmillet.so"))
    return [p for p in found if os.path.exists(p)] + [f"libmillet.so.{ABI}"]


def _load() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as e:
            tried.append(f"{path}: {e}")
    raise ImportError("libmillet.so can't be loaded (set MILLET_LIBRARY to its path): " + "; ".join(tried))


lib = _load()


# ---- structs ----

class Error(Structure):
    _fields_ = [("code", c_int), ("message", c_char * 1000)]


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class Feature(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("dtype", c_int), ("rank", c_int),
                ("shape", c_int64 * MAX_RANK), ("lower", c_int64 * MAX_RANK), ("upper", c_int64 * MAX_RANK),
                ("optional", c_bool), ("has_default", c_bool), ("default_value", c_double), ("kind", c_char_p),
                ("n_shapes", c_size_t), ("shapes", POINTER(c_int64)), ("description", c_char_p), ("ranged", c_bool),
                ("default_dtype", c_int)]


class PackageInfo(Sized):
    _fields_ = [("size", c_size_t), ("specification_version", c_int), ("multifunction", c_bool), ("pipeline", c_bool)]


class OpenOptions(Sized):
    _fields_ = [("size", c_size_t), ("linear", c_char_p)]


class SessionOptions(Sized):
    _fields_ = [("size", c_size_t), ("precision", c_int), ("threads", c_uint)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_int), ("shape", c_int64 * MAX_RANK),
                ("data", c_void_p), ("bytes", c_size_t)]


class Call(Sized):
    _fields_ = [("size", c_size_t), ("function", c_char_p), ("input", POINTER(Tensor)), ("n_input", c_size_t),
                ("value", POINTER(c_char_p)), ("n_value", c_size_t), ("output", POINTER(Tensor)),
                ("max_output", c_size_t), ("n_output", c_size_t), ("cancel", c_void_p)]


class LmOptions(Sized):
    _fields_ = [("size", c_size_t), ("open", POINTER(OpenOptions)), ("tokenizer", c_char_p), ("contract", c_char_p)]


TOKEN_FN = CFUNCTYPE(c_bool, c_void_p, c_int32, POINTER(c_char), c_size_t)
KEEP_GOING_FN = CFUNCTYPE(c_bool, c_void_p)


class GenerateOptions(Sized):
    _fields_ = [("size", c_size_t), ("precision", c_int), ("max_new_tokens", c_int64), ("temperature", c_double),
                ("top_k", c_int64), ("top_p", c_double), ("min_p", c_double), ("repetition_penalty", c_double),
                ("presence_penalty", c_double), ("frequency_penalty", c_double), ("seed", c_uint64),
                ("ignore_eos", c_bool), ("on_token", TOKEN_FN), ("keep_going", KEEP_GOING_FN), ("ctx", c_void_p),
                ("cancel", c_void_p)]


class Generation(Sized):
    _fields_ = [("size", c_size_t), ("ids", POINTER(c_int32)), ("n_ids", c_size_t), ("prompt_tokens", c_size_t),
                ("finish", c_int), ("prompt_seconds", c_double), ("decode_seconds", c_double),
                ("reused_tokens", c_size_t)]


class Scores(Sized):
    _fields_ = [("size", c_size_t), ("score", POINTER(c_float)), ("id", POINTER(c_int32)), ("n", c_size_t)]


class Stats(Sized):
    _fields_ = [("size", c_size_t), ("calls", c_uint64), ("seconds", c_double), ("state_bytes", c_uint64)]


# ---- functions ----

def _declare(name: str, result: Any, *arguments: Any) -> None:
    try:
        function = getattr(lib, name)
    except AttributeError:
        raise ImportError(f"{lib._name} is another version of libmillet: it has no {name}") from None
    function.restype = result
    function.argtypes = arguments


_E = POINTER(Error)
_IDS = POINTER(c_int32)
_declare("millet_version", c_char_p)
_declare("millet_abi", c_int)
_declare("millet_free", None, c_void_p)
_declare("millet_cancel_new", c_void_p)
_declare("millet_cancel_free", None, c_void_p)
_declare("millet_cancel_set", None, c_void_p)
_declare("millet_package_open", c_void_p, c_char_p, POINTER(OpenOptions), _E)
_declare("millet_package_close", None, c_void_p)
_declare("millet_package_describe", c_bool, c_void_p, POINTER(PackageInfo))
_declare("millet_function_count", c_size_t, c_void_p)
_declare("millet_function_name", c_char_p, c_void_p, c_size_t)
_declare("millet_default_function", c_char_p, c_void_p)
_declare("millet_feature_count", c_size_t, c_void_p, c_char_p, c_int)
_declare("millet_feature_at", c_bool, c_void_p, c_char_p, c_int, c_size_t, POINTER(Feature))
_declare("millet_metadata", c_char_p, c_void_p, c_char_p)
_declare("millet_metadata_at", c_bool, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_char_p))
_declare("millet_session_new", c_void_p, c_void_p, POINTER(SessionOptions), _E)
_declare("millet_session_free", None, c_void_p)
_declare("millet_run", c_bool, c_void_p, POINTER(Call), _E)
_declare("millet_state_get", c_bool, c_void_p, c_char_p, POINTER(Tensor), _E)
_declare("millet_state_set", c_bool, c_void_p, c_char_p, POINTER(Tensor), _E)
_declare("millet_state_bind", c_bool, c_void_p, c_void_p, c_char_p, _E)
_declare("millet_state_reset", None, c_void_p)
_declare("millet_tokenizer_open", c_void_p, c_char_p, _E)
_declare("millet_tokenizer_close", None, c_void_p)
_declare("millet_encode", c_bool, c_void_p, c_char_p, c_size_t, POINTER(_IDS), POINTER(c_size_t), _E)
_declare("millet_encode_prompt", c_bool, c_void_p, c_char_p, c_size_t, POINTER(_IDS), POINTER(c_size_t), _E)
_declare("millet_chat_encode", c_bool, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t),
         POINTER(_IDS), POINTER(c_size_t), _E)
_declare("millet_decode", c_void_p, c_void_p, _IDS, c_size_t, c_bool, POINTER(c_size_t))
_declare("millet_stream_new", c_void_p, c_void_p, c_bool)
_declare("millet_stream_free", None, c_void_p)
_declare("millet_stream_push", None, c_void_p, c_int32, POINTER(c_void_p), POINTER(c_size_t))
_declare("millet_stream_flush", None, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
_declare("millet_lm_open", c_void_p, c_char_p, POINTER(LmOptions), _E)
_declare("millet_lm_close", None, c_void_p)
_declare("millet_lm_tokenizer", c_void_p, c_void_p)
_declare("millet_lm_tokenizer_path", c_char_p, c_void_p)
_declare("millet_lm_context", c_int64, c_void_p)
_declare("millet_lm_vocabulary", c_int64, c_void_p)
_declare("millet_lm_is_stop", c_bool, c_void_p, c_int32)
_declare("millet_generate", c_bool, c_void_p, c_char_p, POINTER(GenerateOptions), POINTER(Generation), _E)
_declare("millet_generate_ids", c_bool, c_void_p, _IDS, c_size_t, POINTER(GenerateOptions), POINTER(Generation), _E)
_declare("millet_generator_new", c_void_p, c_void_p, POINTER(SessionOptions), _E)
_declare("millet_generator_free", None, c_void_p)
_declare("millet_generator_run", c_bool, c_void_p, _IDS, c_size_t, POINTER(GenerateOptions), POINTER(Generation), _E)
_declare("millet_generator_feed", c_bool, c_void_p, _IDS, c_size_t, c_void_p, POINTER(Scores), _E)
_declare("millet_generator_reset", None, c_void_p)
if lib.millet_abi() != ABI:
    raise ImportError(f"{lib._name} has interface {lib.millet_abi()}, this package is for {ABI}")


def version() -> str:
    """The library's version."""
    text: bytes = lib.millet_version()
    return text.decode()


def failure(error: Error) -> Exception:
    """The exception for an error that a function filled."""
    message = error.message.decode(errors="replace")
    code = ErrorCode(error.code) if error.code in ErrorCode._value2member_map_ else ErrorCode.INVALID
    return MemoryError(message) if code is ErrorCode.MEMORY else MilletError(message, code)


class Handle:
    """An object of the library and what must outlive it. ``with handle as pointer:`` keeps it open for a call; close()
    waits for nobody: the last user frees it."""

    def __init__(self, pointer: int, free: Callable[[int], None], *keep: Any) -> None:
        self._pointer = pointer
        self._users = 0
        self._closed = False
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _free, free, pointer, keep)
        self._finalizer.atexit = False  # a thread may be in the library still

    def __enter__(self) -> int:
        with self._lock:
            if self._closed:
                raise ValueError("this is closed")
            self._users += 1
        return self._pointer

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and not self._users
        if last:
            self._finalizer()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = not self._users
        if idle:
            self._finalizer()


def _free(free: Callable[[int], None], pointer: int, keep: Any) -> None:
    del keep  # held until here
    free(pointer)


def opened(create: Callable[..., Optional[int]], free: Callable[[int], None], *arguments: Any, keep: Any = ()) -> Handle:
    """A handle on what a function of the library makes; its last argument is the error."""
    error = Error()
    pointer = create(*arguments, ctypes.byref(error))
    if not pointer:
        raise failure(error)
    return Handle(pointer, free, *keep)
