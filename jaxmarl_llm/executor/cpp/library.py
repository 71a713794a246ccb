"""A compiled candidate as a Python callable, for the candidate's own process, after it has been confined.

Loading runs the library's constructors, and every call its code: nothing here can be trusted afterwards, as
with Python candidates.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from . import values
from .signature import parse


def load(path: str, signature_text: str) -> Callable:
    """The function behind a library of `compiler`, called with positional plain values.

    Lists that it takes by mutable reference are changed in place. OSError where the library does not load.
    """
    signature = parse(signature_text)
    library = ctypes.CDLL(path)
    run, release = library.jaxmarl_run, library.jaxmarl_release
    size_pointer = ctypes.POINTER(ctypes.c_longlong)
    run.argtypes = (ctypes.c_char_p, ctypes.c_longlong, ctypes.POINTER(ctypes.c_void_p), size_pointer)
    run.restype, release.argtypes, release.restype = ctypes.c_int, (ctypes.c_void_p,), None

    def call(*arguments):
        packed = values.pack(signature, arguments)
        reply, size = ctypes.c_void_p(), ctypes.c_longlong()
        if run(packed, len(packed), ctypes.byref(reply), ctypes.byref(size)) != 0:
            raise MemoryError("no memory for the result")
        try:
            data = ctypes.string_at(reply.value, size.value)
        finally:
            release(reply)
        result, changed = values.unpack(signature, data)
        for position, content in changed.items():
            arguments[position][:] = content
        return result

    call.__name__ = call.__qualname__ = signature.name
    return call
