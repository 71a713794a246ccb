"""Two teams and a judge: teams discuss, the judge compares answers and decides (Corex, arXiv 2310.00280).

The judge is the last agent; the first half of the others is the first team. (Corex draws the teams; agents of
one model are interchangeable.) In every turn all members answer, from the second turn on after reading the
last answers of their own team. Then the judge reads both teams and answers, with the earlier turns in its
prompt.
"""

from collections.abc import Mapping, Sequence

from jaxmarl_llm.protocols.discussion import AGAIN
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.protocols.leader import steps
from jaxmarl_llm.protocols.pipeline import Messages, Pipeline
from jaxmarl_llm.protocols.types import Answer, Prompts

DECIDE = "Where the teams differ, give the answer of the team that is right."


def divided(members: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The two teams of these agents; the first is equally large, or larger by one."""
    half = (len(members) + 1) // 2
    return tuple(members[:half]), tuple(members[half:])


def show_teams(messages: Messages, agent: str, texts: Mapping[str, str]) -> Messages:
    """The prompt of the judge, with the answers of both teams."""
    *before, question = messages
    first, second = (quoted({name: texts[name] for name in team}) for team in divided(list(texts)))
    content = f"First team:\n{first}\n\nSecond team:\n{second}\n\n{question['content']}\n{DECIDE}"
    return (*before, {**question, "content": content})


def feedback(answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Between turns: the answers of the other members of an agent's own team."""
    return [_revise(answer.completions) for answer in answers]


def _revise(texts: Mapping[str, str]) -> dict[str, str]:
    *members, judge = texts
    questions = {judge: AGAIN}
    for team in divided(members):
        for agent in team:
            mates = {name: texts[name] for name in team if name != agent}
            questions[agent] = f"{quoted(mates)}\n\n{AGAIN}" if mates else AGAIN
    return questions


def teams(prompts: Prompts, samples: int, turns: int = 1, **options) -> Pipeline:
    """The protocol; for arguments and options see `turns.MultiTurn`."""
    return Pipeline(prompts, samples, turns, feedback, steps=steps, show=show_teams, **options)
