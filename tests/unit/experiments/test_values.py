"""experiments/values.py and a comparison with the values that it fits: the whole way with tiny models."""

import json

import pytest

from configs import coding, qstar
from experiments import ablate, values
from jaxmarl_llm.analysis.search import fitting, search
from jaxmarl_llm.credit import q_targets
from jaxmarl_llm.factory import step_search
from jaxmarl_llm.rollout import episode
from jaxmarl_llm.search.trees import Answer, tree_of


def test_only_a_config_of_such_a_search_has_values(tmp_path):
    message = "train.protocol='simultaneous': experiments.values fits the values of 'qstar'; take configs/qstar.py"
    with pytest.raises(ValueError, match=message):
        values.fit(coding.get_config(), tmp_path / "values")
    assert not list(tmp_path.iterdir())


def test_labels_of_a_config():
    tree = tree_of([Answer(0, "a\nb", 1.0, "writer"), Answer(0, "a\nc", 0.0, "valuer")])
    config = qstar.get_config("valuer")
    config.qstar.discount = 0.5
    for kind, wanted in (("best_rollout", [0.5, 1.0, 0.0]), ("completions", [0.0, None, 0.0])):
        config.qstar.labels = kind
        given = fitting.labels(config, tree)([9.0, 9.0, 9.0]).tolist()
        assert [None if x != x else x for x in given] == wanted
    config.qstar.labels = "fitted"
    assert fitting.labels(config, tree)([0.0, 0.25, 0.5]).tolist() == [0.25, 1.0, 0.0]
    assert q_targets.fitted([0.0, 0.25, 0.5], tree.reward_S, tree.parent_S, discount=0.5).tolist() == [0.25, 1.0, 0.0]


@pytest.mark.slow
def test_values_are_fitted_and_searched_by(tmp_path, monkeypatch, capsys):
    config = qstar.get_config("toy")
    config.update_from_flattened_dict({"qstar.rounds": 3, "qstar.updates": 4})
    metrics = values.fit(config, tmp_path / "values")
    about = json.loads((tmp_path / "values" / step_search.ABOUT).read_text())
    assert about["model"] == "code-tiny" and about["metrics"] == metrics
    assert metrics["answers"] == 4 * 16 and 0 < metrics["reward"] < 1 and metrics["tokens"] <= 2 * 64
    # Answers that were drawn are not drawn again.
    with monkeypatch.context() as patched:
        patched.setattr(episode, "sample_turns", lambda *args: pytest.fail("drawn again"))
        assert values.fit(config, tmp_path / "values") == metrics
        # With other settings of the fit it is fitted anew, to the same answers; those of the answers stay.
        more = config.copy_and_resolve_references()
        more.qstar.updates = 40
        other = values.fit(more, tmp_path / "values")
        assert other["answers"] == metrics["answers"] and other["loss"] < metrics["loss"]
        assert json.loads((tmp_path / "values" / "config.json").read_text())["config"]["qstar"]["updates"] == 40
        printed = capsys.readouterr().out
        assert ("qstar.updates=4: the model explains" in printed) == (metrics["explained"] < 0.05)
        more.qstar.rollouts = 8
        with pytest.raises(ValueError, match="qstar.rollouts: saved 16, now 8"):
            values.fit(more, tmp_path / "values")

    config = qstar.get_config(f"toy,model={tmp_path / 'values'}")
    results = ablate.ablate(config, tmp_path / "runs")
    assert [result.method for result in results] == ["best of N", "random order", "depth first", "qstar"]
    for result in results:
        most = 0 if result.method == "best of N" else 3
        assert (result.ledger["expansions"] > 0) == bool(most)
        for each in result.problems:
            assert len(each.spent) <= 4 and each.spent[-1].executed <= 4 and each.spent[-1].expansions <= most
            assert [row.executed for row in each.spent] == list(each.executed)
        drawn = sum(each.spent[-1].drawn for each in result.problems)
        assert 0 < drawn <= result.ledger["completion_tokens"]
    read = results[-1].ledger["agents"]["writer"]["value"]
    assert read["calls"] > 0 and read["prompt_tokens"] > 100 * read["calls"] and read["completion_tokens"] == 0
    # The same folder again: nothing is drawn, and all is as it was.
    with monkeypatch.context() as patched:
        patched.setattr(episode, "sample_turns", lambda *args: pytest.fail("drawn again"))
        again = ablate.ablate(config, tmp_path / "runs")
    assert [result.ledger for result in again] == [result.ledger for result in results]
    search.show(results, tmp_path / "ablation.json", "Q*")
    page = (tmp_path / "ablation.md").read_text()
    assert "Solved, %, by executed programs" in page and "Solved, %, by expansions" in page
    capsys.readouterr()
