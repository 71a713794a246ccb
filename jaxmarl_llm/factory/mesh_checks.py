"""Check which parts of a model a mesh shards; parts that stay unsharded are refused or reported."""

import logging

from jax.sharding import AbstractMesh

from jaxmarl_llm import sharding
from jaxmarl_llm.config import remote
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.utils.errors import UserError


def refuse_uncut(model: int, name: str, policy: PolicyConfig) -> None:
    """Refuse a ``mesh.model`` (number of devices) that does not divide a model's attention or feed-forward.

    Raises:
      UserError: naming the field, its value, and the numbers that do.
    """
    for number, what in ((policy.n_heads, "attention heads"), (policy.d_ff, "numbers of the feed-forward")):
        if number % model:
            allowed = [n for n in range(1, 2 * model) if policy.n_heads % n == policy.d_ff % n == 0]
            raise UserError(
                f"mesh.model={model} does not divide the {number} {what} of {name!r}, and every device would "
                f"compute all of them; allowed near it: {', '.join(map(str, allowed))}"
            )


def check(config, name: str, policy: PolicyConfig) -> None:
    """`refuse_uncut`, and warn of other parts of a model that every device holds unsharded."""
    model = config.mesh.model
    refuse_uncut(model, name, policy)
    for number, what in (
        (policy.n_kv_heads, "key/value heads"),
        (policy.vocab_size, "words of the vocabulary"),
    ):
        if number % model:
            logging.warning(
                "mesh.model=%d does not divide the %d %s of %r: every device holds all of them",
                model, number, what, name,
            )  # fmt: skip


def check_rows(config) -> None:
    """Warn of a mesh that divides an iteration into more parts than it has problems."""
    c, problems = config.mesh, config.train.prompts
    mesh = AbstractMesh((c.agent, c.data, c.model), sharding.AXES)
    parts_of = {}
    for agents in remote.stacks(config).values():
        layout = sharding.Layout(mesh).for_stack(len(agents))
        named = f"mesh.data={c.data}"
        if "agent" in layout.rows:
            undivided = f"the {len(agents)} agents of a model ({', '.join(agents)})"
            named = f"mesh.agent={c.agent} does not divide {undivided} and divides their problems, {named}"
        parts_of[named] = layout.shards
    for named, parts in parts_of.items():
        if parts > problems:
            logging.warning(
                "%s, and an iteration has train.prompts=%d problems: %d of its parts draw answers that nobody "
                "reads, and wait while the others learn", named, problems, parts - problems,
            )  # fmt: skip
