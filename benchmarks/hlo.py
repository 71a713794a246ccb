"""Read a compiler's text: what runs in the loop that draws tokens, and arrays of the size of scores or weights."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

# Operations that cost nothing: names, parts and other views of arrays, and operations that contain others.
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "after-all", "iota", "conditional",
        "call", "opt-barrier", "copy-start", "async-start", "partition-id", "replica-id"}  # fmt: skip
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\(")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


class Instruction(NamedTuple):
    """A line of a computation: its operation, the arrays that it returns, and the line."""

    operation: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    line: str


def computations(text: str) -> dict[str, list[Instruction]]:
    """The instructions of every computation of an optimised program, by name."""
    by_name: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        head = re.match(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$", line)
        if head:
            current = by_name.setdefault(head[1], [])
        elif match := _INSTRUCTION.match(line):
            current.append(Instruction(match[3], tuple(_shapes(match[2])), line))
    return by_name


def _shapes(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for dtype, sizes in _SHAPE.findall(text):
        yield dtype, tuple(map(int, filter(None, sizes.split(","))))


def executed(text: str) -> list[Instruction]:
    """Instructions that write their own array; those inside fusions and reductions do not."""
    by_name = computations(text)
    fused = {name for body in by_name.values() for each in body for name in _fused(each)}
    return [each for name, body in by_name.items() if name not in fused for each in body]


def _fused(instruction: Instruction) -> list[str]:
    return (
        re.findall(r"(?:calls|to_apply)=%?([\w.-]+)", instruction.line)
        if instruction.operation != "call"
        else []
    )


class Loop(NamedTuple):
    """The loop over tokens: kernels of one iteration, with inner loops, and the distinct instructions."""

    kernels: int
    instructions: list[Instruction]


def token_loop(text: str) -> Loop | None:
    """The loop that draws tokens, the one with most kernels; an inner loop counts once per iteration."""
    by_name = computations(text)
    loops = [
        _loop(by_name, _named(each, "body"))
        for body in by_name.values()
        for each in body
        if each.operation == "while"
    ]
    return max(loops, key=lambda loop: loop.kernels) if loops else None


def _named(instruction: Instruction, role: str) -> str:
    match = re.search(rf"{role}=%?([\w.-]+)", instruction.line)
    return match[1] if match else ""


def _loop(by_name: dict[str, list[Instruction]], name: str) -> Loop:
    kernels, instructions = 0, []
    for each in by_name.get(name, ()):
        if each.operation == "while":
            inner = _loop(by_name, _named(each, "body"))
            kernels += _rounds(by_name, each) * inner.kernels
            instructions += inner.instructions
        elif each.operation not in FREE and any(sizes for _, sizes in each.shapes):  # else a counter
            kernels += 1
            instructions.append(each)
    return Loop(kernels, instructions)


def _rounds(by_name: dict[str, list[Instruction]], loop: Instruction) -> int:
    """Iterations of a loop: as the compiler says, or the number that its condition compares with; else 1."""
    if known := re.search(r'known_trip_count":\{"n":"(\d+)', loop.line):
        return int(known[1])
    lines = "\n".join(each.line for each in by_name.get(_named(loop, "condition"), ()))
    limits = [int(number) for number in re.findall(r"s32\[\]\S* constant\((\d+)\)", lines)]
    return limits[0] if len(limits) == 1 else 1


def large(
    instructions: list[Instruction], least: int, without: tuple[int, ...], logits: int = 0
) -> list[Instruction]:
    """Instructions that write an array of at least ``least`` numbers with no axis a multiple of ``without``.

    Not included: arrays of ``logits`` numbers, padded by at most 1 %, and parts of arrays that are copied
    into on-chip memory (``S(1)`` of a TPU's layout) before use, as everything that a product reads is.
    """

    def counts(sizes: tuple[int, ...]) -> bool:
        total = math.prod(sizes)
        of_logits = logits <= total <= 1.01 * logits
        return total >= least and not of_logits and not any(size % n == 0 for size in sizes for n in without)

    moved = [each for each in instructions if each.operation not in FREE and not _prefetched(each)]
    return [each for each in moved if any(counts(sizes) for _, sizes in each.shapes)]


def _prefetched(each: Instruction) -> bool:
    return each.operation in ("async-done", "copy-done") and "S(1)" in _INSTRUCTION.match(each.line)[2]


def scores(instructions: list[Instruction], lengths: tuple[int, ...]) -> dict[str, int]:
    """Arrays with two axes that are multiples of sequence lengths: bytes of each, by its shape."""
    bytes_of: dict[str, int] = {}
    for each in instructions:
        if each.operation in FREE:
            continue
        for dtype, sizes in each.shapes:
            if sum(size >= min(lengths) and any(size % n == 0 for n in lengths) for size in sizes) >= 2:
                shape = f"{dtype}[{','.join(map(str, sizes))}]"
                bytes_of[shape] = math.prod(sizes) * BYTES.get(dtype, 4)
    return bytes_of
