"""`benchmarks.leader`: its commands are those of `experiments.evaluate`, and its table is that of its reports."""

import pytest

from benchmarks import leader
from configs import compare
from experiments.compare import folder_of
from jaxmarl_llm.config import validate
from jaxmarl_llm.runs.results import result_of


def test_every_row_is_an_evaluation_of_a_member_that_the_comparison_trains(tmp_path):
    made = leader.commands_of(tmp_path, 1, "sums", samples=3)
    assert len(made) == 4 + 2 * 3
    for name, argv in made.items():
        flags = dict(word.lstrip("-").split("=", 1) for word in argv[3:])
        folder = flags["workdir"]
        member = folder.split("/")[-2]
        assert member in compare.MEMBERS["sums"] and folder == str(folder_of(tmp_path, member, 1))
        assert result_of([argv[2].split(".")[1], *argv[3:]]).parent == tmp_path / "leader/seed1"
        like = flags["config"].partition("member=")[2]
        agents = compare.get_config(f"task=sums,member={like}").team.agents
        assert agents[0] == "first" and len(agents) == (1 if name.startswith("majority") else 4)
        # Each row of a question draws 24 answers, eight of them for a result or four for each of two.
        if name.startswith("majority"):
            chains, samples = flags["config.eval.chains"], flags["config.eval.samples"]
            made_of = compare.get_config(f"task=sums,member={like}")
            made_of.eval.update(vote="majority", chains=int(chains), samples=int(samples))
            validate(made_of)
            assert samples == "24" and chains in ("4", "8")
        else:
            assert flags["samples"] == ("3" if "two turns" in name else "6")


def report(returned, tokens, **scores):
    def of(values):
        return {name: {"mean": value} for name, value in values.items()}

    return {
        "sampled": {"scores": of({"return": returned, **scores}), "answer_tokens": tokens},
        "greedy": {"scores": of({"return": returned + 1})},
    }


@pytest.mark.parametrize("given, wanted", [
    (report(20.0, 15.0), {"answers": 4, "tokens": 15.0, "sampled": 20.0, "greedy": 21.0}),
    (report(20.0, 30.0, return_turn1=10.0, return_turn2=20.0, return_turns=15.0),
     {"answers": 8, "tokens": 30.0, "sampled": 20.0, "greedy": 21.0}),
    (report(20.0, 3.0, **{"voted@8": 40.0}), {"answers": 8, "tokens": 24.0, "sampled": 40.0, "greedy": 21.0}),
])  # fmt: skip
def test_what_a_question_costs(given, wanted):
    assert leader.right(given) == wanted


def test_the_table_by_hand():
    def seed(vote, read):
        made = {}
        for name in (f"majority of the start, {n} answers" for n in (4, 8)):
            made[name] = {"answers": int(name.split()[-2]), "tokens": 14.0, "sampled": vote, "greedy": 1.0}
        made["leader with peers, MLPO"] = {"answers": 4, "tokens": 16.0, "sampled": read, "greedy": 2.0}
        return made

    headers, rows = leader.table({"0": seed(10.0, 20.0), "1": seed(30.0, 50.0)})
    assert headers[4] == "less the start's majority" and [row[1] for row in rows] == ["4", "4", "8"]
    assert rows[0][4] == rows[2][4] == ""
    assert rows[1][3].startswith("35.0 (") and rows[1][4].startswith("+15.0 (")  # 10 and 20 more
