"""Code of the user's own by its dotted name: what is shown of what it raises, and names that lead into classes."""

import pytest

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import tasks
from jaxmarl_llm.protocols import custom as custom_protocol
from jaxmarl_llm.systems import demonstration_sources
from jaxmarl_llm.tasks import custom_task
from jaxmarl_llm.tasks.worlds import load
from jaxmarl_llm.update import custom_loss
from jaxmarl_llm.utils import dotted

BROKEN = """
def helper():
    raise KeyError("nothing")


class Task:
    def __init__(self, config, executor, split):
        helper()


def protocol(config, task, samples):
    helper()


def world(agents):
    helper()


def loss(logprobs_BL, advantages_B, mask_BL):
    helper()


def demonstrations(item):
    helper()


class Family:
    number = 3

    @staticmethod
    def member():
        return 7

    class Inner:
        @classmethod
        def name(cls):
            return cls.__name__


def __getattr__(name):
    helper()
"""


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A module whose functions raise, and one that cannot be imported."""
    (tmp_path / "dotted_broken.py").write_text(BROKEN)
    (tmp_path / "dotted_unimportable.py").write_text("def helper():\n    raise KeyError('nothing')\n\n\nhelper()\n")
    monkeypatch.syspath_prepend(tmp_path)


class Items:
    items = [type("Item", (), {"task_id": "x"})]


def of_world():
    config = base_config()
    config.task.kind, config.task.source = "world", "dotted_broken.world"
    return tasks.build_task(config, None, "train")


@pytest.mark.parametrize("use, name", [
    (lambda: dotted.resolve("dotted_unimportable.f", "task.reward"), "cannot import 'dotted_unimportable'"),
    (lambda: dotted.resolve("dotted_broken.nobody", "task.reward"), "'nobody' cannot be read"),
    (lambda: custom_task.build("dotted_broken.Task", None, None, "train"), "raised when called with config.task"),
    (lambda: custom_protocol.build("dotted_broken.protocol", None, None, None), "raised when called with config"),
    (lambda: load.load_world("dotted_broken.world", ("a",)), "raised when called with"),
    (of_world, "task.source='dotted_broken.world', task.train_split='train': .* raised when called with"),
    (lambda: custom_loss.resolve("dotted_broken.loss"), "raised on logprobs_BL"),
    (lambda: demonstration_sources.of_items(Items(), dotted.resolve("dotted_broken.demonstrations", "sft.source"), "f"),
     "problem 'x': KeyError"),
])  # fmt: skip
def test_what_raises_before_a_run_shows_the_lines_of_its_file(broken, use, name):
    with pytest.raises(ValueError, match=f"{name}.*KeyError: 'nothing'" if "KeyError" not in name else name) as caught:
        use()
    assert isinstance(caught.value, dotted.UserCodeError)
    *_, last = caught.value.user_frames()
    assert "dotted_" in last and "in helper" in last and "raise KeyError" in last


def test_names_that_lead_nowhere_show_no_lines():
    with pytest.raises(ValueError, match="cannot import 'nowhere_at_all'") as caught:
        dotted.resolve("nowhere_at_all.f", "task.reward")
    assert caught.value.user_frames() == []


def test_names_in_classes(broken):
    assert dotted.resolve("dotted_broken:Family.member", "task.reward")() == 7
    assert dotted.resolve("dotted_broken:Family.Inner.name", "task.reward")() == "Inner"
    for name, message in (("Family.nobody", "has no 'Family.nobody'; it has"), ("Family.number", "is a int; expected")):
        with pytest.raises(ValueError, match=f"task.reward 'dotted_broken:{name}'.*{message}"):
            dotted.resolve(f"dotted_broken:{name}", "task.reward")
