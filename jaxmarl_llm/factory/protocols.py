"""Build the protocol of a config, for training, evaluation, and program search."""

import pathlib
from collections.abc import Sequence

from jaxmarl_llm import update
from jaxmarl_llm.config import advice, experience, gate, mlpo, planner, programs, qstar, router, workload
from jaxmarl_llm.config.options import is_dotted
from jaxmarl_llm.config.task import asks_expert
from jaxmarl_llm.config.tools import callers
from jaxmarl_llm.factory import gates, randomness, step_search
from jaxmarl_llm.memory import Item, Relevance, check_task, saved
from jaxmarl_llm.protocols import (
    Discussion,
    Pipeline,
    Protocol,
    Simultaneous,
    Tree,
    custom,
    encoders,
    experience_memory,
)
from jaxmarl_llm.protocols import leader as leader_protocol
from jaxmarl_llm.protocols import retrieve as retrieve_protocol
from jaxmarl_llm.protocols import routed as routes
from jaxmarl_llm.protocols.advice import Advice
from jaxmarl_llm.protocols.dialogue import Dialogue
from jaxmarl_llm.protocols.experience import Experience, Recall
from jaxmarl_llm.protocols.experience_memory import ExperienceMemory, Mining
from jaxmarl_llm.protocols.gated import Gated
from jaxmarl_llm.protocols.lessons import memory as lessons
from jaxmarl_llm.protocols.lessons.history import BankBuilder
from jaxmarl_llm.protocols.lessons.memory import LessonMemory
from jaxmarl_llm.protocols.mapcoder import MapCoder
from jaxmarl_llm.protocols.mixture import Mixture
from jaxmarl_llm.protocols.peer_answers import PeerAnswers
from jaxmarl_llm.protocols.pipeline import one_by_one, quote_all
from jaxmarl_llm.protocols.planner import Planner
from jaxmarl_llm.protocols.prompted import Prompted
from jaxmarl_llm.protocols.reflexion import Reflexion
from jaxmarl_llm.protocols.relay import Relay
from jaxmarl_llm.protocols.repeated import Repeated
from jaxmarl_llm.protocols.review import review, show_last
from jaxmarl_llm.protocols.routed import Routed
from jaxmarl_llm.protocols.teams import show_teams, teams
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.systems.lessonl import LessonL, LessonSelection
from jaxmarl_llm.systems.router import Ppo, Router
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import distributed

IN_TURNS = {"simultaneous": Simultaneous, "pipeline": Pipeline, "discussion": Discussion, "review": review}
WITH_FEEDBACK = {"leader": leader_protocol.leader, "teams": teams}  # they build their own feedback
# Names of all agents -> groups of agents that answer at the same time, in the order of a turn.
STEPS = {
    "pipeline": one_by_one,
    "review": one_by_one,
    "leader": leader_protocol.steps,
    "teams": leader_protocol.steps,
    "retrieve": retrieve_protocol.steps,
}
# How an agent reads the texts of earlier steps: (its prompt, its name, their texts) -> messages.
SHOWS = {
    "pipeline": quote_all,
    "tree": quote_all,
    "review": show_last,
    "leader": quote_all,
    "teams": show_teams,
}
ROUNDS = {"repeated": Repeated, "reflexion": Reflexion, "mixture": Mixture}


def build(
    config, task, team: Team, samples: int | None = None, memory=(), toolbox: Toolbox | None = None
) -> Protocol:
    """The protocol of training; with ``samples`` that of an evaluation: each is a chain to the last turn.

    ``memory``: the run's learned lessons, experience, peers' answers, or router, see `memory_of`; () at the
    start.
    ``toolbox``: the tools that agents may call, see `factory.tools.opened`.
    """
    if toolbox is None:
        return _plain(config, task, team, samples, memory)
    apart = samples is None
    if planner.of(config):
        return Planner(task.prompts, toolbox, samples or config.train.group, config.tools.calls, apart)
    protocol = _plain(config, task, team, samples, memory)
    return WithTools(protocol, toolbox, config.tools.calls, callers(config), apart)


def _plain(config, task, team: Team, samples: int | None, memory) -> Protocol:
    """`build` without tools."""
    c = config.train
    if is_dotted(c.protocol):
        return custom.build(c.protocol, config, task, samples)
    if qstar.of(config):
        return step_search.build(config, task, step_search.values_of(config, team))
    if c.protocol in programs.METHODS:
        # A problem's own lessons are shown at random, those of earlier problems by relevance.
        how = None if dealt(config, samples) and not remembers(config) else relevant(config, team)
        return rounds(config, task, how, samples, memory)
    if c.protocol == "tree" and samples is None:
        return Tree(task.prompts, (c.group,) * len(config.team.agents))
    if c.protocol == "tree":
        return Pipeline(task.prompts, samples)  # an evaluation runs independent chains, not the tree
    if router.of(config) and config.router.kind == "prompt":
        return Prompted(task.prompts, config.router.agent, samples or c.group, c.turns, apart=samples is None)
    if router.of(config):
        how = routing(config, team, memory)
        return Routed(task.prompts, samples or c.group, c.turns, how, greedy=samples is not None)
    if c.protocol == "retrieve":
        return retrieve_protocol.retrieve(task.prompts, samples or c.group, config.team.agents)
    if c.protocol == "dialogue":
        return Dialogue(
            task.prompts,
            config.team.agents[1],
            task.privileged,
            task.briefing,
            task.ends,
            samples or c.group,
            c.turns,
            workload.candidates(config) if samples is None else 1,
        )
    return _in_turns(config, task, team, samples, _turn_options(config, task, samples, memory))


def _turn_options(config, task, samples: int | None, memory) -> dict:
    """Further options of protocols with a fixed number of turns: which chains go on or end, what is kept."""
    c = config.train
    if samples is not None:
        options = {"later_samples": 1, "ends": task.agree if config.eval.until_agreed else None}
    else:
        options = {
            "hand_on": c.hand_on,
            "stop_above": c.stop_above or None,
            "later_samples": c.later_samples or None,
        }
        options |= {"extra": c.partner_samples} if c.protocol == "simultaneous" else {}
    if config.task.kind == "world":
        options |= {"remember": config.task.remember}
    if c.protocol == "leader":
        # In an evaluation every chain has its own peer answers.
        options |= {"fan_out": c.system == "mlpo" and samples is None}
        if keeps_peers(config) and samples is None:
            options |= {"given": (peer_answers(config) if memory == () else memory).given}
    return options


def _in_turns(config, task, team: Team, samples: int | None, options: dict) -> Protocol:
    """A protocol in which a fixed number of turns follow each other."""
    c = config.train
    if c.protocol in WITH_FEEDBACK:
        return WITH_FEEDBACK[c.protocol](task.prompts, samples or c.group, c.turns, **options)
    feedback = task.feedback if c.turns > 1 else None
    if asks_expert(config):  # else each process pays, and answers may differ
        feedback = distributed.on_main(feedback)
    if advice.of(config):
        options |= {"every": config.advice.every, "shuffled": config.advice.shuffled}
        return Advice(task.prompts, samples or c.group, c.turns, task.feedback, **options)
    if c.protocol == "relay":
        agents = tuple(config.team.agents)
        return Relay(task.prompts, samples or c.group, c.turns, feedback, agents=agents, **options)
    if gate.of(config):
        options |= {"gate": gates.build(config, task, team), "apart": samples is None}
        return Gated(task.prompts, samples or c.group, c.turns, feedback, **options)
    return IN_TURNS[c.protocol](task.prompts, samples or c.group, c.turns, feedback, **options)


def has_lessons(config) -> bool:
    """Whether agents tell each other lessons."""
    return config.train.protocol == "lessonl" and config.lessons.select != "none"


def dealt(config, samples: int | None) -> bool:
    """Whether agents see lessons at random (only in training), not by relevance and speed-up."""
    return config.lessons.select == "dealt" and samples is None


def relevant(config, team: Team) -> Relevance | None:
    """The relevance of lessons or of examples of experience; None if the config uses neither."""
    if experience.encodes(config):
        return encoders.build(config.experience.encoder, team, "experience.encoder")
    return encoders.build(config.lessons.encoder, team) if has_lessons(config) else None


def rounds(
    config, task, relevance: Relevance | None, samples: int | None, memory=(), ends: bool = False
) -> Protocol:
    """Rounds of programs.

    ``ends``: chains may end when no gain is possible any more (`search.stop_when_solved`). In training and
    evaluation this is off, since every chain must reach the last round.
    """
    c, chains = config.train, samples or config.train.group
    stop = ends and config.search.stop_when_solved
    if experience.of(config):
        own = config.experience
        recall = Recall(memory, own.select if experience.shows(config) else "none", own.examples, relevance)
        # Training and search add to a memory, an evaluation does not.
        keeps = experience.remembers(config) and (samples is None or ends)
        options = recall, mining(config) if keeps else None, stop
        return Experience(task, config.team.agents[0], chains, c.turns, *options)
    if c.protocol == "mapcoder":
        return MapCoder(task, chains, config.search.plans, c.turns // config.search.plans, stop)
    if c.protocol != "lessonl":
        return ROUNDS[c.protocol](task, chains, c.turns, stop_when_solved=stop)
    own = config.lessons
    by_chance = dealt(config, samples)
    mode = "full" if own.select == "dealt" and not by_chance else own.select
    options = dict(step=own.step, factor=own.factor, pooled=by_chance, memory=memory)
    gate = own.gate if config.task.kind == "optimisation" else 0.0  # a minimum speed-up
    showing = LessonSelection(own.shown, mode, own.control if by_chance else 0, gate)
    banking, lasting = BankBuilder(task.source, relevance, **options), own.bank == "run"
    return LessonL(task, chains, c.turns, banking, showing, lasting, stop_when_solved=stop)


def remembers(config) -> bool:
    """Whether lessons or experience are kept after their problem."""
    lessons_last = config.train.protocol == "lessonl" and config.lessons.bank == "run"
    return lessons_last or experience.remembers(config)


def mining(config) -> Mining:
    """The settings that decide which shortcuts are kept."""
    own = config.experience
    return Mining(own.threshold, own.shortcuts, own.end)


def memory(config, task, entries: Sequence = ()) -> LessonMemory | ExperienceMemory:
    """The initial bank of lessons of a whole run, or its experience; ``task`` is the run's.

    Raises:
      UserError: for lessons, or experience, of another kind of task.
    """
    own = config.lessons
    if experience.of(config):
        kept = config.experience.keep
        return ExperienceMemory(config.task.kind, task.given, mining(config), kept, entries)
    return LessonMemory(own.keep, step=own.step, factor=own.factor, entries=entries, task=config.task.kind)


def keeps_peers(config) -> bool:
    """Whether answers of peers that do not learn are kept and reused."""
    return config.train.system == mlpo.NAME and config.mlpo.peer_answers > 0


def peer_answers(config) -> PeerAnswers:
    """The store of peer answers at the start of a run."""
    return PeerAnswers(config.team.agents[:-1], config.mlpo.peer_answers)


def build_router(config, team: Team) -> Router:
    """The initial network of ``router.kind=learned``."""
    own = config.router
    encode = encoders.encoder(own.encoder, team, "router.encoder")
    key = randomness.stream(config, "router")
    ppo = Ppo(own.epochs, own.clip, own.entropy)
    optimizer = update.make_optimizer(lr=own.lr, steps=config.train.steps * own.epochs)
    return Router(config.team.agents, config.train.turns, encode, key, own.hidden, optimizer, ppo)


def routing(config, team: Team, memory=()) -> routes.Router:
    """The router that decides on routes; ``memory`` is a trained router, () for a new one."""
    own = config.router
    if own.kind == "fixed":
        return routes.fixed(own.agent)
    if own.kind == "cascade":
        return routes.cascade(tuple(config.team.agents), own.confidence)
    return memory or build_router(config, team)


def memory_of(config, models):
    """The part of a system's ``models`` for the protocol: lessons, experience, peers' answers, or router."""
    return models if remembers(config) or keeps_peers(config) or router.learns(config) else ()


def saved_memory(config, workdir, step: int, team: Team):
    """The memory of the run in ``workdir`` after ``step`` iterations; () if the config uses none.

    Raises:
      UserError: for lessons, or experience, of another kind of task.
    """
    folder = pathlib.Path(workdir) / "system"
    if router.learns(config):
        network = build_router(config, team)
        network.load(folder, step)
        return network
    if not remembers(config):
        return ()
    if experience.remembers(config):
        name, items = experience_memory.NAME, saved(folder, step, Item, experience_memory.NAME)
    else:
        name, items = "bank of lessons", lessons.saved(folder, step)
    check_task(items, config.task.kind, f"the {name} of {workdir}")
    return tuple(items)
