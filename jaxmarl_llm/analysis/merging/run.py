"""Run a merge: from its members to the result's folder, an exported team (`saved_agents`) with merge.json."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence

from jaxmarl_llm import adapters, saved_agents
from jaxmarl_llm.analysis.merging import members, methods, stage
from jaxmarl_llm.analysis.merging.members import Source
from jaxmarl_llm.analysis.merging.methods import Form, Member, Merged, Settings
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.programs import searches
from jaxmarl_llm.runs import agent_export
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import merging

FILE = "merge.json"
ADAPTER, FULL = "adapter", "full"
FORMS = (ADAPTER, FULL)
BASE = "base"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The requested output.

    Attributes:
      form: `ADAPTER`, or full weights.
      rank: rank of the adapters; 0: the lowest without loss, for TIES and DARE the sum of the members' ranks.
      samples: answers per problem; 0: as in the config.
      report: what is measured on the test: ``all`` (the base, the members and the result), only the
        ``result``, or ``none``.
    """

    form: str = ADAPTER
    rank: int = 0
    samples: int = 0
    report: str = "all"


def merge(
    config, sources: Sequence[Source], settings: Settings, out, wanted: Wanted | None = None,
    tell: Callable[[str], None] = print,
) -> dict:  # fmt: skip
    """Merge the members, write the result to a new folder; return the content of merge.json.

    Args:
      config: the result's team and problems; ``team.mode``, ``rank``, ``alpha`` and ``targets`` are the
        members'.
      sources: the members, see `members`.
      settings: the method.
      out: folder to create; it is written completely or not at all.
      wanted: what is written and measured.
      tell: prints a line.

    Raises:
      UserError: for members that cannot be merged, an invalid rank, and what loading raises.
    """
    wanted = wanted or Wanted()
    members.check(config, sources)
    methods.check(settings, len(sources))
    _check(config, sources, settings, wanted)
    config = _fitting(config)
    scored = settings.needs_scores or wanted.report != "none"
    with stage.opened(config, scored, wanted.samples) as open_stage:
        held = open_stage.team.members[open_stage.place]
        vectors = members.read(config, sources, open_stage.team, held)
        form = _form(vectors, sources, settings, wanted)
        frame = _frame(open_stage, sources, vectors[0], form)

        def score(candidate: Member) -> float:
            value = stage.validation_score(open_stage, stage.with_vectors(open_stage, frame, candidate))
            tell(f"validation return {value:.1f}")
            return value

        merged = methods.merge(vectors, settings, form, score)
        rows = {}
        if wanted.report != "none":
            nothing = {agent: merging.scaled(vector, 0.0) for agent, vector in vectors[0].items()}
            every = {BASE: nothing, **dict(zip((s.name for s in sources), vectors, strict=True))}
            every = every if wanted.report == "all" else {}
            for name, own in {**every, settings.method: merged.vectors}.items():
                rows[name] = stage.report(open_stage, stage.with_vectors(open_stage, frame, own))
                tell(f"test return {rows[name]['sampled']['scores']['return']['mean']:.1f}: {name}")
        facts = _facts(config, sources, settings, wanted, form, merged, open_stage, rows)
        write(open_stage, sources, merged.vectors, form, out, facts)
    return facts


def join(config, sources: Sequence[Source], out) -> dict:
    """Write one team whose agents are the members, in their order; return the content of merge.json.

    UserError unless there are as many members as local agents.
    """
    agents = members.learners(config)
    if len(agents) != len(sources):
        raise UserError(
            f"--method=join: {len(sources)} members, and team.agents has {len(agents)} of ours; allowed is one each"
        )
    members.check(config, sources)
    config = _fitting(config)
    with stage.opened(config, False, 0) as open_stage:
        read = members.read(config, sources, open_stage.team, open_stage.team.members[open_stage.place])
        vectors = {agent: member[agent] for agent, member in zip(agents, read, strict=True)}
        form = Form(None if sources[0].whole else max(source.rank for source in sources))
        pairs = zip(agents, sources, strict=True)
        facts = {"method": "join", "members": {agent: str(source.folder) for agent, source in pairs}}
        write(open_stage, sources, vectors, form, out, facts)
    return facts


def _check(config, sources: Sequence[Source], settings: Settings, wanted: Wanted) -> None:
    """UserError, before anything is loaded, for what cannot be scored, kept or written."""
    if searches(config):
        raise UserError(
            f"train.protocol={config.train.protocol!r}: it searches for programs, which no merge scores"
        )
    if sources[0].whole and (wanted.form == ADAPTER or wanted.rank):
        raise UserError(
            "the members have whole weights, of which no adapters are made; allowed is --form=full"
        )
    if wanted.form == FULL and wanted.rank:
        raise UserError(f"--rank={wanted.rank}: weights in full have no rank; allowed is 0")
    if wanted.form == FULL and config.model_options.quantize:
        raise UserError(
            f"--form=full: the base is quantised, model_options.quantize={config.model_options.quantize!r}; allowed is "
            "--form=adapter"
        )


def _fitting(config):
    """The config for reading members: adapters, which are not kept, no initial run and no warm-up."""
    changed = config.copy_and_resolve_references()
    changed.team.mode, changed.team.begin, changed.warm_up.steps = "adapters", "", 0
    changed.team.begin_map, changed.team.begin_step, changed.warm_up.folder = (), "latest", ""
    return changed


def _form(vectors: Sequence[Member], sources: Sequence[Source], settings: Settings, wanted: Wanted) -> Form:
    """The form of the result; UserError for a rank above that of the sum of the members."""
    if wanted.form == FULL:
        return Form(None)
    maps = next(iter(vectors[0].values())).factors
    sides = max(min(a.shape[-2], b.shape[-1]) for a, b in maps.values())
    together = min(sum(source.rank for source in sources), sides)
    most = sides if settings.method in ("ties", "dare") else together
    if wanted.rank > most:
        raise UserError(f"--rank={wanted.rank}: the members merged by {settings.method} have 1 to {most}")
    return Form(wanted.rank or together)


def _frame(open_stage: stage.Stage, sources: Sequence[Source], vectors: Member, form: Form):
    """The team member for scoring: with full weights, or adapters of the largest rank that occurs."""
    held = open_stage.team.members[open_stage.place]
    first = _first(sources, vectors, form)
    rank = max([form.rank or 0, *(source.rank for source in sources)])
    return members.framed(held, held.stack.agents, first, rank, open_stage.config.train.param_dtype)


def _first(sources: Sequence[Source], vectors: Member, form: Form) -> Source:
    """The first member in the result's form, with its adapters' targets, which PEFT folders do not state."""
    known = {"mode": "full"} if form.rank is None else {"targets": targets_of(vectors)}
    return dataclasses.replace(sources[0], saved=sources[0].saved | known)


def write(
    open_stage: stage.Stage, sources: Sequence[Source], vectors: Member, form: Form, out, facts: dict
) -> None:
    """Write the agents with these task vectors as an exported team, with merge.json beside it."""
    held, config = open_stage.team.members[open_stage.place], open_stage.config.copy_and_resolve_references()
    rank = max((vector.rank for vector in vectors.values() if form.rank), default=0)
    first = _first(sources, vectors, form)
    frame = members.framed(held, held.stack.agents, first, rank, "float32")
    if not agent_export.base_name(held.model_name):  # then the base is written too
        frame = dataclasses.replace(frame, base=quantised.in_full(frame.base))
    config.team.mode = frame.stack.mode
    if form.rank:
        config.team.rank, config.team.alpha = rank, float(frame.stack.adapter_scale * rank)
        config.team.targets = targets_of(vectors)
    validate(config, f"the config of {out}")
    extra = {FILE: json.dumps(facts, indent=1) + "\n"}
    team = stage.with_vectors(open_stage, frame, vectors)
    agent_export.write_team(
        team, config, {"step": 0}, pathlib.Path(out), lambda held: card(facts, held), extra=extra
    )


def targets_of(vectors: Member) -> tuple[str, ...]:
    """The linear maps that have adapters, in the order of `adapters.TARGETS`."""
    held = {path[-1] for path, _ in next(iter(vectors.values())).places()}
    return tuple(target for target in adapters.TARGETS if target in held)


def _facts(
    config, sources: Sequence[Source], settings: Settings, wanted: Wanted, form: Form, merged: Merged,
    open_stage: stage.Stage, rows: dict,
) -> dict:  # fmt: skip
    """The content of merge.json: the members, how they were merged, the cost of choosing, the scores."""
    method = methods.METHODS[settings.method]
    weights = merged.weights or (None,) * len(sources)
    read = {name: getattr(settings, name) for name in (methods.TRIALS, methods.SEED) if name in method.reads}
    if methods.DENSITY in method.reads:
        read[methods.DENSITY] = settings.density or method.density
    entries = [
        {"name": s.name, "folder": str(s.folder), "checkpoint": str(s.which), "rank": s.rank, "weight": w}
        for s, w in zip(sources, weights, strict=True)
    ]
    lost = {
        agent: {"norm": one.rest, "of": one.whole, "share": one.share} for agent, one in merged.lost.items()
    }
    rank = {} if form.rank is None else {"rank": next(iter(merged.vectors.values())).rank}
    return {
        "method": settings.method,
        "form": wanted.form,
        **rank,
        **read,
        "members": entries,
        "scale": merged.scale,
        "lost": lost,
        "seed_of_the_draws": config.seed,
        "validation": {**_problems(open_stage, "validation"), "tried": list(merged.tried)},
        "test": {**_problems(open_stage, "test"), "rows": rows},
    }


def _problems(open_stage: stage.Stage, split: str) -> dict:
    """Number of problems and answers of a split, and what the answers cost."""
    spent = open_stage.spent.get(split, {"evaluations": 0, "answers": 0, "tokens": 0})
    if not spent["evaluations"]:
        return spent
    return {"problems": len(open_stage.problems[split][1]), "samples": open_stage.samples, **spent}


def card(facts: dict, held: dict) -> str:
    """README.md of the folder; ``held`` is the content of its team.json."""
    bases = sorted({entry["base"] for entry in held["agents"].values() if "folder" in entry})
    library = "transformers" if facts.get("form") == FULL else "peft"
    named = facts["members"]
    rows = named.items() if isinstance(named, dict) else [(m["folder"], m["weight"]) for m in named]
    lines = [f"| {name} | {'' if value is None else value} |" for name, value in rows]
    return "\n".join([
        "---", "base_model:", *(f"- {base}" for base in bases), f"library_name: {library}", "---",
        f"# A team of {len(held['agents'])}: {', '.join(held['agents'])}", "",
        f"Weights put together by `python -m experiments.merge --method={facts['method']}` of jaxmarl_llm; `{FILE}` "
        f"says how and what they score, `{saved_agents.TEAM_FILE}` has the whole config.", "",
        "| agent | member |" if isinstance(named, dict) else "| member | weight |", "|---|---|", *lines, "",
    ])  # fmt: skip
