"""experiments/ablate.py: every member searches the same problems, with as many programs, in order."""

import json

import pytest
import scripted_timing

from configs import ablation, coding, lessonl, qstar
from experiments import ablate
from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.programs import searches
from jaxmarl_llm.rollout import journal

PROGRAMS = 6  # three agents, two rounds
VARIANTS = ("", "scripted", "scripted,cpp", "cpp", "generation", "smoke", "generation,smoke")


def config_of(**changes):
    config = lessonl.get_config("scripted")
    fields = {"task.test_source": "python[:2]", "train.turns": 2}
    fields |= {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(fields)
    return config


@pytest.fixture
def executor(monkeypatch):
    return scripted_timing.install(monkeypatch)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ablation.MEMBERS)
def test_members_are_valid(variant, name):
    config, member = lessonl.get_config(variant), ablation.MEMBERS[name]
    before = config.to_dict()
    own = ablation.config_of(config, member)
    validate(own)
    assert searches(own) and config.to_dict() == before
    # Agents times rounds; of one agent by itself in as many rounds more.
    speakers = ablation.agents_of(config, member)
    programs = len(speakers) * own.train.turns
    assert programs == (1 if name == "single" else 3 * config.train.turns)
    assert (len(speakers) == 1) == (name in ("single", "reflexion", "mapcoder"))
    # Members differ in how is searched, and in nothing else.
    same = {section: own[section].to_dict() for section in ("task", "team", "sampling", "timing", "executor")}
    assert same == {section: before[section] for section in same}


def test_parts_of_a_config_that_are_not_the_lessons_are_theirs():
    config = lessonl.get_config("scripted")
    config.lessons.shown = 7
    kept = ablation.config_of(config, ablation.MEMBERS["random"])
    assert (kept.lessons.shown, kept.lessons.select, kept.lessons.encoder) == (7, "random", "ngrams")
    off = ablation.config_of(config, ablation.MEMBERS["no adjustment"])
    assert (off.lessons.select, off.lessons.factor) == ("full", "off")
    # Methods without lessons must have their fields as by default.
    assert ablation.config_of(config, ablation.MEMBERS["mixture"]).lessons.shown == 4


def judged(folder):
    """(problem, program) of everything that was judged, from the files of a search."""
    actual = []
    for path in sorted(folder.glob("journal/*/*_joints.json")):
        for joint in journal.decode(json.loads(path.read_text())["found"]):
            actual += [(joint.item, outcome.program) for outcome in joint.judgement.outcomes.values()]
    return actual


@pytest.mark.slow
def test_all_members_at_equal_numbers_of_programs(executor, tmp_path, monkeypatch):
    results = ablate.ablate(config_of(), tmp_path)
    assert [result.method for result in results] == list(ablation.MEMBERS)
    assert results[0].method == "no lessons"
    for result in results:
        folder = tmp_path / result.method.replace(" ", "_")
        number = 1 if result.method == "single" else PROGRAMS
        programs = judged(folder)
        assert [sum(item == i for item, _ in programs) for i in (0, 1)] == [number] * 2, result.method
        assert [each.executed[-1] for each in result.problems] == [number] * 2
        assert len(result.models) == (1 if result.method in ("single", "reflexion", "mapcoder") else 3)
        assert result.ledger["search"]["programs"] == 2 * number
        assert bool(result.bank) == (result.method in ("full", "speed only", "relevance only",
                                                       "no adjustment", "random"))  # fmt: skip
    # One program has one time, whoever wrote it and whoever returns it.
    assert len(executor.measured) == len(set(executor.measured)) > 0
    held_out = {}
    for result in results:
        for each in result.problems:
            again = held_out.setdefault((each.item, each.best.program), each.held_out.score)
            assert again == each.held_out.score
    text = (tmp_path / "full" / search.RESULTS).read_text()

    # Stopped in the fourth member and run again, all are as they were, also what is known from others.
    other = tmp_path / "other"
    scripted_timing.install(monkeypatch)
    with monkeypatch.context() as patched:
        # Rounds of the first four: 2 each, of both problems at once.
        scripted_timing.stop(patched, "judge", 3 * 2 + 1)
        with pytest.raises(scripted_timing.Stop):
            ablate.ablate(config_of(), other)
    scripted_timing.install(monkeypatch)
    assert ablate.ablate(config_of(), other) == results
    assert (other / "full" / search.RESULTS).read_text() == text


def test_some_members_the_baseline_first(executor, tmp_path):
    results = ablate.ablate(config_of(), tmp_path, ["full", "single"])
    assert [result.method for result in results] == ["full", "single"]
    assert {path.name for path in tmp_path.iterdir()} == {"full", "single"}
    search.show(results, tmp_path / "ablation.json", "Two")
    data = json.loads((tmp_path / "ablation.json").read_text())
    assert [row["against"].get("method") for row in data] == [None, "full"]
    assert (tmp_path / "ablation.md").is_file() and (tmp_path / "ablation.html").is_file()


def test_what_is_refused(executor, tmp_path):
    with pytest.raises(ValueError, match="--members='ful': allowed are no lessons, full, speed only, "):
        ablate.ablate(config_of(), tmp_path, ["full", "ful"])
    with pytest.raises(ValueError, match="task.kind='coding': nothing to search for .*lessonl.py"):
        ablate.ablate(coding.get_config(), tmp_path)
    with pytest.raises(ValueError, match=r"the config of 'mapcoder' .*\s+search.plans=3: must divide"):
        ablate.ablate(config_of(team__agents=("a", "b"), team__models=("scripted:mixture",) * 2), tmp_path)
    with pytest.raises(ValueError, match="qstar.model='.*gone': there is no model of experiments.values in this fol"):
        ablate.ablate(qstar.get_config(f"smoke,model={tmp_path / 'gone'}"), tmp_path)
    assert not list(tmp_path.iterdir())
