"""Forging a verdict on the channel itself: replies ahead, doubled, cut, malformed; its descriptor abused."""

from .record import attack, sheet

_SEND = """
import json, os, struct
def frame(body):
    replies = {'ok', 'raise', 'unsupported', 'ready', 'end'}
    if type(body) is dict and replies & {*body}: body = {'answer': body}
    if type(body) is not bytes: body = json.dumps(body).encode()
    return struct.pack('>I', len(body)) + body
def send(data):
    while data: data = data[os.write(3, data):]
"""


def _replying(expression: str) -> str:
    """f sends one frame of its own (a message or bytes), and then the right answer."""
    return f"{_SEND}def f(x):\n    send(frame({expression}))\n    return x + 1\n"


def _at_import(expression: str) -> str:
    """The module sends these frames before it is loaded, and leaves."""
    return f"{_SEND}for reply in {expression}: send(frame(reply))\nos._exit(0)\n"


# Frames that are no reply of any kind: the first one of check() ends the tests.
_GARBAGE = (
    ("list-message", "a message that is no object", "[]"),
    ("text-message", "a message that is a text", "'ok'"),
    ("null-message", "a message that is nothing", "None"),
    ("empty-message", "a message without content", "{}"),
    ("empty-frame", "a frame without a body", "b''"),
    ("no-json", "a body that is no JSON", "b'{]'"),
    ("no-utf8", "a body that is no text", "b'\\xff\\xfe\\xff'"),
    ("deep-json", "a body of brackets", "b'[' * 5000000"),
    ("deep-value", "a value nested a thousand times", "{'ok': eval('[\"l\", [' * 80 + ']]' * 80)}"),
    (
        "many-values",
        "more values than a reply may hold",
        "b'{\"answer\": {\"ok\": [\"l\", [' + b'0,' * 1200000 + b'0]]}}'",
    ),
    ("ready-again", "a second sign of readiness", "{'ready': {'f': ['call']}}"),
    ("verdict", "a verdict in place of a reply", "{'verdict': 'pass', 'passed': 2, 'total': 2}"),
    (
        "status",
        "the tester's own message",
        "{'run': 1, 'status': 'pass', 'passed': 2, 'calls': 2, 'failures': []}",
    ),
    ("unknown-tag", "a value with an unknown tag", "{'ok': ['x', 2]}"),
    ("no-tag", "a value without a tag", "{'ok': []}"),
    ("tag-as-list", "a tag that is a list", "{'ok': [['l'], []]}"),
    ("object-value", "a value that is an object", "{'ok': {'i': '2'}}"),
    ("json-float", "a float that JSON knows", "{'ok': 2.5}"),
    ("json-nan", "a number that JSON does not know", 'b\'{"answer": {"ok": NaN}}\''),
    ("json-digits", "an integer with too many digits", "b'{\"answer\": {\"ok\": ' + b'9' * 100000 + b'}}'"),
    ("bad-int", "an integer that is none", "{'ok': ['i', 'two']}"),
    ("int-number", "an integer that is a number", "{'ok': ['i', 2]}"),
    ("bad-float", "a float that is none", "{'ok': ['f', '0x']}"),
    ("huge-float", "a float beyond all floats", "{'ok': ['f', '0x1p99999']}"),
    ("bad-bytes", "bytes that are none", "{'ok': ['b', 'abc']}"),
    ("bad-complex", "half a complex number", "{'ok': ['c', '0x1p0']}"),
    ("bad-range", "a range with step 0", "{'ok': ['r', '0x0', '0x1', '0x0']}"),
    ("pair-of-three", "a pair of three", "{'ok': ['d', [[1, 2, 3]]]}"),
    ("list-as-key", "a key that cannot be hashed", "{'ok': ['d', [[['l', []], 1]]]}"),
    ("list-in-set", "an item that cannot be hashed", "{'ok': ['s', [['l', []]]]}"),
    ("text-as-list", "a list that is a text", "{'ok': ['l', 'ab']}"),
    ("reason-as-number", "a reason that is a number", "{'unsupported': 2}"),
    ("exception-of-two", "an exception of two parts", "{'raise': ['ValueError', '']}"),
    ("exception-as-text", "an exception that is a text", "{'raise': 'abc'}"),
    ("changes-as-list", "changed arguments as a list", "{'ok': 2, 'changed': [2]}"),
    ("unknown-handle", "an object that was never made", "{'ok': ['yours', 7]}"),
    ("handle-as-text", "an object with a text for a number", "{'ok': ['mine', '0']}"),
    ("handle-of-millions", "an object with a number beyond all bounds", "{'ok': ['mine', 10**9]}"),
    (
        "ask-unknown",
        "the call of a function that nobody defined",
        "{'ask': {'do': 'call', 'of': 'check', 'args': []}}",
    ),
    (
        "ask-own",
        "the call of its own function through the tests",
        "{'ask': {'do': 'call', 'of': 'f', 'args': [2]}}",
    ),
    (
        "ask-get",
        "an attribute of a function of the tests",
        "{'ask': {'do': 'get', 'of': 'f', 'args': ['x']}}",
    ),
    (
        "ask-object",
        "an object of the tests that does not exist",
        "{'ask': {'do': 'call', 'of': 0, 'args': []}}",
    ),
    ("ask-load", "a load of its own", "{'ask': {'do': 'load', 'agent': 'main', 'text': ''}}"),
    ("ask-nothing", "a question without content", "{'ask': {}}"),
    ("ask-and-answer", "a question and an answer in one", "{'ask': {}, 'answer': {'ok': 2}}"),
    ("ask-bad-args", "arguments that are no list", "{'ask': {'do': 'call', 'of': 0, 'args': 3}}"),
    ("end-in-call", "the end of an iteration in place of a value", "{'end': True}"),
)
# Frames that may be a reply; what else the tests then see is too late, doubled, or wrong. Whether they are
# taken for one depends on the version of the channel, so a protocol failure is right everywhere.
_REPLIES = (
    ("doubled", "fail protocol", "each answer twice", "{'ok': x + 1}"),
    (
        "two-answers",
        "fail protocol",
        "a wrong and a right answer in one",
        'b\'{"answer": {"ok": 0, "ok": 0, "unsupported": ""}}\'',
    ),
    ("utf16", "fail protocol", "another encoding of JSON", "'{\"answer\": {\"ok\": 0}}'.encode('utf-16')"),
    ("lone-surrogate", "fail protocol", "text that is no Unicode", 'b\'{"answer": {"ok": "\\\\ud800"}}\''),
    (
        "huge-range",
        "fail protocol",
        "a range without a length",
        "{'ok': ['r', '0x0', '0x' + 'f' * 99, '0x1']}",
    ),
    ("raises-gone", "error protocol", "our own exception", "{'raise': ['Gone', 'pass', 'pass']}"),
    (
        "raises-system-exit",
        "error protocol",
        "an exit of the tester",
        "{'raise': ['SystemExit', 'SystemExit', '0']}",
    ),
    (
        "raises-function",
        "error protocol",
        "a builtin that is no exception",
        "{'raise': ['__import__', 'os', 'os']}",
    ),
    ("raises-stop", "error protocol", "an end of the tests' loop", "{'raise': ['StopIteration', '', '']}"),
    (
        "raises-group",
        "error protocol",
        "one that takes two arguments",
        "{'raise': ['ExceptionGroup', '', '']}",
    ),
    ("raises-dunder", "error protocol", "a class that is no exception", "{'raise': ['__loader__', '', '']}"),
    (
        "huge-exception",
        "error protocol",
        "a message of 7 MB",
        "{'raise': ['ValueError', 'A', 'a' * 7000000]}",
    ),
)

_GARBAGE_ATTACKS = tuple(
    attack(f"frame-{name}", "protocol", tries, _replying(expression)) for name, tries, expression in _GARBAGE
)
_REPLY_ATTACKS = tuple(
    attack(f"reply-{name}", verdicts, tries, _replying(expression))
    for name, verdicts, tries, expression in _REPLIES
)

_RAW = tuple(
    attack(f"raw-{name}", verdict, tries, f"import os\ndef f(x):\n    os.write(3, {data})\n{after}")
    for name, verdict, tries, data, after in (
        ("digits", "protocol", "a header of digits", "b'0123456789' * 99", "    return x + 1\n"),
        ("huge-header", "protocol", "a reply of 4 GB", "b'\\xff' * 4", "    return x + 1\n"),
        (
            "limit-header",
            "protocol",
            "a reply just too large",
            "b'\\x00\\x80\\x00\\x01'",
            "    return x + 1\n",
        ),
        ("half-header", "protocol", "half a header, then the end", "b'\\0\\0'", "    os._exit(0)\n"),
        (
            "half-frame",
            "protocol",
            "half a reply, then the end",
            "b'\\0\\0\\0\\x09{\"ok\"'",
            "    os._exit(0)\n",
        ),
        (
            "half-and-wait",
            "timeout-wall",
            "half a reply, and nothing more",
            "b'\\0\\0\\0\\x09{\"ok\"'",
            "    import time\n    time.sleep(1000)\n",
        ),
        (
            "header-and-wait",
            "timeout-wall",
            "a promise of 8 MB",
            "b'\\x00\\x80\\x00\\x00'",
            "    import time\n    time.sleep(1000)\n",
        ),
        ("flood", "protocol", "1 GB of zeros", "b''", "    while True: os.write(3, bytes(1 << 20))\n"),
    )
)

_AHEAD = sheet(
    "channel",
    r"""
# Taken as data or refused, by the version of the channel: wrong in both cases.
ahead-wrong | fail protocol | answers before the questions
    for reply in ({'ready': {'f': ['call']}}, {'ok': 0}, {'ok': 0}): send(frame(reply))
    os._exit(0)

ahead-and-stay | fail protocol | answers ahead by a program that stays
    send(frame({'ready': {'f': ['call']}}) + frame({'ok': 0}) * 9)
    def f(x):
        return 0

ahead-results | protocol | results in place of readiness
    for reply in ({'ok': 2}, {'ok': 6}): send(frame(reply))
    os._exit(0)

ahead-load-error | load-error protocol | a failure to load, and yet answers
    send(frame({'raise': ['E', 'E', '', 'main']}))
    def f(x):
        return x + 1

ahead-memory | memory protocol | a failure of memory that is none
    send(frame({'raise': ['MemoryError', 'E', '', 'main']}))
    def f(x):
        return x + 1
""",
    before=_SEND,
)

_DESCRIPTOR = sheet(
    "channel",
    r"""
close-channel | protocol | no channel
    import os
    def f(x):
        os.close(3)
        return x + 1

close-at-import | protocol | no channel from the start
    import os
    os.close(3)
    def f(x):
        return x + 1

# Python 3.13 dies of a signal once its own descriptors are gone.
close-all | protocol killed | no descriptor at all
    import os
    os.closerange(0, 64)
    def f(x):
        return x + 1

null-channel | error | another file under its number | level_1 protocol killed
    import os
    def f(x):
        os.dup2(0, 3)
        return x + 1

reopened-channel | protocol | another file that gets its number
    import os
    def f(x):
        os.close(3)
        os.open('/dev/null', os.O_RDONLY)
        return x + 1

# At level 1 the end of the stream is seen by the tests first, or by the candidate.
shutdown-channel | error | half of the channel closed | level_1 killed protocol
    import socket
    def f(x):
        socket.socket(fileno=3).shutdown(socket.SHUT_WR)
        import time
        time.sleep(9)

read-at-import | timeout-wall | calls taken from the channel before they are due
    import os
    os.read(3, 1)
    def f(x):
        return x + 1

read-in-call | timeout-wall | the next call while this one runs
    import os
    def f(x):
        os.read(3, 1)

write-swallowed | timeout-wall | replies that never leave
    import os
    os.write = lambda fd, data: len(data)
    def f(x):
        return x + 1

# Its frames are replies in one version of the channel and garbage in another.
own-server | fail protocol | its own loop in place of ours
    def read(size):
        data = b''
        while len(data) < size: data += os.read(3, size - len(data)) or os._exit(0)
        return data
    send(frame({'ready': {'f': ['call']}}))
    while True:
        read(struct.unpack('>I', read(4))[0])
        send(frame({'ok': 0}))

# At level 1 its next read ends it, unless the call is there already.
nonblocking | load-error | a channel that does not wait | level_1 protocol fail
    import os
    os.set_blocking(3, False)
    def f(x):
        return 0
""",
    before=_SEND,
)

ATTACKS = (*_GARBAGE_ATTACKS, *_REPLY_ATTACKS, *_RAW, *_AHEAD, *_DESCRIPTOR)
