"""experiments.levels: its commands, that it goes on where it was stopped, and its table by hand."""

import json
import types

import pytest

from configs import levels as config_file
from experiments import levels
from jaxmarl_llm.config import UserError, validate
from jaxmarl_llm.tasks.reasoning.load import load_items

GRADES = {"q1": 1, "q2": 2, "q3": 3, "q4": 3}
KINDS = ((1,), (2,), (3,))


@pytest.mark.parametrize("arg", [
    None,
    *(f"{name}{more}" for name in (*config_file.EXPERTS, *config_file.TEAMS, "weight")
      for more in ("", ",words", ",smoke")),
])  # fmt: skip
def test_every_variant_can_be_used(arg):
    config = config_file.get_config(arg)
    validate(config)
    expert = (arg or "").split(",")[0] in config_file.EXPERTS
    assert (config.train.system == "sft") == expert == bool(config.task.grades)
    assert config.task.source == ("words" if "words" in (arg or "") else "sums")


@pytest.mark.parametrize("more", ["", ",smoke", ",words"])
def test_levels_are_names_of_variants(more):
    for level, variant in (("api", "router"), ("text", "team"), ("logit", "team"), ("weight", "weight")):
        assert config_file.get_config(level + more) == config_file.get_config(variant + more)
    with pytest.raises(UserError, match="config options team and text exclude each other"):
        config_file.get_config("team,text")


@pytest.mark.parametrize("source", ["sums", "words"])
def test_the_experts_learn_all_kinds_and_none_twice(source):
    learned = [grade for kind in config_file.KINDS[source] for grade in kind]
    assert sorted(learned) == sorted({item.grade for item in load_items(source)})
    items = [load_items(source, "train", kind) for kind in config_file.KINDS[source]]
    assert {item.task_id for part in items for item in part} == {i.task_id for i in load_items(source, "train")}
    assert sum(map(len, items)) == len(load_items(source, "train"))
    assert load_items(source + "[:3]", "train", (2,)) == load_items(source, "train", (2,))[:3]
    with pytest.raises(UserError, match="holds no questions of the grades"):
        load_items(source, "train", (9,))


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (level, name)
        for level in ("api", "text")
        for name, row in config_file.LEVELS[level].items()
        if row.command == "evaluate"
    ],
)
def test_every_row_of_routes_and_texts_is_a_config(level, name):
    row = config_file.LEVELS[level][name]
    config = config_file.get_config(row.variant)
    fields = dict(flag.removeprefix("--config.").split("=") for flag in row.flags)
    config.update_from_flattened_dict(
        {path: int(value) if value.isdigit() else value for path, value in fields.items()}
    )
    validate(config)
    assert config.train.turns == {"api": 3, "text": 2 if name == "debate" else 1}[level]


def test_the_better_member_of_the_contrast_is_the_last_and_weights_add_up():
    (weights,) = (
        flag.removeprefix("--weights=") for flag in config_file.LEVELS["logit"]["contrast"].flags if "weights" in flag
    )
    weights = [float(weight) for weight in weights.split(",")]
    assert sum(weights) == 1 and len(weights) == len(config_file.EXPERTS) and max(weights) == weights[-1]


def test_two_variants_exclude_each_other():
    with pytest.raises(UserError, match="config options expert_0 and team exclude each other"):
        config_file.get_config("expert_0,team")


def test_each_command_once_and_again_only_what_is_not_finished(tmp_path):
    made = levels.jobs(tmp_path, ["smoke"], 3, ["weight"])
    called = []

    def call(argv):
        called.append(argv)
        path = next(path for path, command in made.items() if command is argv)
        if len(called) == 6:
            return types.SimpleNamespace(returncode=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"after": {}}))
        return types.SimpleNamespace(returncode=0)

    with pytest.raises(UserError, match="--method=soup"):
        levels.run(made, call)
    assert len(called) == 6
    levels.run(made, call)
    assert called[6] is called[5] and len(called) == 4 + 7 + 1
    first, joined, mean, soup = called[0], called[3], called[4], called[5]
    assert first[1:] == [
        "-m", "experiments.train", "--config=configs/levels.py:expert_0,smoke", "--config.seed=3",
        f"--workdir={tmp_path / 'expert_0'}",
    ]  # fmt: skip
    assert f"--members={','.join(str(tmp_path / name) for name in config_file.EXPERTS)}" in joined
    assert "--report=all" in mean and "--report=result" in soup and f"--workdir={tmp_path / 'team'}" in soup


def report(**scores):
    """What an evaluation says of four questions."""
    items = [{"item": item, "return": float(value)} for item, value in zip(GRADES, scores["of"], strict=True)]
    return {"sampled": {"items": items, "answer_tokens": scores["tokens"]}, "greedy": {"items": items}}


def test_the_table_by_hand(tmp_path):
    """Two seeds; the experts know their own kind, and expert_0 a question of another."""
    experts = {"expert_0": (100, 0, 0, 100), "expert_1": (0, 100, 0, 0), "expert_2": (0, 0, 100, 50)}
    results = {}
    for seed, mean in enumerate(((100, 0, 100, 0), (100, 100, 100, 100))):
        place = tmp_path / f"seed{seed}"
        rows = {name: report(of=of, tokens=2.0 + n) for n, (name, of) in enumerate(experts.items())}
        rows = {"base": report(of=(0,) * 4, tokens=9.0)} | rows | {"mean": report(of=mean, tokens=3.0)}
        facts = {"method": "mean", "validation": {"answers": 0, "tokens": 0}, "test": {"rows": rows}}
        (place / "weight" / "mean").mkdir(parents=True)
        (place / "weight" / "mean" / "merge.json").write_text(json.dumps(facts))
        rows = {"search": report(of=(0, 0, 0, 50), tokens=4.0)}
        facts = {"method": "search", "validation": {"answers": 60, "tokens": 90 + seed}, "test": {"rows": rows}}
        (place / "weight" / "search").mkdir(parents=True)
        (place / "weight" / "search" / "merge.json").write_text(json.dumps(facts))
        (place / "text" / "vote").mkdir(parents=True)
        (place / "text" / "vote" / "evaluation.json").write_text(json.dumps(report(of=(0, 0, 100, 0), tokens=9.0)))
        (place / "logit" / "switch").mkdir(parents=True)
        ledger = {"ledger": {"forward_passes": 27.0}}
        facts = {"together": report(of=(100, 100, 0, 0), tokens=9.0) | ledger}
        (place / "logit" / "switch" / "together.json").write_text(json.dumps(facts))
        (place / "logit" / "fusion" / "fusion").mkdir(parents=True)
        (place / "logit" / "fusion" / "fusion" / "report.json").write_text("[]")
        (place / "logit" / "fusion" / "test").mkdir()
        (place / "logit" / "fusion" / "test" / "after.json").write_text(json.dumps(report(of=(50,) * 4, tokens=2.0)))
        (place / "api" / "router" / "test").mkdir(parents=True)
        (place / "api" / "router" / "summary.json").write_text(json.dumps({"after": {}}))
        (place / "api" / "router" / "test" / "after.json").write_text(json.dumps(report(of=(100,) * 4, tokens=3.0)))
        spent = {"step": 1, "spent/answers": 48, "spent/tokens": 300}
        (place / "api" / "router" / "metrics.jsonl").write_text(json.dumps(spent) + "\n")
        for name, row in levels.rows_of(place, ["api", "text", "logit", "weight"], GRADES, KINDS).items():
            results.setdefault(name, {})[str(seed)] = row
    lines, headers = levels.table(results, GRADES, KINDS)
    by_name = {line[0]: line[1:] for line in lines}
    chosen = ["router", "vote", "switch", "fusion", "mean", "search"]
    assert list(by_name) == ["base", *config_file.EXPERTS, "oracle router", *chosen]
    assert headers[3:6] == ["kind 0 (1)", "kind 1 (1)", "kind 2 (2)"]
    # Questions 1 and 2 to the first two experts, 3 and 4 to the third; tokens 2, 3, 4 and 4.
    assert by_name["oracle router"][:6] == ("api", "87.5 [87.5, 87.5]", "100.0", "100.0", "75.0", "87.5")
    assert by_name["oracle router"][6] == "3.2"
    assert by_name["mean"][:2] == ("weight", "75.0 [50.0, 100.0]") and by_name["mean"][3] == "50.0"
    assert by_name["search"][-3:] == ("60", "90", "2") and by_name["vote"][0] == "text"
    assert by_name["switch"][0] == "logit" and by_name["switch"][6:8] == ("9.0", "27.0")
    assert by_name["router"][0] == "api" and by_name["router"][6:] == ("3.0", "3.0", "48", "300", "2")
    assert by_name["fusion"][:2] == ("logit", "50.0 [50.0, 50.0]")
    assert by_name["fusion"][6:] == ("2.0", "2.0", "0", "0", "2")
    one, _ = levels.table({name: {"0": rows["0"]} for name, rows in results.items()}, GRADES, KINDS)
    assert dict((line[0], line[2]) for line in one)["expert_1"].startswith("25.0 [0.0, ")


def test_seeds_that_are_none():
    assert levels._seeds(["0", "2"]) == [0, 2]
    for words in (["x"], [], ["1", "1"]):
        with pytest.raises(UserError, match="allowed are whole numbers, each once"):
            levels._seeds(words)
