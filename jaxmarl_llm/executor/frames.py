"""Messages over sockets, as JSON with a length: on a candidate's channel, and between our own processes."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable

MAX_FRAME = 8 << 20  # bytes per message of the candidate's channel
MAX_CONTROL = 256 << 20  # bytes per message between our own processes
MAX_FDS = 16  # file descriptors sent with one control message
READ_AHEAD = 1 << 13  # bytes read at first for a frame: most frames are shorter
_HEADER = struct.Struct(">I")
_read_json = json.JSONDecoder().scan_once


def _json_writer() -> Callable[[object], str]:
    """`json.dumps`, with the C encoder made once instead of once per short message."""
    encoder = json.JSONEncoder()
    try:
        options = (None, ": ", ", ", False, False, True)  # indent, separators, sort_keys, skipkeys, allow_nan
        in_c = json.encoder.c_make_encoder(
            None, encoder.default, json.encoder.encode_basestring_ascii, *options
        )
        if "".join(in_c([1, {"a": None}], 0)) == json.dumps([1, {"a": None}]):
            return lambda message: "".join(in_c(message, 0))
    except (AttributeError, TypeError):  # the standard library does not guarantee this function
        pass
    return encoder.encode


_write_json = _json_writer()
# A closed channel raises EOFError here and OSError (EPIPE, ECONNRESET) from the calls themselves.


class Unsupported(Exception):
    """A value that cannot be sent: its type cannot cross, or it is too deep or too large."""


class WireError(Exception):
    """The other side sent an invalid message, or data that `wire.encode` does not make."""


def write_frame(fd: int, message) -> None:
    """Write one message of the candidate's channel; Unsupported if it is larger than MAX_FRAME."""
    write_body(fd, _write_json(message).encode())


def write_body(fd: int, body: bytes) -> None:
    """Write one message in its encoded form."""
    if len(body) > MAX_FRAME:
        raise Unsupported("value too large")
    data = _HEADER.pack(len(body)) + body
    written = os.write(fd, data)
    if written < len(data):
        _write_rest(fd, memoryview(data)[written:])


def _write_rest(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def read_frame(fd: int):
    """Read one message of the candidate's channel; EOFError at its end, WireError for garbage."""
    return parse(read_body(fd))


def read_body(fd: int, ahead: bytearray | None = None) -> bytes:
    """Read one message, in its encoded form.

    ahead: holds bytes read beyond the last message. With it, a short message needs a single system call.
    """
    if ahead is None:
        data = _read_exactly(fd, _HEADER.size)
    elif ahead:
        data = bytes(ahead)
        ahead.clear()
    else:
        data = _read_some(fd, READ_AHEAD)
    if len(data) < _HEADER.size:
        data += _read_exactly(fd, _HEADER.size - len(data))
    (size,) = _HEADER.unpack_from(data)
    if size > MAX_FRAME:
        raise WireError("message too large")
    end = _HEADER.size + size
    if len(data) < end:
        data += _read_exactly(fd, end - len(data))
    elif len(data) > end:
        ahead += data[end:]
        data = data[:end]
    return data[_HEADER.size :]


def _read_some(fd: int, size: int) -> bytes:
    part = os.read(fd, size)
    if not part:
        raise EOFError("channel closed")
    return part


def _read_exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        parts.append(_read_some(fd, min(size, 1 << 20)))
        size -= len(parts[-1])
    return b"".join(parts)


def parse(body: bytes):
    """Decode a message; WireError for garbage."""
    try:
        text = body.decode()
        message, end = _read_json(text, 0)
    except (
        ValueError,
        RecursionError,
        StopIteration,
    ) as error:  # also bad UTF-8, integers with too many digits
        raise WireError(f"not JSON: {type(error).__name__}") from None
    if end != len(text):
        raise WireError("more than one value in a message")
    return message


def send_control(sock: socket.socket, message, fds=()) -> None:
    """Send one message, and file descriptors with it, between our own processes."""
    body = json.dumps(message).encode()
    if len(body) > MAX_CONTROL:
        raise ValueError(f"message of {len(body)} bytes; allowed: {MAX_CONTROL}")
    header = _HEADER.pack(len(body))
    sent = socket.send_fds(sock, [header], list(fds)) if fds else sock.send(header)
    sock.sendall(header[sent:] + body)


def receive_control(sock: socket.socket):
    """One message and its file descriptors (at most MAX_FDS); EOFError at the end."""
    header, fds, _, _ = socket.recv_fds(sock, _HEADER.size, MAX_FDS, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    if not header:
        raise EOFError("control channel closed")
    header += _read_exactly(sock.fileno(), _HEADER.size - len(header))
    (size,) = _HEADER.unpack(header)
    return parse(_read_exactly(sock.fileno(), size)), fds
