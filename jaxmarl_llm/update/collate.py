"""Convert the turns of a forest to the arrays of an update."""

import collections
import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes, pad_team, padded_size
from jaxmarl_llm.sampling.stems import pad_with_stems, rows_per_stem, stem_length
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update.batches import Batch
from jaxmarl_llm.utils.errors import UserError


def of_learners(
    forest: Forest,
    advantages_R: np.ndarray | Sequence[np.ndarray],
    stack: Stack,
    sampling: SamplingParams,
    pad_id: int = 0,
    learners: Sequence[str] | None = None,
    prompt_sizes: Sizes | None = None,
    all_turns: int = 0,
    period: int = 0,
    teachers: Sequence | None = None,
    held_together: Callable[[int, int], int] | None = None,
) -> tuple[Batch, ...]:
    """`collate` for the ``learners`` of a stack (None: all); other sampling settings make a separate batch.

    Each batch holds the sampling settings of its agents (None if all agents of the team have the same), and
    has room for their longest completion.
    """
    chosen = stack.agents if learners is None else [agent for agent in stack.agents if agent in learners]
    all_batches: list[Batch] = []
    for params, agents in sampling.alike(chosen).items():
        fixed = forest, advantages_R, stack, params.max_new_tokens
        batches = collate(*fixed, pad_id, prompt_sizes, agents, all_turns, period, teachers, held_together)
        all_batches += [batch.replace(sampling=params) if sampling.agents else batch for batch in batches]
    return (
        _of_one_width(all_batches)
        if all_batches and prompt_sizes and prompt_sizes.ladder
        else tuple(all_batches)
    )


def _of_one_width(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Batches whose prompts are all padded to the widest.

    An update then needs one program per width of the ladder, not per combination of widths in several turns.
    """
    most = max(batch.prompts_NBP.shape[-1] for batch in batches)
    missing = [most - batch.prompts_NBP.shape[-1] for batch in batches]
    padded = [np.pad(b.prompts_NBP, ((0, 0), (0, 0), (n, 0))) for b, n in zip(batches, missing, strict=True)]
    return tuple(b.replace(prompts_NBP=prompts) for b, prompts in zip(batches, padded, strict=True))


def collate(
    forest: Forest,
    advantages_R: np.ndarray | Sequence[np.ndarray],
    stack: Stack,
    max_new_tokens: int,
    pad_id: int = 0,
    prompt_sizes: Sizes | None = None,
    agents: Sequence[str] | None = None,
    all_turns: int = 0,
    period: int = 0,
    teachers: Sequence | None = None,
    held_together: Callable[[int, int], int] | None = None,
) -> tuple[Batch, ...]:
    """Batches of a stack's turns: one per stage (`Turn.stage`) and set of agents with equal sample counts.

    () if none of the agents has a turn. Only turns of ``agents`` (None: of all) are used, without samples
    that no agent learns from (`Turn.extra`). Advantages are by turn id: all numbers, or all arrays with one
    number per token (L',).

    Tokens beyond a length are ``pad_id``; only the ``comlrl_compat`` loss reads them. If fewer answers than
    possible got a next turn, groups of length 0 fill the batch up to a `padded_size`. ``prompt_sizes``: the
    sizes that prompts are padded to, see `padding.pad_team`. ``all_turns``: T for episodes, which may end in
    any turn. The batches are then those of all T turns, each as large as if no episode had ended earlier;
    groups of length 0 replace missing ones. 0: only turns that exist. ``period``: if not all agents answer in
    every turn, the number of turns after which the same agents answer again. Batches of the same agents are
    then adjacent, so that `step` can combine those of equal shapes. ``teachers``: by turn id, ids and
    log-probabilities (L', K) of a teacher's likeliest tokens (`Batch`); None: no teacher. ``held_together``:
    (prompts, samples per prompt) -> how many prompts an update holds in memory together
    (`LossConfig.held_together`). Among these, prompts that extend the same earlier prompt share it
    (`sampling.stems`). None: no prompts share stems.

    Raises:
      ValueError: if an agent has requests with different numbers of samples within one turn index.
    """
    batches_of: dict[int, list[Batch]] = {}  # by turn
    most_prompts = len(forest.items)
    for stage in stages(forest):
        turns_of: dict[str, list] = {agent: [] for agent in agents or stack.agents}
        for turn in forest.turns:
            if turn.stage == stage and turn.agent in turns_of and not turn.extra:
                turns_of[turn.agent].append(turn)
        agents_by_counts: dict[tuple, list[str]] = {}
        for agent, turns in turns_of.items():
            counts = collections.Counter(turn.request for turn in turns)
            if len(set(counts.values())) > 1:
                raise UserError(
                    f"agent {agent!r} was asked for different numbers of samples in turn {stage[0]}: "
                    f"{', '.join(map(str, counts.values()))}; its groups must be of one size"
                )
            if turns:
                agents_by_counts.setdefault((len(turns), len(counts)), []).append(agent)
        for (n_turns, n_prompts), names in agents_by_counts.items():
            size = padded_size(n_prompts, most_prompts if all_turns else len(forest.items), most_prompts)
            shape = (size, n_turns // n_prompts, max_new_tokens)
            turns = {agent: turns_of[agent] for agent in names}
            together = held_together(*shape[:2]) if held_together else 1
            stems_N = [_stem_lengths(forest, own) for own in turns.values()] if together > 1 else None
            batch = _collate(turns, advantages_R, shape, pad_id, prompt_sizes, stems_N, together)
            batch = batch if teachers is None else _taught(batch, turns, teachers)
            whole = len(names) == len(stack.agents)
            of_turn = batches_of.setdefault(stage[0], [])
            of_turn.append(batch if whole else batch.replace(agents=tuple(names)))
        most_prompts = _most_prompts(forest, stage[0] + 1, all_turns > 0)
    last = stages(forest)[-1][0]
    if period:
        for turn in range(last + 1, all_turns):
            batches_of[turn] = [_emptied(batch) for batch in batches_of.get(max(turn - period, 0), ())]
    batches = [batch for of_turn in batches_of.values() for batch in of_turn]
    if not batches:
        return ()
    if period:
        return tuple(sorted(batches, key=lambda batch: batch.agents or ()))
    missing = all_turns - 1 - last if all_turns else 0
    return (*batches, *[_emptied(batches[-1])] * missing)


def _taught(batch: Batch, turns_of: dict[str, list], teachers: Sequence) -> Batch:
    """The batch of `_collate` with the teachers of its turns."""
    shape_NRLK = (*batch.tokens_NRL.shape, teachers[0][0].shape[-1])
    ids_NRLK, logprobs_NRLK = np.zeros(shape_NRLK, np.int32), np.full(shape_NRLK, -np.inf, np.float32)
    for n, turns in enumerate(turns_of.values()):
        for r, turn in enumerate(turns):
            end = len(turn.completion)
            ids_NRLK[n, r, :end], logprobs_NRLK[n, r, :end] = teachers[turn.id]
    return batch.replace(teacher_ids_NRLK=ids_NRLK, teacher_logprobs_NRLK=logprobs_NRLK)


def _emptied(batch: Batch) -> Batch:
    """A batch of the same shapes with nothing to learn."""
    nothing = {name: np.zeros_like(getattr(batch, name)) for name in ("lengths_NR", "advantages_NR")}
    return batch.replace(**nothing)


def _most_prompts(forest: Forest, turn: int, whole: bool) -> int:
    """An agent's prompts in a turn if all answers of the previous turn (``whole``: of all turns) went on."""
    nodes_of: dict[int, list[int]] = {}
    for joint in forest.joints:
        nodes_of.setdefault(joint.turn, []).append(joint.node)
    if not whole:
        return max(len(forest.items), len(nodes_of.get(turn - 1, ())))
    sizes = [len(nodes_of[t]) // len(set(nodes_of[t])) for t in range(turn) if t in nodes_of]
    return len(forest.items) * math.prod(sizes)


def stages(forest: Forest) -> list[tuple[int, str]]:
    """The stages of a forest in the order in which they were sampled."""
    first_step: dict[tuple[int, str], int] = {}
    for turn in forest.turns:
        first_step[turn.stage] = min(turn.step, first_step.get(turn.stage, turn.step))
    return sorted(first_step, key=lambda stage: (stage[0], first_step[stage]))


def _collate(
    turns_of: dict[str, list],
    advantages_R: np.ndarray | Sequence[np.ndarray],
    shape: tuple[int, int, int],
    pad_id: int,
    prompt_sizes: Sizes | None,
    stems_N: Sequence[Sequence[int]] | None,
    together: int,
) -> Batch:
    """Turns of N agents as arrays, shape = (B, G, L); row b * G + g is sample g of the b-th prompt.

    ``stems_N``: as in `stems.pad_with_stems`; prompts share no stems if it is None, or if no two adjacent
    ones of ``together`` have a common stem.
    """
    size, samples, max_new_tokens = shape
    prompts = [[t.prompt for t in turns if t.sample == 0] for turns in turns_of.values()]
    filled = [agent_prompts + agent_prompts[:1] * (size - len(agent_prompts)) for agent_prompts in prompts]
    as_lists = stems_N and [[prompt.tolist() for prompt in agent_prompts] for agent_prompts in filled]
    if stems_N and math.gcd(together, rows_per_stem(as_lists, stems_N)) > 1:
        prompts_NBP, lengths_NB, shared, stems = pad_with_stems(as_lists, stems_N, prompt_sizes, turns_of)
    else:
        (prompts_NBP, lengths_NB, shared), stems = pad_team(filled, prompt_sizes, turns_of), None
    shape_NRL = (len(turns_of), size * samples, max_new_tokens)
    tokens_NRL, logprobs_NRL = np.full(shape_NRL, pad_id, np.int32), np.zeros(shape_NRL, np.float32)
    by_token = np.ndim(advantages_R[0]) == 1
    lengths_NR = np.zeros(shape_NRL[:2], np.int32)
    advantages_NR = np.zeros(shape_NRL if by_token else shape_NRL[:2], np.float32)
    finished_NR = np.zeros(shape_NRL[:2], bool)
    for n, turns in enumerate(turns_of.values()):
        for r, turn in enumerate(turns):
            end = len(turn.completion)
            tokens_NRL[n, r, :end], logprobs_NRL[n, r, :end] = turn.completion, turn.logprobs
            lengths_NR[n, r] = end
            advantages_NR[(n, r, slice(end)) if by_token else (n, r)] = advantages_R[turn.id]
            finished_NR[n, r] = turn.finished
    completion_arrays = lengths_NR, logprobs_NRL, advantages_NR
    return Batch(prompts_NBP, lengths_NB, tokens_NRL, *completion_arrays, shared, finished_NR, stems=stems)


def _stem_lengths(forest: Forest, turns: Sequence) -> list[int]:
    """Number of leading tokens of each request's prompt that are the prompt of its parent turn; 0: none."""
    lengths = []
    for turn in turns:
        if turn.sample == 0:
            earlier = None if turn.parent is None else forest.turns[turn.parent]
            own = earlier is not None and earlier.agent == turn.agent
            lengths.append(stem_length(turn.prompt.tolist(), earlier.prompt.tolist()) if own else 0)
    return lengths
