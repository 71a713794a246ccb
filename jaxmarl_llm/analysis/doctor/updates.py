"""Check that the update reads the tokens as sampled, and trains exactly these tokens."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jaxmarl_llm.analysis.doctor.perturb import MicrobatchGradients, microbatch_gradients
from jaxmarl_llm.analysis.doctor.result import by_agent, check
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.team import Member
from jaxmarl_llm.update import Batch, LossConfig
from jaxmarl_llm.update.collate import of_learners
from jaxmarl_llm.update.diagnostics import Diagnostics

# Largest |ratio - 1| of any token, and KL(sampler || trainer) in nats per token, that rounding can explain.
TOLERANCES = {
    "float32": (0.002, 1e-6),
    "three passes of bfloat16": (0.01, 1e-5),
    "TF32": (0.1, 1e-4),
    "float16": (0.2, 1e-3),
    "bfloat16": (1.0, 5e-3),
}
UNSURE = -1e-3  # below this log-probability a token must get gradient; above it, rounding may give 0


@dataclasses.dataclass
class Trained:
    """Counts of positions in one agent's batches, for each kind as (with gradient, all).

    Completion tokens that have no gradient and, by `UNSURE`, need none are not counted. endings are the last
    tokens of completions that an EOS ended. The last position of a prompt predicts the first tokens of its
    completions and counts among ``tokens``; ``contexts`` are all other positions of prompts.
    """

    tokens: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, int))
    endings: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, int))
    padding: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, int))
    contexts: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, int))


@dataclasses.dataclass
class Examined:
    """The measurements of `examine` for one agent."""

    diagnostics: Diagnostics | None = None
    trained: Trained = dataclasses.field(default_factory=Trained)


def examine(member: Member, trainable, config: LossConfig, batches: Sequence[Batch]) -> dict[str, Examined]:
    """Run the loss on batches of a stack with all advantages 1, and count the tokens that get gradient.

    Args:
      member, trainable: the stack, and its current parameters.
      config: options of the loss.
      batches: from `update.collate`.

    Returns:
      `Examined` by agent. If no completion of an agent ended with an EOS, the last token of its first
      completion is replaced by an EOS, only for the count of the endings.
    """
    examined, planted = ({agent: Examined() for agent in member.stack.agents} for _ in range(2))
    batches = [batch.replace(advantages_NR=np.ones_like(batch.advantages_NR)) for batch in batches]
    for batch in batches:
        _add(examined, member, trainable, config, batch)
    for batch in batches:
        if not all(examined[agent].trained.endings[1] for agent in batch.agents or member.stack.agents):
            _add(planted, member, trainable, config, _with_endings(batch, member.stack.eos_ids[0]))
    for agent, measured in examined.items():
        if not measured.trained.endings[1]:
            measured.trained.endings = planted[agent].trained.endings
    return examined


def of_forest(team, trainables, config: LossConfig, forest: Forest) -> dict[str, Examined]:
    """Run `examine` for every agent that learns, on the turns of a forest."""
    examined = {}
    for member, trainable in zip(team.members, trainables, strict=True):
        if trainable is None:
            continue
        advantages_R = np.ones(len(forest.turns), np.float32)
        pad_id = member.tokenizer.pad_id
        batches = of_learners(forest, advantages_R, member.stack, config.sampling, pad_id)
        examined |= examine(member, trainable, config, batches)
    return examined


@check("log-prob parity")
def parity(examined: Mapping[str, Examined], precision: str = "float32") -> tuple[str, str]:
    """Compare log-probabilities of the sampler and the loss; their ratio must be 1 before any update.

    Args:
      examined: by learning agent, from `of_forest`.
      precision: precision of the matrix products, see `choices.precision`.
    """
    if not examined:
        return "skipped", "no agent learns"
    largest, kl = TOLERANCES[precision]
    metrics = {agent: measured.diagnostics.values() for agent, measured in examined.items()}
    shown = by_agent({agent: f"{float(row['ratio_max_deviation']):.1e}" for agent, row in metrics.items()})
    text = f"the largest |policy / sampler - 1| of a token is: {shown}"
    bad = {
        agent: f"{float(row['approx_kl']):.1e}"
        for agent, row in metrics.items()
        if not (row["ratio_max_deviation"] <= largest and row["approx_kl"] <= kl)
    }
    if not bad:
        return "ok", f"{text} (rounding in {precision} explains {largest:g})"
    return "fail", (
        f"{text}, more than rounding in {precision} explains ({largest:g}); KL per token: {by_agent(bad)}; "
        "sampler and loss read different tokens or distributions: see the line on temperature, policy.dtype, "
        "sampling.dtype"
    )


@check("trained tokens")
def trained_tokens(examined: Mapping[str, Examined], meant: str = "") -> tuple[str, str]:
    """Check that completions and their EOS get gradient, and padding, prompts and feedback get none.

    ``meant``: why the loss may differ, for example because it follows the reference implementation.
    """
    if not examined:
        return "skipped", "no agent learns"
    faults = [
        f"{agent}: {text}" for agent, measured in examined.items() for text in _faults(measured.trained)
    ]
    sums = {
        field.name: sum(getattr(measured.trained, field.name) for measured in examined.values())
        for field in dataclasses.fields(Trained)
    }
    shown = ", ".join(f"{name} {reached} of {total}" for name, (reached, total) in _named(sums).items())
    if meant and faults:
        return "warn", f"with gradient: {shown}; {meant}"
    if faults:
        return "fail", f"{'; '.join(faults)}: the loss masks other tokens than the sampler drew (update/)"
    return "ok", f"with gradient: {shown}"


def _named(sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = {"tokens": "completion tokens", "endings": "EOS", "padding": "padding",
             "contexts": "prompt and feedback tokens"}  # fmt: skip
    return {names[name]: value for name, value in sums.items()}


def _faults(trained: Trained) -> list[str]:
    """Sentences about tokens of one agent that wrongly get gradient, or wrongly do not."""
    faults = []
    for name, (reached, total) in (("completion tokens", trained.tokens), ("EOS tokens", trained.endings)):
        if reached < total:
            faults.append(f"{total - reached} of {total} {name} get no gradient")
    for name, (reached, total) in (
        ("padded positions", trained.padding),
        ("prompt or feedback tokens", trained.contexts),
    ):
        if reached:
            faults.append(f"{reached} of {total} {name} get gradient")
    return faults


def _add(examined: dict[str, Examined], member: Member, trainable, config: LossConfig, batch: Batch) -> None:
    """Count the positions that get gradient in one batch, and merge its diagnostics."""
    packed = config.pack(batch, member.stack.layout.for_stack(batch.prompts_NBP.shape[0]).shards)
    agents = batch.agents or member.stack.agents
    for measured in microbatch_gradients(member.stack, config, member.base, trainable, packed):
        for n, agent in enumerate(agents):
            _count(examined[agent].trained, measured, n, member.stack.eos_ids)
            diagnostics = jax.tree.map(lambda x, n=n: x[n], measured.seen)
            before = examined[agent].diagnostics
            examined[agent].diagnostics = diagnostics if before is None else before.merge(diagnostics)


def _count(trained: Trained, measured: MicrobatchGradients, n: int, eos_ids: Sequence[int]) -> None:
    """Add the counts of one agent's rows in a micro-batch."""
    rows, norms_MW, prompts_BP = measured.rows, measured.norms.rows[n], measured.norms.prompts[n]
    predicts_MW, first_B = np.zeros(norms_MW.shape, bool), np.zeros(len(prompts_BP), bool)
    for m, s in np.argwhere(rows.lengths_MS[n] > 0):
        start, length, b = rows.starts_MS[n, m, s], rows.lengths_MS[n, m, s], rows.prompt_M[n, m]
        # A token is predicted by the features before it; the first token, by those at the end of the prompt.
        norms_L = np.concatenate([prompts_BP[b, -1:], norms_MW[m, start : start + length - 1]])
        needed_L = (rows.logprobs_MSL[n, m, s, :length] < UNSURE) | (norms_L > 0)
        trained.tokens += (int((norms_L > 0).sum()), int(needed_L.sum()))
        if rows.tokens_MW[n, m, start + length - 1] in eos_ids and needed_L[-1]:
            trained.endings += (int(norms_L[-1] > 0), 1)
        predicts_MW[m, start : start + length - 1] = True
        first_B[b] = True
    trained.padding += (int((norms_MW[~predicts_MW] > 0).sum()), int((~predicts_MW).sum()))
    others = [prompts_BP[:, :-1].ravel(), prompts_BP[~first_B, -1]]
    others += [] if measured.norms.shared is None else [measured.norms.shared[n]]
    trained.contexts += (sum(int((x > 0).sum()) for x in others), sum(x.size for x in others))


def _with_endings(batch: Batch, eos_id: int) -> Batch:
    """Replace the last token of each agent's first completion by an EOS with a high log-probability."""
    tokens_NRL, logprobs_NRL = batch.tokens_NRL.copy(), batch.logprobs_NRL.copy()
    for n, lengths_R in enumerate(batch.lengths_NR):
        r = int((lengths_R > 0).argmax())
        tokens_NRL[n, r, lengths_R[r] - 1] = eos_id
        logprobs_NRL[
            n, r, lengths_R[r] - 1
        ] = -0.01  # a ratio of at most 1.01: clipping cannot remove its gradient
    return batch.replace(tokens_NRL=tokens_NRL, logprobs_NRL=logprobs_NRL)
