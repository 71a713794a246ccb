"""Searches by tests that an agent writes: task.tests='generated'."""

import json

import pytest
from scripted_programs import ROW

from configs import ablation, lessonl
from experiments import train
from jaxmarl_llm.analysis.report import search_page
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.experts.scripted import Scripted
from jaxmarl_llm.factory import protocols, tasks, teams
from jaxmarl_llm.protocols.single import Single
from jaxmarl_llm.protocols.types import Episode

RIGHT, WRONG = "def {0}(n):\n    return {1} * n\n", "def {0}(n):\n    return 2\n"
MODEL = "expert:anyone"
ASKS_TESTS = "different tests"


def row(name: str, times: int) -> dict:
    """A problem with six tests, at numbers that occur nowhere else."""
    values = "".join(f"    assert candidate({n}) == {times * n}\n" for n in range(4711, 4717))
    text = f'def {name}(n: int) -> int:\n    """{times} times n."""\n'
    test = f"def check(candidate):\n{values}"
    return ROW | {"task_id": name, "prompt": text, "entry_point": name, "test": test}


def answer(request, draw):
    """Tests of `twice`, of which the second is wrong, and none of `thrice`; a right and a wrong program."""
    prompt = request.messages[-1]["content"]
    name, times = ("twice", 2) if "twice" in prompt else ("thrice", 3)
    if ASKS_TESTS in prompt:
        return "assert twice(1) == 2\nassert twice(2) == 5" if name == "twice" else "I would rather not."
    if "Program B" in prompt:
        return "It forgets n."
    return (WRONG if draw else RIGHT).format(name, times)


@pytest.fixture
def config(tmp_path):
    actual = lessonl.get_config("generation,smoke")
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row(*each)) + "\n" for each in (("twice", 2), ("thrice", 3))))
    changes = {"source": str(path), "test_source": "", "tests": "generated"}
    actual.task.update(changes)
    actual.team.models = (MODEL,) * 3
    actual.lessons.encoder = "ngrams"
    actual.search.problems = 2
    actual.sampling.max_new_tokens = 64
    return actual


def searched(config, folder, asked, like=(), agents=None, answer=answer):
    """The results of a search; ``asked`` collects all requests."""

    def noted(request, draw):
        asked.append(request)
        return answer(request, draw)

    with Executor(workers=1) as executor:
        team = teams.build_team(config, speakers={MODEL: Scripted(noted)})
        relevance = protocols.relevant(config, team)
        by = search.Searchers(team, [None] * len(team.members), executor, relevance)
        task = tasks.build_programs(config, executor, "test", agents or config.team.agents)
        return search.search(config, folder, by, task, like=like)


def test_the_first_agent_writes_tests_and_the_given_ones_judge_the_end(config, tmp_path, capsys):
    asked = []
    actual = searched(config, tmp_path / "search", asked)
    twice, thrice = actual.problems
    # Of its two tests the right program passes the first; held-out are all six given ones.
    assert (twice.tests, twice.searched, twice.best.total) == ("generated", 1.0, 2)
    assert (twice.held_out.status, twice.held_out.score, twice.held_out.total) == ("ok", 6.0, 6)
    # No test of `thrice`: half of the given ones.
    assert (thrice.tests, thrice.searched, thrice.best.total) == ("fallback", 3.0, 3)
    assert "1 searched by given tests as none were written" in capsys.readouterr().out
    wanted = [r for r in asked if ASKS_TESTS in r.messages[-1]["content"]]
    assert [r.item for r in wanted] == ["twice", "thrice"] and asked[:2] == wanted
    assert not any("47" in m["content"] for r in asked for m in r.messages)  # given tests are shown to nobody
    # When the search is made again the journal answers. Tests are in the ledger, beside the lessons.
    again = []
    assert searched(config, tmp_path / "search", again) == actual and again == []
    others = sum(kinds.get("other", {}).get("calls", 0) for kinds in actual.ledger["agents"].values())
    assert others == 2 + sum(r.messages[-1]["content"].count("Program B") for r in asked)
    (data,) = search_results.to_json([actual])
    assert [each.tests for each in search_results.from_json([data])[0].problems] == ["generated", "fallback"]
    (sentence,) = [note for note in search_page.notes([data]) if "wrote" in note]
    assert sentence.startswith("lessonl: of 2 problems 1 were searched by tests that an agent wrote, and 1, for")


@pytest.mark.slow
def test_other_tests_are_another_search(config, tmp_path):
    searched(config, tmp_path / "search", [])
    config.task.tests = "given"
    with pytest.raises(ValueError, match="another configuration: task.tests: saved 'generated', now 'given'"):
        searched(config, tmp_path / "search", [])
    asked = []
    twice, _ = searched(config, tmp_path / "other", asked).problems
    assert (twice.tests, twice.best.total) == ("given", 3)
    assert asked and not any(ASKS_TESTS in r.messages[-1]["content"] for r in asked)


def test_another_method_by_the_same_team_has_the_same_tests(config, tmp_path):
    """Also where the agent would write others now."""
    searched(config, tmp_path / "first", [])
    asked = []
    twice, _ = searched(config, tmp_path / "second", asked, like=[tmp_path / "first"]).problems
    assert (twice.tests, twice.best.total) == ("generated", 2)
    assert not any(ASKS_TESTS in r.messages[-1]["content"] for r in asked)


def test_a_team_and_an_agent_alone_have_the_same_tests(config, tmp_path):
    """However many problems they search at a time: other random keys would make other tests here."""

    def by_stream(request, draw):
        prompt = request.messages[-1]["content"]
        if ASKS_TESTS not in prompt:
            return answer(request, draw)
        name, n = ("twice" if "twice" in prompt else "thrice"), int(request.stream[:12], 16)
        return f"assert {name}({n}) == {n}"

    config.search.problems = 1
    members = {name: ablation.MEMBERS[name] for name in ("no lessons", "reflexion")}
    configs = {name: ablation.config_of(config, member) for name, member in members.items()}
    assert {name: own.search.problems for name, own in configs.items()} == {"no lessons": 1, "reflexion": 3}
    asked = {name: [] for name in members}
    for name, own in configs.items():
        who = ablation.agents_of(config, members[name])
        searched(own, tmp_path / name, asked[name], agents=who, answer=by_stream)
    written = [
        [(r.item, r.stream) for r in some if ASKS_TESTS in r.messages[-1]["content"]]
        for some in asked.values()
    ]
    assert written[0] == written[1] and [item for item, _ in written[0]] == ["twice", "thrice"]
    assert len({stream for _, stream in written[0]}) == 2
    # One that is told where the others searched does not ask at all.
    again, who = [], ablation.agents_of(config, members["reflexion"])
    like = [tmp_path / "no lessons"]
    searched(configs["reflexion"], tmp_path / "like", again, like, who, by_stream)
    assert not any(ASKS_TESTS in r.messages[-1]["content"] for r in again)


def test_one_question_about_every_item():
    protocol = Single("a", lambda item: [{"role": "user", "content": f"{item}?"}])
    state = Episode(("p", "q"))
    requests = protocol.step(state)
    assert [(r.agent, r.item, r.messages[0]["content"], r.samples, r.turn) for r in requests] == [
        ("a", 0, "p?", 1, 0),
        ("a", 1, "q?", 1, 0),
    ]
    state.turns.append(object())
    assert protocol.step(state) == [] and protocol.observe(state, state.turns) == []


def test_a_training_has_given_tests(config, tmp_path):
    config.team.models, config.team.mode = (), "adapters"
    with pytest.raises(ValueError, match="task.tests='generated': agents write tests in a search"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
