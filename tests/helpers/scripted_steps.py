"""Searches over steps without a model: the lines that may follow a text are known, and so is every request."""

from types import SimpleNamespace

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.protocols import Episode
from jaxmarl_llm.tasks.outcomes import Outcome


def prompts(item):
    return {"writer": [{"role": "user", "content": f"about {item}"}]}


def played(protocol, write, items=("a",), judge=len, reply=lambda message: "0.5"):
    """The forest of a search, and its requests.

    ``write(item, prefix, sample)`` is the text of a sample, which ends with "<end>" where the answer does, and with
    "<cut>" where it is cut off; a letter is a token. ``judge(text)`` is the reward, ``reply`` what a valuer writes.
    """
    state, nodes, step = Episode(items), 0, 0
    while requests := protocol.step(state):
        first = len(state.turns)
        for number, request in enumerate(requests, len(state.requests)):
            for g in range(request.samples):
                if request.agent == "writer" or request.prefix:
                    text = write(items[request.item], request.prefix, g)
                else:
                    text = reply(request.messages[-1]["content"])
                text, finished = text.replace("<end>", "").replace("<cut>", ""), "<cut>" not in text
                tokens = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
                place = len(state.turns), number, request.agent, request.item, request.turn, g, np.zeros(3, np.int32)
                state.turns.append(Turn(*place, tokens, np.zeros(len(tokens)), text, finished, request.parent,
                                        step=step, kind=request.kind, prefix=request.prefix))  # fmt: skip
        state.requests += requests
        for node in protocol.observe(state, state.turns[first:]):
            for agent, i in ((agent, i) for agent, ids in node.turns.items() for i in ids):
                text = state.turns[i].message
                total = float(judge(text))
                outcome = Outcome("ok" if total else "wrong", text, total, total=1, executions=1)
                judgement = SimpleNamespace(total=total, text=text, outcomes={agent: outcome}, local={agent: total})
                state.joints.append(Joint(node.item, (i,), judgement, nodes, node.turn))
            nodes += 1
        step += 1
    return Forest(tuple(items), tuple(state.turns), tuple(state.joints)), state.requests


def judged(forest, item=0):
    """The texts that were judged for an item, in order."""
    return [joint.judgement.text for joint in forest.joints if joint.item == item]


def expanded(requests, item=0):
    """The texts that were gone on from, in order."""
    return [request.prefix for request in requests if request.item == item and request.agent == "writer"]
