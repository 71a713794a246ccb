"""The model card of an exported agent: which results it states, and where it has none."""

from jaxmarl_llm.analysis.report.model_card import card

CONFIG = {
    "seed": 3, "team": {"agents": ["aux", "main"]}, "train": {"system": "magrpo"},
    "task": {"kind": "coding", "source": "starter"},
}  # fmt: skip
META = {"step": 20, "agents": {"aux": {"model": "tiny"}, "main": {"model": "tiny"}}}
SUMMARY = {
    "before": {"step": 0, "return": 20.0, "return_low": 18.0, "return_high": 22.0, "pass@1": 1.0},
    "after": {"step": 40, "return": 60.0, "return_low": 55.0, "return_high": 65.0, "pass@1": 30.0},
    "best": {"step": 20, "validation_return": 70.0, "return": 62.5, "return_low": 57.0, "return_high": 68.0},
}


def test_the_card_has_the_results_of_the_exported_state():
    text = card(CONFIG, SUMMARY, META, "main", "adapter")
    assert "base_model: tiny\nlibrary_name: peft" in text
    assert "20 iterations of `train.system=magrpo`" in text and "seed 3" in text
    assert "| untrained | 20.0 [18.0, 22.0] | 1.00 |" in text
    assert "| this state (best on validation) | 62.5 [57.0, 68.0] |  |" in text and "60.0" not in text
    latest = card(CONFIG, SUMMARY, META | {"step": 40}, "main", "merged")
    assert "| this state (latest) | 60.0 [55.0, 65.0] | 30.0 |" in latest
    assert "library_name: transformers" in latest


def test_a_state_that_was_not_tested_has_no_results():
    """Neither the validation return that a state was chosen by nor another state's results stand in."""
    for summary in ({}, {"best": {"step": 20, "validation_return": 70.0}}, {"after": SUMMARY["after"]}):
        text = card(CONFIG, summary, META, "main", "merged")
        assert "This state was not evaluated on the test problems." in text and "70.0" not in text
