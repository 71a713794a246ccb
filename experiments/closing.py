"""What a run shows of itself: the plan before it starts, evaluations, closing table, summary and picture."""

import json
import math
import pathlib
import time

import jax

from configs import agent_settings, arithmetic, credit_checks, sft_checks
from experiments import ending
from experiments.ending import PARTS
from experiments.spending import MARKS
from jaxmarl_llm import checkpoint, files, metrics, plots, processes, run_checks
from jaxmarl_llm.report import page
from jaxmarl_llm.update import token_scores


def _megabytes(tree) -> float:
    """Of one device; of shapes that say not where they lie, all of them."""

    def held(x) -> int:
        return math.prod(x.sharding.shard_shape(x.shape) if x.sharding else x.shape) * x.dtype.itemsize

    return sum(map(held, jax.tree.leaves(tree))) / 1e6


def _devices(config) -> list[tuple[str, str]]:
    """How the arrays are cut, as a table row, if they are."""
    sizes = {axis: config.mesh[axis] for axis in ("agent", "data", "model")}
    if math.prod(sizes.values()) == 1:
        return []
    kinds = ", parameters along data too" if config.mesh.fsdp else ""
    cut = " x ".join(f"{size} {axis}" for axis, size in sizes.items())
    return [("devices", f"{cut}{kinds}; memory below is of one, of cache and logits of all")]


def memory(config, team, states) -> dict[str, float]:
    """MB that an iteration holds on one device, by what they are for; activations are not counted.

    ``states`` may hold shapes. Of cache and logits those of all devices are counted.
    """
    g, length = config.train.group + config.train.partner_samples, agent_settings.longest(config)
    nodes, members = arithmetic.nodes(config)[-1], [m for m in team.members if not m.remote]
    policies = [m.stack.policy.config for m in members]
    cache = sum(
        2 * p.n_layers * p.n_kv_heads * p.head_dim * 4 * len(m.stack.agents) * nodes
        * (g * length + config.sampling.max_prompt_tokens)
        for p, m in zip(policies, members, strict=True)
    ) / 1e6  # fmt: skip
    return {
        "base": sum(_megabytes(m.base) for m in members),
        "learned": sum(_megabytes(s.trainable) for s in states.values()),
        "optimizer": sum(_megabytes(s.opt_state) for s in states.values()),
        "cache": cache,
        "logits": 3 * _logits_tokens(team) * max((p.vocab_size for p in policies), default=0) * 4 / 1e6,
    }


def beside(models) -> tuple[float, float]:
    """MB of critics and the like, and of their optimizers; ``models`` are states, or shapes of them."""
    parts = ([getattr(s, part) for s in models.values()] for part in ("trainable", "opt_state"))
    return tuple(map(_megabytes, parts))


def _beside(models) -> list[tuple[str, str]]:
    """Memory of critics and the like, as a table row, if there are any."""
    if not models:
        return []
    learned, optimizer = beside(models)
    text = f"{learned:.1f} + {optimizer:.1f} MB, beside the agents"
    return [("memory: critics + optimizer", text)]


def _logits_tokens(team) -> int:
    """Tokens whose logits an update holds at a time."""
    return max((token_scores.CHUNK * len(m.stack.agents) for m in team.members if not m.remote), default=0)


def plan_rows(config, team, task, states, models) -> list[tuple[str, str]]:
    """The arithmetic of an iteration and the device memory it needs, before anything is compiled.

    ``models`` are the states of those that the system trains beside the agents.
    """
    c, b, size = config.train, config.train.prompts, memory(config, team, states)
    learners = ", ".join(agent for agent in team.agents if not team[agent].remote)
    return [
        *_answers(config, len(team.agents)),
        ("iterations", f"{c.steps}; {-(-len(task.items) // b)} are an epoch of {len(task.items)} problems")
        if c.system != sft_checks.SYSTEM
        else ("iterations", str(c.steps)),
        *_devices(config),
        ("memory: shared base", f"{size['base']:.0f} MB"),
        (
            "memory: learned + optimizer",
            f"{size['learned']:.0f} + {size['optimizer']:.0f} MB for {learners}",
        ),
        *_beside(models),
        ("memory: cache (sampling)", f"at most {size['cache']:.0f} MB"),
        (
            "memory: logits (update)",
            f"about {size['logits']:.0f} MB for {_logits_tokens(team)} tokens at a time",
        ),
    ]


def _answers(config, agents: int) -> list[tuple[str, str]]:
    """What is said, judged and learned from, as table rows; a protocol of the user's own decides that."""
    c, nodes = config.train, arithmetic.nodes(config)
    if c.system == sft_checks.SYSTEM:
        read = f"{config.sft.batch} x {agents}: texts of up to {config.sampling.max_new_tokens} tokens"
        return [("demonstrations x agents", read), ("optimizer steps", f"{c.minibatches} per agent")]
    if credit_checks.is_dotted(c.protocol):
        return [("who speaks when", f"{c.protocol}, for {c.prompts} problems")]
    drawn = arithmetic.completions(config) - arithmetic.counterfactual_completions(config)
    made = f"{drawn} completions, up to {agent_settings.longest(config)} tokens"
    samples = f"({c.group} + {c.partner_samples})" if c.partner_samples else c.group
    return [
        (
            f"{'problems' if c.turns == 1 else 'nodes of each turn'} x agents x samples",
            f"{' + '.join(map(str, nodes))} x {agents} x {samples}: {made}",
        ),
        ("joint answers judged", f"{arithmetic.joint_answers(config)} ({c.joint_mode}), equal ones once"),
        *_counterfactuals(config),
        ("optimizer steps", f"{c.minibatches} per agent, on {arithmetic.learned(config)} completions each"),
    ]


def _counterfactuals(config) -> list[tuple[str, str]]:
    """What is judged besides, as a table row, if anything is."""
    if not config.train.counterfactual:
        return []
    drawn = arithmetic.counterfactual_completions(config)
    said = f"up to {arithmetic.counterfactual_answers(config)} more, {drawn} completions drawn for them"
    return [(f"without an agent's part ({config.train.counterfactual})", said)]


def headline(values: dict, agents) -> dict[str, float]:
    """The few numbers of an iteration that fit on a line."""
    names = {f"train/{part}": part for part in PARTS}
    names |= {f"{agent}/completion_length": f"{agent} tokens" for agent in agents}
    if "sft/tokens" in values:
        names |= {f"{agent}/loss": f"{agent} loss" for agent in agents}
    return {short: values[name] for name, short in names.items() if name in values} | {"s": values["seconds"]}


def eval_metrics(sampled: dict, greedy: dict, prefix: str = "eval") -> dict[str, float]:
    """Metric names of an evaluation: ``eval/...`` sampled, ``eval_greedy/...`` greedy, numbers only.

    prefix: "eval" of validation, "test" of the test.
    """
    row = {f"{prefix}/{k}": v for k, v in sampled.items() if isinstance(v, (int, float))}
    row |= {f"{prefix}_greedy/{k}": v for k, v in greedy.items() if isinstance(v, (int, float))}
    return row | {f"{prefix}/return_greedy": greedy["return"]}


def entry(values: dict, step: int, prefix: str = "test") -> dict:
    """An evaluation as it stands in summary.json: sampled parts, their interval, and the greedy return."""
    start = f"{prefix}/"
    found = {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
    return {"step": step, **found}


def eval_line(title: str, found: dict) -> str:
    """One line for an evaluation; in brackets the 95 % interval over the problems."""
    sampled = f"{found['return']:.1f} [{found['return_low']:.1f}, {found['return_high']:.1f}] sampled"
    return f"{title}: return {sampled}, {found['return_greedy']:.1f} greedy"


def read_json(path: pathlib.Path) -> dict:
    """What a file of a run folder says; {} if it is not there."""
    return json.loads(path.read_text()) if path.is_file() else {}


def read_summary(folder, start: int) -> dict:
    """The summary of a run that is resumed at iteration ``start``; what is done again is forgotten."""
    saved = read_json(pathlib.Path(folder) / "summary.json")
    kept = {n: saved[n] for n in ("before", "warm", "warm_up_seconds") if start > 0 and n in saved}
    kept |= {mark: saved[mark] for mark in MARKS if mark in saved and saved[mark]["step"] <= start}
    best, place = saved.get("best", {}), pathlib.Path(folder) / "checkpoints"
    if best.get("step", math.inf) <= start and checkpoint.saved_steps(place / checkpoint.BEST):
        # A kill may have come between this entry and its checkpoint.
        if checkpoint.read_meta(place, checkpoint.BEST)["step"] == best["step"]:
            kept["best"] = {name: best[name] for name in ("step", "validation_return") if name in best}
    return kept | {"seconds": saved.get("seconds", 0.0), "resumed": time.time()}


def seconds(summary: dict) -> float:
    """How long a run has lasted, earlier sessions included, of its summary while it runs."""
    return summary["seconds"] + time.time() - summary["resumed"]


def write_summary(run) -> None:
    """Write summary.json with the seconds spent so far, earlier sessions included."""
    run.summary |= {"seconds": seconds(run.summary), "resumed": time.time()}
    shown = {k: v for k, v in run.summary.items() if k != "resumed"} | {"seed": run.config.seed}
    for name in {"before", "warm", "best", "after", *MARKS} & set(shown):
        # JSON knows no NaN; what an earlier session wrote holds None in its place.
        shown[name] = {k: None if v is None or not math.isfinite(v) else v for k, v in shown[name].items()}
    files.atomic_write_text(run.books / "summary.json", json.dumps(shown, indent=2) + "\n")


def finished(config, folder) -> dict:
    """Show and return the summary of a run that has done all its iterations; {} if there is more to do.

    ValueError if the run was made with another config.
    """
    folder = pathlib.Path(folder)
    saved, summary = read_json(folder / "config.json"), read_json(folder / "summary.json")
    if not saved or "after" not in summary:
        return {}
    run_checks.check_same_run(saved, config.to_dict())
    if not complete(config, summary):
        return {}
    ending.show(summary, folder)
    constant = config.train.decay == "constant"
    more = "a larger train.steps goes on from here" if constant else "its learning rate has decayed"
    print(f"the run in {folder} is finished; nothing was done ({more})")
    return summary


def complete(config, summary: dict) -> bool:
    """Whether a run with this summary has done all iterations, spent its budgets or lasted long enough."""
    if "after" not in summary:
        return False
    budgets = [mark for mark, (field, _) in MARKS.items() if config.train[field]]
    spent = bool(budgets) and all(mark in summary for mark in budgets)
    limit = 60 * config.train.max_minutes or math.inf
    return summary["after"]["step"] == config.train.steps or spent or summary["seconds"] >= limit


def minutes(summary: dict) -> str:
    """How long a run took, its warm-up apart."""
    text = f"{summary['seconds'] / 60:.1f} minutes"
    warm_up = summary.get("warm_up_seconds")
    return text if warm_up is None else f"{text} after {warm_up / 60:.1f} of warm-up"


def finish(run) -> dict:
    """Evaluate, save, draw the curve, print the table before/after; returns the summary."""
    run.save(run.done)
    print(run.evaluate(run.done), flush=True)
    run.test_after()
    ending.show(run.summary, run.books)
    rows = metrics.read_metrics(run.books)
    picture = plots.learning_curve(rows, run.books / "plots" / "learning_curve.png")
    shown = f"; a report: {write_report(run)}" if run.config.log.report and processes.first() else ""
    print(f"{minutes(run.summary)}; summary.json, transcripts and {picture.name} in {run.books}{shown}")
    return run.summary


def write_report(run) -> pathlib.Path:
    """Write report.html, with the answers of the evaluations on the test; its path."""
    evaluations = (run.folder / ending.FOLDER / f"{name}.json" for name in ("before", "warm", "after"))
    return page.write([run.folder], evaluations=[path for path in evaluations if path.is_file()])[0]
