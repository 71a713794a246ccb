"""jaxmarl_llm/runs/summaries.py: the numbers of an iteration's line."""

from jaxmarl_llm.runs.summaries import entry, headline


def test_an_iteration_that_draws_nothing_shows_what_it_learns_from():
    imitates = {"seconds": 2.0, "main/sft_loss": 0.5, "main/loss": 0.5, "preference/pairs": 9.0}
    assert headline(imitates, ("aux", "main")) == {"main sft loss": 0.5, "s": 2.0}
    prefers = {"seconds": 2.0, "aux/dpo_loss": 0.7, "main/dpo_loss": 0.6, "aux/loss": 0.1}
    assert headline(prefers, ("aux", "main")) == {"aux dpo loss": 0.7, "main dpo loss": 0.6, "s": 2.0}
    assert headline({"seconds": 2.0, "madpo/loss": 0.6}, ("aux", "main")) == {"madpo loss": 0.6, "s": 2.0}


def test_a_number_named_step_is_not_the_iteration():
    assert entry({"test/step": 0.5, "test/return": 3.0}, 40) == {"step": 40, "return": 3.0}
