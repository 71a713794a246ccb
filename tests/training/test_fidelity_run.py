"""How faithful the advantages of a run are to its rewards, for a run of known rewards."""

import json

import smoke_runs

from configs import game
from experiments import fidelity, train
from jaxmarl_llm import update
from jaxmarl_llm.runs import training_loop


def config_of(reward, **fields):
    config = game.get_config()
    config.update_from_flattened_dict({
        "train.steps": 2, "train.group": 4, "train.joint_mode": "cross", "eval.before": False,
        "task.reward": f"text_rewards:{reward}", "sampling.max_new_tokens": 8, "log.transcripts_every": 1,
        "save.every": 1,
    } | fields)  # fmt: skip
    return config


def test_of_a_run(tmp_path, monkeypatch, capsys):
    made, make = {}, update.make_optimizer  # equal optimizers share the programs that they are part of
    monkeypatch.setattr(update, "make_optimizer", lambda **s: made.setdefault(tuple(s.items()), make(**s)))
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    for reward in ("dice", "apart"):
        train.train(config_of(reward), tmp_path / reward)
    before, lines = smoke_runs.files(tmp_path / "apart"), []
    actual = fidelity.measure(tmp_path / "apart", 1, partners=6, tell=lines.append)
    assert smoke_runs.files(tmp_path / "apart") == before
    assert lines == [f"iteration 1 of {tmp_path / 'apart'}: 0 before it are trained again"]
    assert [row.agent for row in actual.rows] == ["first", "second", "all"]
    assert actual.rows[-1].fidelity > 0.999 and actual.step == 1
    # 6 games, 2 agents, 4 samples beside 6 partners, less what was said twice
    assert 6 * 2 < actual.judged <= 6 * 2 * 4 * 6
    of_noise = fidelity.measure(tmp_path / "dice", 1, partners=6)
    # 12 groups of 4: 0.17 is the deviation by chance; the table of rewards itself would say 1.
    assert abs(of_noise.rows[-1].fidelity) < 0.5
    fidelity.show(of_noise)
    assert "different answers were judged" in capsys.readouterr().out
    # A record that was changed is told.
    (path, *_) = sorted((tmp_path / "apart" / "transcripts").iterdir(), reverse=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["total"] = 7.0
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert fidelity.measure(tmp_path / "apart", 1, partners=6, tell=lines.append) == actual
    assert lines[-1] == "rewards are not as they were recorded: experiments.replay shows where"
