"""The reference policy of a run, its initial agents: whether it is read, and what is held for it.

With adapters it is the base, which exists anyway. Full copies need the original model in addition, and a team
that begins from another run needs a second copy of those parameters.
"""

from jaxmarl_llm.config import maporl, preference
from jaxmarl_llm.config.team import begins
from jaxmarl_llm.factory import training


def is_read(config) -> bool:
    """Whether anything compares with the reference policy; ValueError if ``train.loss`` names what is no loss."""
    return (
        training.loss_config(config).reads_reference
        or preference.needs_reference(config)
        or maporl.needs_reference(config)
        or config.train.counterfactual == "reference"
    )


def keeps_base(config) -> bool:
    """Whether the team holds its models as they were loaded, beside what it learns."""
    return config.team.mode != "full" or (is_read(config) and not begins(config))


def keeps_beginning(config) -> bool:
    """Whether the parameters that the team begins with are held a second time, beside those that learn."""
    return begins(config) and is_read(config)
