"""For tests of protocols of rounds: a task of programs whose prompts say what they were made of, and a
rollout in which texts and outcomes are scripted. No model, no tokens.

A text is its own program. `play` answers request after request; what an agent says is looked up by who says
it and how often it has spoken: 'a0', 'a1', .. unless ``texts`` says otherwise. Scores are looked up by text.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, SpeakRequest, Turn, refused
from jaxmarl_llm.protocols import Episode
from jaxmarl_llm.tasks.judgement import judge
from jaxmarl_llm.tasks.outcomes import Outcome, ProgramJudgement


def items(*names: str, category: str = "reduce") -> tuple[SimpleNamespace, ...]:
    fields = [dict(task_id=name, category=category, source=f"source of {name}") for name in names]
    return tuple(SimpleNamespace(**each) for each in fields)


def outcome_text(outcome: Outcome) -> str:
    return f"{outcome.program} is {outcome.status} {outcome.score:g}"


@dataclasses.dataclass
class ScriptedTask:
    """A task of programs in name. ``scores``: by text, what is not there gets 1; below 0 means wrong.

    ``judged`` keeps the texts of every joint answer, ``remeasured`` (task_id, program) of every program that
    was measured again; then it has half its score.
    """

    agents: tuple[str, ...] = ("a", "b")
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    least: float = 1.1  # of a good program
    enough: float = np.inf
    items: tuple = items("p", "q")
    judged: list = dataclasses.field(default_factory=list)
    remeasured: list = dataclasses.field(default_factory=list)

    def prompts(self, item):
        return {agent: asked(f"{agent} solves {item.task_id}") for agent in self.agents}

    def outcome(self, text: str) -> Outcome:
        score = self.scores.get(text, 1.0)
        status, score = ("ok", score) if score >= 0 else ("wrong", 0.0)
        return Outcome(status, text, score, score, score, executions=1, seconds=0.5)

    def judge(self, problems, completions):
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        return [self._judge(dict(zip(self.agents, row, strict=True))) for row in rows]

    def _judge(self, texts):
        self.judged.append(tuple(texts.values()))
        outcomes = {agent: self.outcome(text) for agent, text in texts.items()}
        local = {agent: outcome.score for agent, outcome in outcomes.items()}
        return ProgramJudgement({}, float(np.mean(list(local.values()))), local=local, outcomes=outcomes)

    def remeasure(self, problems, programs):
        self.remeasured += [(item.task_id, program) for item, program in zip(problems, programs, strict=True)]
        actual = [self.outcome(program) for program in programs]
        halves = [outcome.score / 2 for outcome in actual]
        return [
            dataclasses.replace(outcome, score=half, low=half, high=half)
            for outcome, half in zip(actual, halves, strict=True)
        ]

    def solved(self, outcome):
        return outcome.score >= self.enough

    def good(self, outcome):
        return outcome.status == "ok" and outcome.score >= self.least

    def source(self, item):
        return item.source

    def write_with_lessons(self, item, lessons, others=()):
        own, rest = (
            "; ".join(f"{text} ({status} {score:g})" for text, status, score in some)
            for some in (lessons, others)
        )
        return asked(f"write {item.task_id} with [{own}]" + (f" and of others [{rest}]" if rest else ""))

    def explain(self, item, outcome):
        return None if self.solved(outcome) else asked(f"explain {item.task_id}: {outcome_text(outcome)}")

    def improve(self, item, outcome, reflection):
        return asked(f"improve {item.task_id}: {outcome_text(outcome)}, because {reflection or 'nothing'}")

    def recall(self, item):
        return asked(f"recall {item.task_id}")

    def follow(self, item, plan):
        return asked(f"follow {item.task_id}: {plan}")

    def repair(self, item, plan, outcome):
        return asked(f"repair {item.task_id}: {plan}, {outcome_text(outcome)}")

    def given(self, item):
        return item.source

    def instruct(self, item, outcome, examples=()):
        last = outcome_text(outcome) if outcome else "nothing"
        return asked(f"instruct {item.task_id} after {last}{shown_pairs(examples)}")

    def carry_out(self, item, outcome, instruction, examples=()):
        last = outcome.program if outcome else "nothing"
        return asked(f"carry out {instruction!r} on {item.task_id} after {last}{shown_pairs(examples)}")

    def direct(self, item, before, after):
        return asked(f"direct {item.task_id} from {before} to {after}")

    def aggregate(self, item, outcomes):
        return asked(f"aggregate {item.task_id}: {', '.join(outcome.program for outcome in outcomes)}")


def shown_pairs(examples) -> str:
    return "".join(f", as {one} -> {other}" for one, other in examples)


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@dataclasses.dataclass
class Played:
    """The forest of a scripted rollout, the requests of every step, and how many were judged after each."""

    forest: Forest
    steps: list[list[SpeakRequest]]
    judged: list[int]

    def prompts(self, step: int) -> list[str]:
        """'agent: last message' of every request of a step."""
        return [f"{r.agent}: {r.messages[-1]['content']}" for r in self.steps[step]]


def play(
    protocol, task, problems: Sequence | None = None, texts: Callable[[SpeakRequest, int], str] | None = None
) -> Played:
    """Run a protocol to its end. ``texts``: (request, how often its agent has spoken before) -> its text."""
    texts = texts or (lambda request, n: f"{request.agent}{n}")
    state = Episode(tuple(problems or task.items))
    steps, judged, nodes_before = [], [], 0
    while requests := protocol.step(state):
        new: list[Turn] = []
        for number, request in enumerate(requests, len(state.requests)):
            for g in range(request.samples):
                spoken = sum(turn.agent == request.agent for turn in (*state.turns, *new))
                text = texts(request, spoken) if request.given is None else request.given
                new.append(_turn(len(state.turns) + len(new), number, request, g, text, len(steps)))
        state.requests += requests
        state.turns += new
        nodes = protocol.observe(state, new)
        state.turns = refused(state.turns, nodes)
        joints = [j for n, node in enumerate(nodes, nodes_before) for j in _judge(state, task, node, n)]
        state.joints += joints
        nodes_before += len(nodes)
        steps.append(requests)
        judged.append(len(joints))
    return Played(Forest(state.items, tuple(state.turns), tuple(state.joints)), steps, judged)


def _turn(id: int, number: int, request: SpeakRequest, g: int, text: str, step: int = 0) -> Turn:
    """Prompts have a token per character, completions one per word."""
    prompt = np.zeros(sum(len(message["content"]) for message in request.messages), np.int32)
    completion = np.zeros(len(text.split()), np.int32)
    return Turn(
        id, number, request.agent, request.item, request.turn, g, prompt, completion,
        np.zeros(len(completion), np.float32), text, True, request.parent, request.follows,
        shown=request.shown, kind=request.kind_of(text), extra=g >= request.samples - request.extra,
        step=step, given=request.given is not None,
    )  # fmt: skip


def _judge(state: Episode, task, node, number: int) -> list[Joint]:
    """Sample g of all agents together, as aligned joint answers are; the text of an agent without a part is ''."""
    answering = [agent for agent in task.agents if agent in node.turns]
    rows = list(zip(*(node.turns[agent] for agent in answering), strict=True))
    texts = dict.fromkeys(task.agents, [""] * len(rows))
    texts |= {agent: [state.turns[row[n]].text for row in rows] for n, agent in enumerate(answering)}
    before = tuple(state.answer(j).completions for j in state.before(node.follows))
    judgements = judge(task, [state.items[node.item]] * len(rows), texts, [before] * len(rows))
    heard = [tuple(ids[g] for ids in node.heard if ids[g] >= 0) for g in range(len(rows))]
    return [
        Joint(node.item, row, judgement, number, node.turn, node.follows, heard[g])
        for g, (row, judgement) in enumerate(zip(rows, judgements, strict=True))
    ]
