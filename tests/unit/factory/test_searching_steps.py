"""From a config to Q*'s search: which values, which process rewards, what has no room, which model is read."""

import functools
from types import SimpleNamespace

import jax
import pytest
from scripted_steps import judged, played

from configs import qstar
from jaxmarl_llm import team
from jaxmarl_llm.factory import step_search, training
from jaxmarl_llm.protocols.step_values import Place
from jaxmarl_llm.utils import dotted, formats
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import word_model

MESSAGES = ({"role": "user", "content": "write it"},)


def lengths(questions, texts):
    """Values of the user's own."""
    assert questions == ["write it"] * len(texts)
    return [float(len(text)) for text in texts]


@functools.cache
def a_team():
    model = word_model.build(["write it about x\n 0 1"], {word_model.START: ("0", "1")}, (0,))
    return team.build({"m": model}, {"writer": "m"}, jax.random.key(0), mode="frozen")


class Task:
    """A prompt of a few words."""

    agents, items = ("writer",), (SimpleNamespace(task_id="p/1"),)

    def prompts(self, item):
        return {"writer": list(MESSAGES)}

    def solved(self, outcome):
        return outcome.status == "ok"


def config_of(arg=None, **changes):
    config = qstar.get_config(arg)
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return config


def places(*texts):
    return [Place("p", MESSAGES, text, text.count("\n")) for text in texts]


@pytest.mark.parametrize("value, wanted", [
    ("none", [0.0, 0.0]), ("longest", [1.0, 2.0]), ("test_searching_steps.lengths", [2.0, 4.0]),
])  # fmt: skip
def test_values(value, wanted):
    values = step_search.values_of(config_of(qstar__value=value), a_team())
    assert [each.value for each in values(places("a\n", "b\nc\n"))] == wanted


def test_values_at_random_and_of_an_agent():
    drawn = [step_search.values_of(config_of(qstar__value="random", seed=s), None)(places("a", "b")) for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and all(0 <= each.value < 1 for each in drawn[0])
    assert step_search.values_of(config_of("valuer"), None) is None


def test_process_rewards():
    assert step_search.rates_of(config_of(qstar__process="none")) is None
    rates = step_search.rates_of(config_of(qstar__process="tokens"))
    assert list(rates(places("x = 1\n", "x = 1\ny = ?\n"), ["", "x = 1\n"])) == [0.0, -0.5]
    own = step_search.rates_of(config_of(qstar__process="test_searching_steps.lengths"))
    assert own(places("abc"), [""]) == [3.0]


OWN = {
    "short": lambda questions, texts: [1.0], "nothing": lambda questions, texts: None,
    "none": lambda questions, texts: [None] * len(texts), "nan": lambda questions, texts: [float("nan")] * len(texts),
    "text": lambda questions, texts: ["1"] * len(texts), "raises": lambda questions, texts: 1 / 0,
    "named": lambda questions, texts: dict(enumerate(texts)), "late": lambda questions, texts: (1 / 0 for _ in texts),
}  # fmt: skip
short, nothing, none, nan, text, raises, named, late = OWN.values()


@pytest.mark.parametrize("field", ["qstar.value", "qstar.process"])
@pytest.mark.parametrize("own, message", [
    ("short", r"gave \[1.0\] for 2 texts; expected a number for each"),
    ("nothing", "gave None for 2 texts; expected a number for each"),
    ("none", "a number for p is None, expected a finite number"),
    ("nan", "a number for p is nan, expected a finite number"),
    ("text", "a number for p is '1', expected a finite number"),
    ("named", "gave {0: .* for 2 texts; expected a number for each"),
    ("late", r"raised on p \(ZeroDivisionError: division by zero\)"),
    ("raises", r"raised on p \(ZeroDivisionError: division by zero\)"),
])  # fmt: skip
def test_functions_that_give_no_numbers(field, own, message):
    config = config_of(**{field.replace(".", "__"): f"test_searching_steps.{own}"})
    if field == "qstar.value":
        values = step_search.values_of(config, None)
    else:
        values = functools.partial(step_search.rates_of(config), befores=["", ""])
    error = dotted.UserCodeError if own in ("raises", "late") else UserError
    with pytest.raises(error, match=f"{field} 'test_searching_steps.{own}':? {message}"):
        values(places("a", "b"))


def test_the_search_of_a_config():
    config = config_of(qstar__value="longest", qstar__answers=2, qstar__depth=3, qstar__samples=2)
    protocol = step_search.build(config, Task(), step_search.values_of(config, None))
    forest, requests = played(protocol, lambda item, prefix, g: "x\n" if not prefix else f"{g}<end>", Task.items)
    assert judged(forest) == ["x\n0", "x\n1"] and len(requests) == 2


def test_lines_are_drawn_with_a_length_of_their_own():
    config = config_of("valuer", qstar__step_tokens=7, sampling__max_new_tokens=96)
    config.team.agent.valuer = {"temperature": 0.3}
    params = step_search.sampling(config, training.sampling_params(config))
    assert params.of("writer").max_new_tokens == 7 and params.of("writer").temperature == 0.7
    assert params.of("valuer").max_new_tokens == 96 and params.of("valuer").temperature == 0.3


def test_answers_without_room_are_refused_before_anything_is_drawn():
    length = len(a_team()["writer"].tokenizer.encode_chat(MESSAGES))
    step_search.check(config_of(sampling__max_prompt_tokens=96 + length), a_team(), Task())
    message = f"sampling.max_prompt_tokens={95 + length}: .* {length} of the prompt for p/1; allowed is {96 + length}"
    with pytest.raises(ValueError, match=message):
        step_search.check(config_of(sampling__max_prompt_tokens=95 + length), a_team(), Task())


def test_a_folder_without_a_model_and_one_of_another_model_are_refused(tmp_path):
    config = config_of(f"model={tmp_path}")
    with pytest.raises(ValueError, match="qstar.model='.*': there is no model of experiments.values in this folder"):
        step_search.values_of(config, a_team())
    about = step_search.about(config, a_team())
    formats.write(tmp_path / step_search.ABOUT, about | {"rank": 3})
    with pytest.raises(ValueError, match="qstar.model='.*': its model has rank 3, this team 16"):
        step_search.values_of(config, a_team())


def test_a_model_on_a_base_of_another_seed_is_refused(tmp_path, monkeypatch):
    """Where the base is drawn from the seed: its values are of other hidden states. Earlier files pass."""
    built = SimpleNamespace(model_name="code-tiny")
    config = config_of(f"model={tmp_path}", seed=3)
    about = step_search.about(config, {"writer": built})
    assert about["seed"] == 3 and "seed" not in step_search.about(config, a_team())
    formats.write(tmp_path / step_search.ABOUT, about)
    config.seed = 4
    with pytest.raises(ValueError, match="qstar.model='.*': its model has seed 3, this team 4"):
        step_search.load_critic(config, {"writer": built})
    formats.write(tmp_path / step_search.ABOUT, {name: own for name, own in about.items() if name != "seed"})
    loaded = []
    monkeypatch.setattr(step_search, "build_critic", lambda *args: SimpleNamespace(load=loaded.append))
    step_search.load_critic(config, {"writer": built})
    assert loaded == [tmp_path / step_search.MODEL]


def test_judgements_of_a_task_solve_a_problem():
    config = config_of(search__stop_when_solved=True, qstar__answers=4, qstar__depth=2, qstar__value="longest")
    protocol = step_search.build(config, Task(), step_search.values_of(config, None))
    write = lambda item, prefix, g: "y<end>" if prefix else f"{g}\n"  # noqa: E731
    forest, _ = played(protocol, write, Task.items, lambda text: 1.0)
    assert judged(forest) == ["0\ny"]
