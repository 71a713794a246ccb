"""What a config of programs may say, and what each refusal names."""

import pytest

from configs import lessonl
from jaxmarl_llm.config import ConfigDict, base_config, validate, workload
from jaxmarl_llm.config.programs import searches


def rounds(protocol="lessonl", **fields):
    config = base_config()
    config.task.kind, config.train.protocol, config.train.turns = "optimisation", protocol, 6
    config.train.system = "lessonl" if protocol == "lessonl" else "magrpo"
    config.update_from_flattened_dict(fields)
    return config


def test_rounds_of_programs_are_accepted():
    for protocol in ("lessonl", "repeated", "reflexion", "mapcoder", "mixture"):
        validate(rounds(protocol))
        assert searches(rounds(protocol))
    assert not searches(base_config())
    dealt = rounds(**{"lessons.select": "dealt", "lessons.control": 1})
    validate(dealt)
    saved = ConfigDict(rounds().to_dict() | {"train": rounds().train.to_dict() | {"turn_weights": []}})
    validate(saved)


@pytest.mark.parametrize("protocol", ["repeated", "reflexion", "mapcoder", "mixture"])
def test_other_ways_to_search_need_no_more_than_their_name(protocol):
    """As the README says; a script's lessons have another encoder, which the refusal names."""
    own = {"train.protocol": protocol, "train.system": "magrpo"}
    config, scripted = lessonl.get_config(), lessonl.get_config("scripted")
    config.update_from_flattened_dict(own)
    validate(config)
    scripted.update_from_flattened_dict(own)
    with pytest.raises(ValueError, match=r"lessons.encoder='ngrams': .* no lessons, leave it at 'policy'"):
        validate(scripted)
    scripted.lessons.encoder = "policy"
    validate(scripted)


@pytest.mark.parametrize(
    "config, message",
    [
        (rounds(**{"task.kind": "coding"}), "train.protocol='lessonl': task.kind='coding' allows all but"),
        (rounds("pipeline", **{"train.turns": 1}), "task.kind='optimisation' allows simultaneous or rounds"),
        (rounds(**{"train.system": "magrpo"}), "train.system='magrpo': goes with the same train.protocol"),
        (rounds("mixture", **{"train.system": "lessonl"}), "train.system='lessonl': goes with the same"),
        (rounds(**{"train.joint_mode": "cross"}), "train.joint_mode='cross': .* needs 'aligned': a round is"),
        (rounds(**{"train.counterfactual": "nothing"}), "every program is judged by itself"),
        (rounds(**{"train.discount": 0.5}), r"train.discount=0.5: train.system='lessonl' allows 1.0 only"),
        (rounds(**{"timing.min_pairs": 8}), "timing.min_pairs=8: must be odd"),
        (rounds(**{"timing.min_pairs": 23}), "timing.max_pairs=21: must be at least timing.min_pairs=23"),
        (rounds(**{"lessons.control": 1}), "lessons.control=1: needs lessons.select='dealt', it is 'full'"),
        (
            rounds(**{"lessons.control": 4, "lessons.select": "dealt"}),
            "lessons.control=4: must leave some of the train.group=4 chains",
        ),
        (rounds(**{"lessons.bank": "run", "train.overlap": True}), "overlap=True: lessons.bank='run' shows"),
        (
            rounds("reflexion", **{"lessons.shown": 2}),
            "lessons.shown=2: train.protocol='reflexion' has no lessons, leave it at 4",
        ),
        (rounds(**{"lessons.gate": -1.0}), "lessons.gate=-1.0: allowed is 0 to any larger number"),
        (rounds(**{"search.prices": (("x", 1),)}), r"search.prices: \('x', 1\) is not allowed, only \(model"),
        (rounds(**{"search.prices": (("x", 1, -2),)}), r"search.prices: \('x', 1, -2\) is not allowed"),
        (rounds(**{"search.prices": (("x", 1, 2),)}), "search.prices: there is none for 'smollm2-135m-instr"),
        (rounds(**{"task.tests": "generated"}), "task.tests='generated': needs task.kind='generation'"),
        (rounds(**{"task.tests": "own"}), "task.tests='own': allowed are given, generated"),
        (rounds("mapcoder", **{"train.turns": 5}), "search.plans=2: must divide the train.turns=5 programs"),
    ],
)
def test_refusals(config, message):
    with pytest.raises(ValueError, match=message):
        validate(config)


def test_the_arithmetic_of_rounds():
    config = rounds(**{"train.turns": 3, "train.prompts": 2, "train.group": 4})
    config.team.agents = ("a", "b", "c")
    # 2 problems x 4 chains x 3 rounds of 3 agents; lessons after the first two rounds.
    assert workload.joint_answers(config) == 24
    assert workload.completions(config) == 3 * (24 + 16)
    assert workload.learned(config) == 24 + 16
    config.lessons.bank = "run"
    assert workload.remarks(config) == 24
    config.lessons.select = "none"
    assert workload.completions(config) == 72
    # In each of the 8 chains two reflections, on the first two programs of three; or its plans.
    config.lessons.bank, config.train.protocol = "problem", "reflexion"
    assert workload.completions(config) == 3 * (24 + 16)
    config.train.protocol, config.search.plans = "mapcoder", 1
    assert workload.completions(config) == 3 * (24 + 8)
    config.train.protocol = "mixture"
    assert workload.completions(config) == 72


def test_a_locked_config_is_as_good_as_another():
    """The command line locks it, and a locked ConfigDict equals no other."""
    config = rounds("repeated")
    config.lock()
    validate(config)
