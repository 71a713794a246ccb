"""What a team keeps beside its weights goes with it when it is exported."""

from jaxmarl_llm.config import base_config
from jaxmarl_llm.runs import agent_export
from jaxmarl_llm.team import Team


def test_lessons_experience_and_a_router_are_exported(tmp_path):
    kept = ("lessons/000002.jsonl", "experience/best/000002.jsonl", "router/000002.msgpack")
    for name in (*kept, "2/state", "pairs/000001.jsonl"):
        path = tmp_path / "run" / "system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    out = tmp_path / "team"
    agent_export.write_team(
        Team(()), base_config(), {"step": 2}, out, lambda held: "card", kept_in=tmp_path / "run"
    )
    there = sorted(str(path.relative_to(out / "system")) for path in out.rglob("system/**/*") if path.is_file())
    assert there == sorted(kept)
