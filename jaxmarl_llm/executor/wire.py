"""Plain data over sockets: a closed set of builtin types as tagged JSON, with a length. No pickle, no code.

Both ends of the candidate's channel use this module; the tester's end trusts nothing that arrives.
"""

from __future__ import annotations

import json
import os
import socket
import struct

MAX_FRAME = 8 << 20  # bytes per message of the candidate's channel
MAX_CONTROL = 256 << 20  # bytes per message between our own processes
MAX_DEPTH = 60
MAX_ITEMS = 1_000_000
_HEADER = struct.Struct(">I")
_SEQUENCES = {"l": list, "t": tuple, "s": set, "z": frozenset}
# A closed channel raises EOFError here and OSError (EPIPE, ECONNRESET) from the calls themselves.


class Unsupported(Exception):
    """A value that does not travel: not plain data, too deep or too large."""


class WireError(Exception):
    """The other side sent something that is not of our making."""


def encode(value):
    """JSON-able form of a plain value; subclasses become their builtin base. Unsupported for all else."""
    return _Encoder().walk(value, 0)


class _Encoder:
    def __init__(self):
        self.items = 0

    def walk(self, value, depth):
        self.items += 1
        if depth > MAX_DEPTH or self.items > MAX_ITEMS:
            raise Unsupported("value nested too deeply" if depth > MAX_DEPTH else "value with too many items")
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        # Base-class methods only: a subclass may lie in every method of its own.
        if issubclass(kind, str):
            return str.__str__(value)
        if issubclass(kind, int):
            plain = int.__pos__(value)
            return plain if -(1 << 63) <= plain < 1 << 63 else ["i", hex(plain)]
        if issubclass(kind, float):
            return ["f", float.hex(float.__pos__(value))]
        if issubclass(kind, dict):
            return ["d", [[self.walk(k, depth + 1), self.walk(v, depth + 1)] for k, v in dict.items(value)]]
        for tag, base in _SEQUENCES.items():
            if issubclass(kind, base):
                return [tag, [self.walk(item, depth + 1) for item in base.__iter__(value)]]
        return _encode_rare(value, kind)


def _encode_rare(value, kind):
    if issubclass(kind, bytes):
        return ["b", bytes.hex(value)]
    if issubclass(kind, complex):
        plain = complex.__pos__(value)
        return ["c", plain.real.hex(), plain.imag.hex()]
    if kind is range:
        return ["r", hex(value.start), hex(value.stop), hex(value.step)]
    raise Unsupported(f"value of type {type.__dict__['__name__'].__get__(kind)}")


def decode(data):
    """The exact builtin value behind `encode`'s form; WireError for anything that `encode` does not make."""
    try:
        return _Decoder().walk(data, 0)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WireError(f"malformed value: {type(error).__name__}") from None


class _Decoder:
    def __init__(self):
        self.items = 0

    def walk(self, data, depth):
        self.items += 1
        if depth > MAX_DEPTH or self.items > MAX_ITEMS:
            raise WireError("value too deep or too large")
        if data is None or type(data) in (bool, int, str):
            return data
        if type(data) is not list or not data or type(data[0]) is not str:
            raise WireError("value without a tag")
        tag, *rest = data
        if tag in _SEQUENCES:
            (items,) = rest
            return _SEQUENCES[tag]([self.walk(item, depth + 1) for item in _exact_list(items)])
        if tag == "d":
            (pairs,) = rest
            walked = (
                [self.walk(part, depth + 1) for part in _exact_list(pair)] for pair in _exact_list(pairs)
            )
            return dict(walked)  # a pair of the wrong length raises
        return _decode_scalar(tag, rest)


def _exact_list(data):
    if type(data) is not list:
        raise WireError("list expected")
    return data


def _decode_scalar(tag, texts):
    if tag == "i":
        (text,) = texts
        return int(text, 16)
    if tag == "f":
        (text,) = texts
        return float.fromhex(text)
    if tag == "b":
        (text,) = texts
        return bytes.fromhex(text)
    if tag == "c":
        real, imag = texts
        return complex(float.fromhex(real), float.fromhex(imag))
    if tag == "r":
        start, stop, step = texts
        return range(int(start, 16), int(stop, 16), int(step, 16))
    raise WireError(f"unknown tag {tag!r:.20}")


def write_frame(fd: int, message) -> None:
    """Write one message of the candidate's channel; Unsupported where it is larger than MAX_FRAME."""
    body = json.dumps(message).encode()
    if len(body) > MAX_FRAME:
        raise Unsupported("value too large")
    data = memoryview(_HEADER.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data) :]


def read_frame(fd: int):
    """Read one message of the candidate's channel; EOFError at its end, WireError for garbage."""
    (size,) = _HEADER.unpack(_read_exactly(fd, _HEADER.size))
    if size > MAX_FRAME:
        raise WireError("message too large")
    return _parse(_read_exactly(fd, size))


def _read_exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise EOFError("channel closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _parse(body: bytes):
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:  # also bad UTF-8 and integers with too many digits
        raise WireError(f"not JSON: {type(error).__name__}") from None


def send_control(sock: socket.socket, message, fds=()) -> None:
    """Send one message, and file descriptors with it, between our own processes."""
    body = json.dumps(message).encode()
    if len(body) > MAX_CONTROL:
        raise ValueError(f"message of {len(body)} bytes; allowed: {MAX_CONTROL}")
    header = _HEADER.pack(len(body))
    sent = socket.send_fds(sock, [header], list(fds)) if fds else sock.send(header)
    sock.sendall(header[sent:] + body)


def receive_control(sock: socket.socket):
    """One message and its file descriptors (at most one) from our own processes; EOFError at the end."""
    header, fds, _, _ = socket.recv_fds(sock, _HEADER.size, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    if not header:
        raise EOFError("control channel closed")
    header += _read_exactly(sock.fileno(), _HEADER.size - len(header))
    (size,) = _HEADER.unpack(header)
    return _parse(_read_exactly(sock.fileno(), size)), fds
