"""jaxmarl_llm/memory/store.py: what is kept, what is saved, what is refused."""

import pytest

from jaxmarl_llm.memory import Item, Store, check_task, greatest, saved


def item(text, **fields):
    return Item(text, {"code": f"code of {text}"}, provenance={"task": "coding", "problem": "p"}, **fields)


def test_the_newest_are_kept_and_numbered():
    store = Store(limit=3)
    store.extend([item("a"), item("b")])
    assert [(i.id, i.text) for i in store] == [(-1, "a"), (-2, "b")] and store.states == {}
    store.extend([item("c"), item("d")])
    assert [(i.id, i.text) for i in store] == [(-1, "b"), (-2, "c"), (-3, "d")]
    assert store[0].key("code") == "code of b" and store[0].key("") == "b"


def test_uses_are_counted():
    store = Store(items=[item("a"), item("b", uses=2), item("c")])
    store.count_uses([-2, -3, -3, 7])  # 7 is of another memory
    assert [i.uses for i in store] == [0, 3, 2]


def test_the_greatest_first_and_of_equal_ones_the_older():
    store = Store(items=[item("a", value=1.0), item("b", value=2.0), item("c", value=1.0)])
    assert [i.text for i in greatest(store, 2, lambda i: i.value)] == ["b", "a"]
    assert [i.text for i in greatest(store, 3, lambda i: i.value, least=1.5)] == ["b"]


def test_saved_and_resumed(tmp_path):
    store = Store(name="experience", task="coding")
    with store.kept_in(tmp_path, 2):
        store.extend([item("a", value=0.5, score=1.0, uses=3)])
        store.save(2)
        store.extend([item("b")])
        store.save_best(4)
        store.save(4)
        store.restore(2)
        assert list(store) == [item("a", value=0.5, score=1.0, uses=3, id=-1)]
        with pytest.raises(
            ValueError, match="000003.jsonl is missing: the experience of the run after 3 iter"
        ):
            store.restore(3)
    assert [i.text for i in saved(tmp_path, 4, Item, "experience")] == ["a", "b"]
    assert saved(tmp_path, 4, Item, "lessons") == []
    with pytest.raises(ValueError, match="no folder to keep it in"):
        Store().save(1)


def test_a_memory_of_another_task_is_refused():
    with pytest.raises(ValueError, match="'coding', which is of no use for task 'commits'"):
        Store(items=[item("a")], task="commits")
    check_task([item("a"), Item("of no task")], "coding", "it")
