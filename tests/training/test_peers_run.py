"""Answers of peers are kept and read again in a real training, which goes on where it ended."""

import pytest
import smoke_runs

from configs import systems
from experiments import train
from jaxmarl_llm.config import validate
from jaxmarl_llm.memory import Item, saved


def config(steps):
    made = systems.get_config("mlpo,smoke")
    made.task.source = "trust[:2]"
    made.update_from_flattened_dict({
        "train.steps": steps, "mlpo.peer_answers": 2, "save.every": 1, "log.report": False,
    })  # fmt: skip
    validate(made)
    return made


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_not_ended(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config(4), whole)
    for steps in (3, 4):
        train.train(config(steps), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    rows = [row for row in smoke_runs.rows(whole) if "mlpo/kept" in row]
    made = config(4)
    peers, each = len(made.team.agents) - 1, made.train.prompts * (len(made.team.agents) - 1)
    assert [row["mlpo/kept"] for row in rows] == [each, 2 * each, 2 * each, 2 * each] and each == 2 * peers
    assert [row["mlpo/read_again"] for row in rows] == [0, 0, each, each]
    # Only the leader draws once the peers' answers are kept.
    drawn = [row["spent/tokens"] for row in rows]
    assert drawn[3] - drawn[2] < drawn[1] - drawn[0]
    kept = [saved(folder / "system", 4, Item, "peer_answers") for folder in (whole, parts)]
    assert kept[0] == kept[1] and sum(item.uses for item in kept[0]) == 4 * each
