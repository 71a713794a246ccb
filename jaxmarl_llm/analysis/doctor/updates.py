"""Does the update see the tokens as they were drawn, and does it train them and no others?"""

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

# Largest |ratio - 1| of any token, and KL(sampler || trainer) in nats per token, that rounding explains.
TOLERANCES = {
    "float32": (0.002, 1e-6),
    "tensorfloat32": (0.1, 1e-4),
    "float16": (0.2, 1e-3),
    "bfloat16": (1.0, 5e-3),
}
UNSURE = -1e-3  # log-probability below which a token must get gradient; to surer ones rounding may leave none


@dataclasses.dataclass
class Trained:
    """Positions that one agent's loss reached: how many there are of each kind, and how many have a gradient.

    endings are the last tokens of completions that an EOS ended; first tokens of completions are predicted by
    the end of their prompt, and count with it: ``contexts`` are all other positions of prompts.
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
    """Run the loss on batches of a stack, every completion with advantage 1, and see what it reaches.

    Args:
      member, trainable: the stack, and its parameters now.
      config: of the loss.
      batches: from `batches.collate`.

    Returns:
      By agent. Where no completion of an agent ended with an EOS, one is put in place of its last token, for
      the count of the endings alone.
    """
    found, planted = ({agent: Examined() for agent in member.stack.agents} for _ in range(2))
    batches = [batch.replace(advantages_NR=np.ones_like(batch.advantages_NR)) for batch in batches]
    for batch in batches:
        _add(found, member, trainable, config, batch)
    for batch in batches:
        if not all(found[agent].trained.endings[1] for agent in batch.agents or member.stack.agents):
            _add(planted, member, trainable, config, _with_endings(batch, member.stack.eos_ids[0]))
    for agent, seen in found.items():
        if not seen.trained.endings[1]:
            seen.trained.endings = planted[agent].trained.endings
    return found


def of_forest(team, trainables, config: LossConfig, forest: Forest) -> dict[str, Examined]:
    """`examine` of every agent that learns, on the turns of a forest."""
    found = {}
    for member, trainable in zip(team.members, trainables, strict=True):
        if trainable is None:
            continue
        advantages_R = np.ones(len(forest.turns), np.float32)
        pad_id = member.tokenizer.pad_id
        batches = of_learners(forest, advantages_R, member.stack, config.sampling, pad_id)
        found |= examine(member, trainable, config, batches)
    return found


@check("log-prob parity")
def parity(found: Mapping[str, Examined], precision: str = "float32") -> tuple[str, str]:
    """Log-probabilities of the sampler against those of the loss; their ratio must be 1 before any update.

    Args:
      found: by agent that learns.
      precision: of the products, see `choices.precision`.
    """
    if not found:
        return "skipped", "no agent learns"
    largest, kl = TOLERANCES[precision]
    numbers = {agent: seen.diagnostics.values() for agent, seen in found.items()}
    shown = by_agent({agent: f"{float(row['ratio_max_deviation']):.1e}" for agent, row in numbers.items()})
    text = f"the largest |policy / sampler - 1| of a token is: {shown}"
    bad = {
        agent: f"{float(row['approx_kl']):.1e}"
        for agent, row in numbers.items()
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
def trained_tokens(found: Mapping[str, Examined], meant: str = "") -> tuple[str, str]:
    """Completions and their EOS get gradient; padding, prompts and feedback get none.

    ``meant``: why the loss may do otherwise, such as that it is the reference implementation's.
    """
    if not found:
        return "skipped", "no agent learns"
    bad = [f"{agent}: {text}" for agent, seen in found.items() for text in _faults(seen.trained)]
    sums = {
        field.name: sum(getattr(seen.trained, field.name) for seen in found.values())
        for field in dataclasses.fields(Trained)
    }
    shown = ", ".join(f"{name} {got} of {of}" for name, (got, of) in _named(sums).items())
    if meant and bad:
        return "warn", f"with gradient: {shown}; {meant}"
    if bad:
        return "fail", f"{'; '.join(bad)}: the loss masks other tokens than the sampler drew (update/)"
    return "ok", f"with gradient: {shown}"


def _named(sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = {"tokens": "completion tokens", "endings": "EOS", "padding": "padding",
             "contexts": "prompt and feedback tokens"}  # fmt: skip
    return {names[name]: value for name, value in sums.items()}


def _faults(seen: Trained) -> list[str]:
    """List what is wrong with the positions that one agent's loss reaches."""
    found = []
    for name, (got, of) in (("completion tokens", seen.tokens), ("EOS tokens", seen.endings)):
        if got < of:
            found.append(f"{of - got} of {of} {name} get no gradient")
    for name, (got, of) in (("padded positions", seen.padding), ("prompt or feedback tokens", seen.contexts)):
        if got:
            found.append(f"{got} of {of} {name} get gradient")
    return found


def _add(found: dict[str, Examined], member: Member, trainable, config: LossConfig, batch: Batch) -> None:
    """Count what the loss reaches in one batch."""
    packed = config.pack(batch, member.stack.layout.for_stack(batch.prompts_NBP.shape[0]).shards)
    names = batch.agents or member.stack.agents
    for measured in microbatch_gradients(member.stack, config, member.base, trainable, packed):
        for n, agent in enumerate(names):
            _count(found[agent].trained, measured, n, member.stack.eos_ids)
            seen = jax.tree.map(lambda x, n=n: x[n], measured.seen)
            before = found[agent].diagnostics
            found[agent].diagnostics = seen if before is None else before.merge(seen)


def _count(seen: Trained, measured: MicrobatchGradients, n: int, eos_ids: Sequence[int]) -> None:
    """Add what one agent's rows show."""
    rows, norms_MW, prompts_BP = measured.rows, measured.norms.rows[n], measured.norms.prompts[n]
    predicts_MW, first_B = np.zeros(norms_MW.shape, bool), np.zeros(len(prompts_BP), bool)
    for m, s in np.argwhere(rows.lengths_MS[n] > 0):
        start, length, b = rows.starts_MS[n, m, s], rows.lengths_MS[n, m, s], rows.prompt_M[n, m]
        # The token at a place is predicted by the features before it, the first by those of the prompt's end.
        norms_L = np.concatenate([prompts_BP[b, -1:], norms_MW[m, start : start + length - 1]])
        needed_L = (rows.logprobs_MSL[n, m, s, :length] < UNSURE) | (norms_L > 0)
        seen.tokens += (int((norms_L > 0).sum()), int(needed_L.sum()))
        if rows.tokens_MW[n, m, start + length - 1] in eos_ids and needed_L[-1]:
            seen.endings += (int(norms_L[-1] > 0), 1)
        predicts_MW[m, start : start + length - 1] = True
        first_B[b] = True
    seen.padding += (int((norms_MW[~predicts_MW] > 0).sum()), int((~predicts_MW).sum()))
    others = [prompts_BP[:, :-1].ravel(), prompts_BP[~first_B, -1]]
    others += [] if measured.norms.shared is None else [measured.norms.shared[n]]
    seen.contexts += (sum(int((x > 0).sum()) for x in others), sum(x.size for x in others))


def _with_endings(batch: Batch, eos_id: int) -> Batch:
    """Put an EOS in place of the last token of each agent's first completion, as if it had been likely."""
    tokens_NRL, logprobs_NRL = batch.tokens_NRL.copy(), batch.logprobs_NRL.copy()
    for n, lengths_R in enumerate(batch.lengths_NR):
        r = int((lengths_R > 0).argmax())
        tokens_NRL[n, r, lengths_R[r] - 1] = eos_id
        logprobs_NRL[
            n, r, lengths_R[r] - 1
        ] = -0.01  # a ratio of at most 1.01: no clip takes its gradient away
    return batch.replace(tokens_NRL=tokens_NRL, logprobs_NRL=logprobs_NRL)
