"""Evaluate a team in memory, or that of a run folder, with the settings of a config."""

import contextlib
import math
from collections.abc import Callable, Sequence

import jax

from jaxmarl_llm import checkpoint, evaluation, saved_agents
from jaxmarl_llm import team as team_lib
from jaxmarl_llm.config import agent_settings, gate
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.config.task import EVALUATED
from jaxmarl_llm.config.team import agent_names, check_read
from jaxmarl_llm.evaluation import results, scores, sizes
from jaxmarl_llm.evaluation.votes import Vote
from jaxmarl_llm.factory import (
    chat_options,
    experts,
    gates,
    inputs,
    protocols,
    randomness,
    rollouts,
    sampler_calls,
    tasks,
    teams,
    tools,
    training,
)
from jaxmarl_llm.rollout.engines import LOCAL, Engine, LocalEngine
from jaxmarl_llm.utils import compile_times, console, device_memory
from jaxmarl_llm.utils.errors import UserError


def evaluate(
    config,
    team: team_lib.Team,
    trainables,
    task,
    items,
    samples: int,
    key: jax.Array,
    step: int = 0,
    memory=(),
    toolbox=None,
    alone: bool = True,
    **options,
) -> evaluation.Evaluations:
    """`evaluation.evaluate` with the run's sampling settings and protocol.

    ``key``: random key of the samples. A run has separate streams for validation and test (see
    `run_evaluations`); every other command uses "report", whose samples were not used to select a checkpoint.
    ``memory`` (lessons of earlier problems) and ``toolbox``: see `protocols.build`. ``alone``: False if other
    trainings of this process sample together with it. ``options``: others of `evaluation.evaluate`.
    """
    return evaluation.evaluate(
        team,
        trainables,
        task,
        items,
        key,
        params=training.sampling_params(config),
        samples=samples,
        protocol=lambda drawn: rollouts.RoomForPrograms(
            protocols.build(config, task, team, drawn, memory=memory, toolbox=toolbox)
        ),
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts=config.sampling.long_prompts,
        step=step,
        vote=Vote(config.eval.vote, config.eval.chains) if config.eval.vote else None,
        overlap=alone and _may_overlap(config, team, toolbox, options.get("engine", LOCAL)),
        reads=tools.first_reads(config, toolbox),
        **options,
    )


def _may_overlap(config, team: team_lib.Team, toolbox, engine: Engine) -> bool:
    """Whether a batch may be sampled while another is judged: only the local sampler and task are called."""
    own = jax.process_count() == 1 and not is_dotted(config.train.protocol)
    here = isinstance(engine, LocalEngine) and not any(member.remote for member in team.members)
    return own and here and toolbox is None and all(m.stack.layout.mesh is None for m in team.members)


def rows_per_batch(config, team: team_lib.Team, held, samples: int = 0, seeds: int = 1) -> int:
    """Most completions per agent in an evaluation batch, greedy ones included; see `sizes.items_that_fit`.

    Args:
      config: of the training, for whose sampler there is memory already.
      team: the agents.
      held: pytree of arrays that stay on the devices.
      samples: answers per problem; 0 for ``config.eval.samples``.
      seeds: number of runs that are trained together and share the memory.
    """
    answers, limit = (samples or config.eval.samples) + 1, device_memory.limit(jax.local_devices()[0])
    if limit is None:
        return answers * sizes.items_that_fit(0, 0, 0, None, answers)
    leaves = [x for x in jax.tree.leaves(held) if hasattr(x, "dtype")]
    held_bytes = sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in leaves)
    held = held_bytes, limit / seeds

    def items(stack: team_lib.Stack) -> int:
        of_item = sampler_calls.of_evaluation(config, stack.agents, 1, answers)
        caches = cache_bytes(config, stack, of_item), training_cache_bytes(config, stack)
        return sizes.items_that_fit(*caches, *held, answers)

    numbers = [items(member.stack) for member in team.members if not member.remote]
    return answers * min(numbers) if numbers else sizes.ROWS_PER_BATCH


def training_cache_bytes(config, stack: team_lib.Stack) -> float:
    """`cache_bytes` of the sampler calls of a training iteration."""
    group = config.train.group + config.train.partner_samples
    return cache_bytes(config, stack, sampler_calls.of_training(config, stack.agents, group))


def cache_bytes(config, stack: team_lib.Stack, calls: Sequence[sampler_calls.Call]) -> float:
    """Bytes of the KV cache on one device, for the largest of a stack's calls with answers of full length."""
    tokens = config.sampling.max_prompt_tokens, agent_settings.longest(config)
    policy = stack.sampler or stack.policy

    def of(call: sampler_calls.Call) -> float:
        rows = call.prompts, call.prompts * call.samples
        return sizes.cache_bytes(policy, stack.layout, len(call.agents), rows, tokens)

    return max(map(of, calls), default=0.0)


def shown_in(display: console.ProgressDisplay) -> dict[str, Callable]:
    """Options of `evaluation.evaluate` that show progress: items done, and steps of conversations."""
    return {
        "progress": lambda done, total: done < total and display.update(done, {}),
        "drawn": lambda steps: display.note(f"step {steps + 1} of the conversations"),
    }


def evaluate_run(
    config, workdir="", which=checkpoint.BEST, samples: int = 0, ks=(1,), split="test", agent_map=()
):
    """Evaluate the agents of a run, or the initial agents of a run with this config.

    Args:
      config: the team, its protocol and sampling, and the problems.
      workdir: run folder whose checkpoint is restored, or an exported team; empty for the untrained team.
      which: ``best``, ``latest`` or a step.
      samples: answers per problem; 0 for ``config.eval.samples``.
      ks: report pass@k for these, each within 1..samples.
      split: problems to answer, one of `EVALUATED`.
      agent_map: agents whose name in ``workdir`` is another, each as ``'aux1=aux'``; several may be one there.

    Returns:
      {"sampled": Evaluation, "greedy": Evaluation}, and the JSON data that `experiments.evaluate` writes.

    Raises:
      ValueError: for an invalid k, samples, map or checkpoint, before any model is loaded, and any error of
        loading.
    """
    check_read(config, workdir)
    names = agent_names(agent_map, config.team.agents, "--agent_map")
    if names and not workdir:
        raise UserError(f"--agent_map={tuple(agent_map)!r}: without a run there are no agents to take")
    config = chat_options.dated(config, workdir)
    samples = samples or config.eval.samples
    for k in ks:
        scores.pass_at_k(samples, 0, k)
    if config.eval.vote and samples < config.eval.chains:
        raise UserError(
            f"--samples={samples}: allowed is eval.chains={config.eval.chains} or more with "
            f"eval.vote={config.eval.vote!r}, or none of its votes could be held"
        )
    step = saved_agents.read_meta(workdir, which)["step"] if workdir else 0
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(tasks.build_executor(config))
        task = build_split(config, executor, split, experts.build_expert(config, workdir))
        toolbox = stack.enter_context(tools.opened(config, executor, task))
        speakers = experts.build(config, task.items, workdir)
        team = built = teams.build_team(config, speakers=speakers)
        if workdir:
            inputs.warn(workdir, lambda: inputs.of_run(config, {EVALUATED[split]: task}, built, toolbox))
            learners = [agent for agent in team.agents if team[agent].stack.learns] if names else None
            team, _ = saved_agents.restore_team(workdir, which, team, learners, names)
        teams.check_prompts(config, team, task, toolbox=toolbox)
        learned = [member.trainable for member in team.members]
        items = range(len(task.items))
        learned_by_run = protocols.saved_memory(config, workdir, step, team) if workdir else ()
        key = randomness.stream(config, "report")
        compiles = compile_times.of_process()
        with console.ProgressDisplay(
            len(items), label="problems", compiles=compiles, in_pairs=True
        ) as display:
            answers = evaluate(
                config, team, learned, task, items, samples, key, step, learned_by_run,
                rows_per_batch=rows_per_batch(config, team, [(m.base, m.trainable) for m in team.members], samples),
                **shown_in(display), toolbox=toolbox,
            )  # fmt: skip
        isolation = tasks.isolation(executor)
    by_mode = {mode: getattr(answers, mode) for mode in results.MODES}
    about = {
        "workdir": str(workdir) or None,
        "step": step,
        "state": _state(workdir, which),
        **({"agent_map": names} if names else {}),
        "split": split,
        "seed": config.seed,
        "models": {agent: team[agent].model_name for agent in team.agents},
        "problems": len(task.items),
        "task": config.task.to_dict(),
        "sampling": config.sampling.to_dict(),
        "model_options": config.model_options.to_dict(),
        "executor": isolation,
        "speed": answers.speed(),
        **({"gate": gates.metrics(config)} if gate.learns(config) else {}),
    }
    return by_mode, about | {mode: results.describe(each, ks) for mode, each in by_mode.items()}


def _state(workdir, which) -> str:
    """The description of the evaluated state."""
    if not workdir:
        return "untrained"
    return "exported" if saved_agents.is_team(workdir) else str(which)


def build_split(config, executor, split: str, expert=None):
    """The task with the problems of one of `EVALUATED`; ValueError for another ``split``.

    "validation" and "test" have their own sources, see `tasks.build_task`; "all" means all three splits of
    the test's source.
    """
    if split not in EVALUATED:
        raise UserError(f"--split={split!r}: allowed are {', '.join(EVALUATED)}")
    if split == "all":
        config = config.copy_and_resolve_references()
        config.task.test_split = "all"
    return tasks.build_task(config, executor, EVALUATED[split], expert)
