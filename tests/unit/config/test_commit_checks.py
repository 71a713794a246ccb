"""What a config of commits may not hold, and its variants."""

import pytest

from configs import commits
from jaxmarl_llm.config import validate
from jaxmarl_llm.utils.errors import UserError


@pytest.mark.parametrize("arg", [None, "study", "study,rebuilder", "tiny", "smoke", "study,rebuilder,smoke"])
def test_every_variant_is_valid(arg):
    config = commits.get_config(arg)
    validate(config)
    assert config.commits.reward == ("bleu" if arg and "study" in arg else "round_trip")


def test_variants_that_exclude_each_other():
    for arg in ("rebuilder", "tiny,study", "tiny,smoke"):
        with pytest.raises(UserError, match="goes with"):
            commits.get_config(arg)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"train.protocol": "simultaneous"}, "the rebuilder has to read the message"),
        ({"team.agents": ("a", "b", "c")}, "allows a writer, or a writer and a rebuilder"),
        ({"team.agents": ("a",)}, "has no rebuilder, allowed are bleu, rouge_l and meteor"),
        ({"commits.encoder": "words", "commits.examples": 1, "commits.rule": "cosine"}, "allowed are ngrams and"),
        ({"commits.encoder": "my.encode", "commits.examples": 1}, "only commits.rule='cosine' and 'two_step' read it"),
        ({"commits.rule": "random"}, "only commits.examples above 0 reads it"),
        ({"task.centralised": True}, "who must not read the diff"),
        ({"train.turns": 2}, "has one turn, without feedback"),
    ],
)
def test_what_is_refused(fields, said):
    config = commits.get_config("smoke")
    config.update_from_flattened_dict(fields)
    with pytest.raises(UserError, match=said):
        validate(config)


@pytest.mark.parametrize(
    ("arg", "fields", "said"),
    [
        ("tiny", {"commits.examples": 3}, "commits.examples=3: .* not of task.source='six', .*, allowed is 0"),
        ("tiny", {"commits.max_diff_tokens": 3}, "commits.max_diff_tokens=3: .* not of task.source='six', .* is 510"),
        ("tiny", {"task.source": "six[:2]", "commits.examples": 3}, "commits.examples=3: .* not of task.source='six'"),
        (None, {"task.reward": "a.b", "commits.reward": "bleu"}, "commits.reward='bleu': .* where task.reward pays"),
        (None, {"task.reward": "a.b", "commits.copy_share": 0.5}, "commits.copy_share=0.5: .* where task.reward pays"),
    ],
)
def test_settings_that_would_do_nothing(arg, fields, said):
    config = commits.get_config(arg)
    config.update_from_flattened_dict(fields)
    with pytest.raises(UserError, match=said):
        validate(config)


def test_settings_that_do_something():
    for arg, fields in (
        ("tiny", {"task.test_source": "mutants", "task.test_split": "test", "commits.examples": 3}),
        ("study", {"commits.examples": 3, "commits.max_diff_tokens": 99}),
        (None, {"task.reward": "jaxmarl_llm.tasks.toys.letters.distinct"}),
    ):
        config = commits.get_config(arg)
        config.update_from_flattened_dict(fields)
        validate(config)
