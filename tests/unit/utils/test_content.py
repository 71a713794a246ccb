"""jaxmarl_llm/utils/content.py: equal content has one hash, other content another one."""

import dataclasses

import numpy as np
import pytest

from jaxmarl_llm.utils import content


@dataclasses.dataclass(frozen=True)
class Item:
    task_id: str
    columns: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class LaterItem:
    """`Item` with a field that a later version has added."""

    task_id: str
    columns: dict = dataclasses.field(default_factory=dict)
    grade: int = 0


LaterItem.__qualname__ = "Item"


class Plain:
    def __init__(self, value):
        self.value, self.other = value, object()


def test_equal_values_have_one_hash():
    assert content.of_values([Item("a", {"x": 1, "y": 2.0})]) == content.of_values([Item("a", {"y": 2.0, "x": 1})])
    assert content.of_values([Item("a")]) == content.of_values([LaterItem("a")])
    assert content.of_values([Plain([1])]) == content.of_values([Plain([1])])  # of an object, not its address
    assert content.of_values([{1, 2, 3}]) == content.of_values([{3, 2, 1}])


@pytest.mark.parametrize("one, two", [
    ([Item("a")], [Item("b")]), ([Item("a")], [Item("a"), Item("a")]), ([Item("a"), Item("b")], [Item("b"), Item("a")]),
    ([Item("a", {"x": 1})], [Item("a", {"x": 2})]), ([1], ["1"]), ([1.0], [float("nan")]), ([Plain(1)], [Plain(2)]),
    ([np.array([1, 2])], [np.array([1, 3])]), ([b"a"], [b"b"]), ([LaterItem("a", grade=1)], [Item("a")]),
])
def test_other_values_have_another_hash(one, two):
    assert content.of_values(one) != content.of_values(two)


def test_an_object_that_holds_itself_has_a_hash():
    knot = Plain(1)
    knot.value = knot
    assert content.of_values([knot]) == content.of_values([knot])


@pytest.mark.parametrize("whole", [10_000, 100])
def test_files_by_what_they_hold(tmp_path, monkeypatch, whole):
    """A file above the limit is known by its size and by blocks that are spread over it."""
    monkeypatch.setattr(content, "WHOLE_BYTES", whole)
    monkeypatch.setattr(content, "BLOCK_BYTES", 10)
    monkeypatch.setattr(content, "BLOCKS", 20)
    data = np.random.default_rng(0).bytes(1000)
    paths = [tmp_path / name for name in ("a", "b", "c", "d", "e")]
    for path, held in zip(paths, (data, data, b"x" + data[1:], data[:-1] + b"x", bytes(500) + data[500:]), strict=True):
        path.write_bytes(held)
    first, second, *others = map(content.of_file, paths)
    assert first == second and first not in others and len(set(others)) == 3
    assert content.of_files(paths[:1]) != content.of_files(paths[1:2])  # names count
