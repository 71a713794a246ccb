"""A tiny random team whose tokenizer has many tokenisations of a text, with a chat template, for several turns."""

import functools
import string

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from tokenizers import Tokenizer as Raw
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from jaxmarl_llm import rollout, team
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.weights import LoadedModel

END = "<end>"
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}[assistant]"
KEY = jax.random.key(11)
ITEMS = ("what is it", "and that?")
WIDTH = 256  # tokens that `logprobs` reads at once


@functools.cache
def letters(template: str = TEMPLATE) -> Tokenizer:
    """Letters, pairs of them, and an id that ends an answer: as many as the tiny policy has. Most random texts have
    another tokenisation than the one that was drawn."""
    single = [*string.ascii_lowercase, *" []?!:\n"]
    pairs = [(a, b) for a in "abcde" for b in "aeiou"] + [("x", "y"), ("z", "z")]
    vocab = {token: i for i, token in enumerate([END, *single, *("".join(pair) for pair in pairs)])}
    assert len(vocab) == tiny.V
    raw = Raw(models.BPE(vocab, pairs))
    raw.decoder = decoders.Fuse()
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, chat_template=template)
    return Tokenizer(hf, (vocab[END],))


@functools.cache
def built(template: str = TEMPLATE) -> team.Team:
    """Agents 'a' and 'b' with adapters that differ."""
    model = LoadedModel(tiny.POLICY, tiny.params(), letters(template))
    options = dict(rank=3, alpha=3 * tiny.SCALE)
    built_team = team.build({"tiny": model}, dict.fromkeys(tiny.AGENTS, "tiny"), jax.random.key(0), **options)
    built_team.members[0].trainable = tiny.lora()
    return built_team


class Task(tiny.Task):
    """Questions about two things; an answer earns the number of its letters."""

    def __init__(self, items=ITEMS):
        super().__init__(None, items)

    def judge(self, items, completions):
        totals = [float(sum(map(len, texts))) for texts in zip(*completions.values(), strict=True)]
        return [Judgement({"letters": total}, total, "pass") for total in totals]

    def prompts(self, item):
        return {a: [{"role": "user", "content": f"{a}: {item}"}] for a in self.agents}

    def feedback(self, answers):
        return [{a: "again" + "!" * (len(text) % 3) for a, text in one.completions.items()} for one in answers]


def run(protocol, template: str = TEMPLATE, tokens: int = 6, items=(0, 1), **options):
    """The forest of a protocol on some items of `Task`, and all of its requests."""
    members, requests = built(template), []

    class Watched:
        """The protocol; keeps what it asks for."""

        def step(self, state):
            new = protocol.step(state)
            requests.extend(new)
            return new

        observe = protocol.observe

    trainables = [member.trainable for member in members.members]
    options = {"params": SamplingParams(tokens), "max_prompt_tokens": 200} | options
    scorer = TaskScorer.of_team(Task(), members, "aligned")
    forest = rollout.run(Watched(), members, trainables, scorer, list(items), KEY, **options)
    return forest, requests


@jax.jit
def _forward(variables, tokens_L):
    return jax.nn.log_softmax(tiny.POLICY.apply(variables, tokens_L[None], jnp.arange(WIDTH)[None])[0][0])


def logprobs(turn) -> np.ndarray:
    """Oracle: log-probabilities (L',) of a turn's tokens, from the whole sequence read at once without any cache."""
    ids = [*turn.prompt.tolist(), *turn.completion.tolist()]
    padded = np.zeros(WIDTH, np.int32)
    padded[: len(ids)] = ids
    logprobs_LV = np.asarray(_forward(tiny.own(tiny.lora(), tiny.AGENTS.index(turn.agent)), padded))
    places = np.arange(len(turn.prompt) - 1, len(ids) - 1)
    return logprobs_LV[places, turn.completion]
