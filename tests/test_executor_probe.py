"""The probe finds the holes that are there."""

import pytest

from jaxmarl_llm.executor import available_level, levels, probe


def test_level_1_is_full_of_holes():
    found = probe.holes(1)
    assert {"read /etc/passwd", "list /", "open a TCP socket", "write to /tmp"} <= set(found)


@pytest.mark.parametrize("level", [2, 3])
def test_higher_levels_have_none(level):
    if level > available_level()[0]:
        pytest.skip(available_level()[1])
    assert probe.holes(level) == ()


def test_every_attack_is_tried():
    assert len(probe.ATTACKS) == 17 and len(set(probe.ATTACKS)) == 17


def test_a_level_with_holes_is_not_offered(monkeypatch):
    available = levels.available_level.__wrapped__
    if available()[0] < 3:
        pytest.skip(available()[1])
    monkeypatch.setattr(probe, "holes", lambda level: ("mount", "fork") if level == 3 else ())
    assert available() == (2, "at level 3 a program can mount, fork")
    monkeypatch.setattr(probe, "holes", lambda level: ("mount",))
    assert available() == (1, "at level 2 a program can mount")
