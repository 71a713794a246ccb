"""The members of a merge by what a command line says: folders, agents of folders, each once."""

import json

import pytest

from configs import reasoning
from jaxmarl_llm import saved_agents
from jaxmarl_llm.analysis.merging import members
from jaxmarl_llm.utils.errors import UserError


@pytest.fixture
def config():
    return reasoning.get_config("solo,smoke")


def make_team(folder, *agents):
    """An exported team of these agents, whose weights are not there."""
    folder.mkdir(parents=True)
    kind = {"model": "m", "mode": "adapters", "rank": 2, "scale": 1.0}
    (folder / "team.json").write_text(json.dumps({"format": 1, "step": 1, "agents": dict.fromkeys(agents, kind)}))
    return folder


def described(config, *texts):
    return [(str(s.folder), *s.agents.values()) for s in members.of_texts(config, list(map(str, texts)), "best")]


def test_folders_may_have_colons_in_their_paths(tmp_path, config):
    day, both = make_team(tmp_path / "day 12:30", "main"), make_team(tmp_path / "a:b" / "c", "one", "two")
    plain = make_team(tmp_path / "plain", "main")
    wanted = [(str(day), "main"), (str(both), "two"), (str(plain), "main")]
    assert described(config, day, f"{both}:two", plain) == wanted
    for text, wanted in (
        (f"{day}", (f"{day}", "")), (f"{day}:main", (f"{day}", "main")), ("no:where", ("no:where", "")),
        (f"{plain}:main:x", (f"{plain}", "main:x")), ("", ("", "")),
    ):  # fmt: skip
        assert saved_agents.folder_and_agent(text) == wanted
    with pytest.raises(UserError, match=r"day 12:30 has no agent 'x', only main"):
        described(config, f"{day}:x")


def test_a_member_is_there_once_by_whatever_path(tmp_path, config, monkeypatch):
    one, two = make_team(tmp_path / "one", "main"), make_team(tmp_path / "two", "a", "b")
    monkeypatch.chdir(tmp_path)
    for twice in ((one, f"{one}/"), (one, "one"), (one, "two/../one"), (one, f"{one}:main"), ("two:a", f"{two}:a")):
        with pytest.raises(UserError, match=f"--members=.*: '{twice[1]}' is there twice; allowed is once"):
            described(config, *twice)
    assert len(described(config, "two:a", "two:b", one)) == 3
    with pytest.raises(UserError, match="--members=one,: '' names no folder"):
        described(config, "one", "")
