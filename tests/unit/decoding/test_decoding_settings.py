"""What cannot be written together is refused in one sentence, before anything is read."""

import pytest

from jaxmarl_llm.decoding.settings import Settings, check, check_members


@pytest.mark.parametrize("fields, given, message", [
    ({"mode": "vote"}, (), "--together='vote': allowed are mean_logits, mean_probabilities, contrast, switch"),
    ({"alpha": -0.1}, (), "--alpha=-0.1: allowed is 0 or more"),
    ({"alpha": float("nan")}, (), "--alpha=nan: allowed is 0 or more"),
    ({"candidates": 0}, (), "--candidates=0: allowed is 1 or more"),
    ({"goes_on": "all"}, (), "--continue='all': allowed are own, best"),
    ({"mode": "contrast"}, (), "--together=contrast: give --weights"),
    ({"weights": (0.5, 0.5)}, ("weights",), "--weights=.* would do nothing: only mixtures weigh members"),
    ({"mode": "mean_logits"}, ("every",), "--every=token would do nothing: a mixture is of every token"),
    ({"candidates": 2}, ("candidates",), "--candidates=2 would do nothing: each token is drawn once"),
    ({"value": "head", "rollouts": 4}, ("rollouts",), "--rollouts=4 would do nothing: only --value=rollouts"),
    ({"value": "rollouts", "every": "line"}, ("alpha",), "--alpha=0.0 would do nothing: only tokens"),
    ({"value": "rollouts", "every": "answer"}, ("horizon",), "whole answers are judged as they are"),
])
def test_settings(fields, given, message):
    with pytest.raises(ValueError, match=message):
        check(Settings(**fields), given)


@pytest.mark.parametrize("fields, names, models, alike, message", [
    ({}, ["a"], ["m"], True, "members a: to write together takes two or more"),
    ({"mode": "mean_logits", "weights": (1.0,)}, ["a", "b"], ["m", "m"], True, "a number for each of a, b"),
    ({"value": "head"}, ["a", "b"], ["m", "n"], False,
     "--every=token: members of m and n differ, and every token needs one tokenizer; use --every=line"),
    ({"value": "head"}, ["a", "b"], ["m", "n"], True, "every token needs one model for all; use --every=line"),
    ({"mode": "mean_logits"}, ["a", "b"], ["m", "n"], False, "--together=mean_logits: .* needs one tokenizer$"),
])
def test_members(fields, names, models, alike, message):
    with pytest.raises(ValueError, match=message):
        check_members(Settings(**fields), names, models, alike)


def test_good_ones():
    check(Settings(value="rollouts", every="line", goes_on="best"), ("value", "every", "goes_on", "rollouts"))
    check(Settings("contrast", (1.5, -0.5)), ("weights", "plausible"))
    check(Settings(value="head", alpha=0.1, candidates=3), ("alpha", "candidates", "value"))
    check_members(Settings(value="head", every="line"), ["a", "b"], ["m", "n"], False)
    assert [Settings(value=v, every=e).searches for v in ("confidence", "head") for e in ("token", "line")] == [
        False, True, True, True,
    ]  # fmt: skip
