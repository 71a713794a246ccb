"""The reference policy of a run, i.e. its initial agents: whether it is used, and which copies it needs.

With adapters it is the base model, which exists anyway. Full copies need the original model in addition,
and a team that begins from another run needs a second copy of those parameters.
"""

from jaxmarl_llm.config import maporl, preference
from jaxmarl_llm.config.team import begins
from jaxmarl_llm.factory import training


def is_read(config) -> bool:
    """Whether the reference policy is used; ValueError if ``train.loss`` does not name a loss."""
    return (
        training.loss_config(config).reads_reference
        or preference.needs_reference(config)
        or maporl.needs_reference(config)
        or config.train.counterfactual == "reference"
    )


def keeps_base(config) -> bool:
    """Whether the team keeps its loaded models unchanged, beside the trained parameters."""
    return config.team.mode != "full" or (is_read(config) and not begins(config))


def keeps_beginning(config) -> bool:
    """Whether a copy of the team's initial parameters is kept beside the trained ones."""
    return begins(config) and is_read(config)
