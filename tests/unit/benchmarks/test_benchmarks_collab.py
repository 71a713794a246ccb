"""`benchmarks.collab`: its problems and commands are what its page says, and its table is that of its reports."""

import json

import command_flags
import pytest

from benchmarks import collab
from experiments import together
from jaxmarl_llm.tasks.reasoning.items import load_jsonl
from jaxmarl_llm.tasks.reasoning.load import load_items


def test_no_numbers_are_in_two_splits_and_answers_are_right(tmp_path):
    collab.write_problems(tmp_path)
    items = load_jsonl(tmp_path / "problems.jsonl")
    numbers = {split: {item.task_id.split("/")[1] for item in items if item.split == split} for split in collab.SIZES}
    assert {split: len(own) for split, own in numbers.items()} == collab.SIZES
    assert not (numbers["train"] & numbers["test"] or numbers["train"] & numbers["validation"])
    for item in items:
        a, sign, b = item.question.removeprefix("What is ").removesuffix("?").split()
        assert int(item.answer) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
    texts = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    assert all(row["task_id"].startswith(row["agent"]) for row in texts) and len(texts) == 2 * 480
    some = load_items(f"{tmp_path / 'problems.jsonl'}[::16]", "test")
    train = {item.task_id for item in load_items(f"{tmp_path / 'problems.jsonl'}[::16]", "train")}
    small = [json.loads(line)["task_id"] for line in (tmp_path / "texts_smoke.jsonl").read_text().splitlines()]
    assert some and set(small) == train


@pytest.mark.parametrize("way", collab.WAYS)
def test_flags_of_each_way(way, tmp_path, monkeypatch):
    own = command_flags.defined_apart(monkeypatch)
    monkeypatch.setattr(together.entry, "define_config", lambda *_: None)
    together.define_flags()
    argv, out = collab.measuring(tmp_path, 1, way, smoke=True)
    own(["together", *argv[3:]])
    settings = together.read_settings(own)
    assert own.samples == 1 and own.workdirs == [str(tmp_path / "seed1")] and out.parent == tmp_path / "seed1"
    knows = {"head": "training", "rollouts": "judge", "confidence": ""}[settings.value]
    assert collab.WAYS[way][0] == knows and own.alone == (way == "mean of logits")


def report(sampled, greedy, alone=None):
    def of(values):
        items = [{"item": name, "return": x} for name, x in zip(("up/1", "down/1"), values, strict=True)]
        return {"scores": {"return": {"mean": sum(values) / 2}}, "items": items, "answer_tokens": 3.0}

    ledger = {"forward_passes": 6.0, "judged": 0.0, "switches": 0.5}
    return {"together": {"sampled": of(sampled), "greedy": of(greedy), "ledger": ledger, "seconds": 1.0}} | (
        {"alone": {name: {"sampled": of(own), "greedy": of(own), "seconds": 1.0} for name, own in alone.items()}}
        if alone else {}
    )  # fmt: skip


def test_the_table_by_hand():
    results = {
        str(seed): collab.of_seed({
            "mean of logits": report((50, 50), (100, 40), {"up": (90, 10), "down": (20, 100 - seed)}),
            "Collab": report((100, 90), (100, 100)),
        })
        for seed in (0, 20)
    }  # fmt: skip
    assert results["0"]["best single"]["greedy"] == 60 and results["20"]["each half by its own member"]["greedy"] == 85
    headers, rows = collab.table(results)
    by_name = {row[0]: dict(zip(headers[1:], row[1:], strict=True)) for row in rows}
    assert by_name["Collab"]["more than best single"] == "45.0 [40.0, 50.0]"  # 100 - 60 and 100 - 50
    assert by_name["mean of logits"]["greedy"] == "70.0 [70.0, 70.0]" and by_name["Collab"]["knows"] == "judge"
    assert by_name["best single"]["judged"] == "0.0" and by_name["each half by its own member"]["tokens"] == ""
