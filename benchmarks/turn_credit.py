"""Measure how well critics estimate the value of single dialogue turns, on a riddle with known values.

    python -m benchmarks.turn_credit --seeds=3

An agent with a known policy (`tasks.reasoning.guess.player`) plays dialogues about the riddle ``guess``.
Critics of SWEET-RL (`systems.critics.log_ratio`) are fitted to their outcomes with the settings of
configs/reasoning.py:guess; one has read the hidden pair and one has not. Other dialogues then show how well
credit ranks the turns played at one point of a dialogue, compared with their exact advantages. The credit is
that of each critic, or the outcome of the whole dialogue. There are two measures; 1 is the best value of
both. ``fidelity`` is `credit.credit_fidelity`, the mean rank correlation. Critics cannot reach 1 in it: most
exact advantages at a point are equal (all wrong pairs have the same value), and so are outcomes, but scores
never are. ``ranked`` is the share of pairs of turns with different values that are in the right order; equal
credit counts a half.
"""

import argparse
import random
from collections.abc import Sequence

import numpy as np

from configs import reasoning
from jaxmarl_llm import credit
from jaxmarl_llm.factory import sweet, teams
from jaxmarl_llm.forest import Turn
from jaxmarl_llm.systems.critics import log_ratio
from jaxmarl_llm.systems.preferences.dialogues import Dialogues, Record
from jaxmarl_llm.tasks.reasoning import guess
from jaxmarl_llm.utils import console

ARMS = ("privileged", "unprivileged", "outcome")


def play(pair: str, policy: guess.Policy, draws: random.Random, turns: int = 3) -> list[str]:
    """The texts of an agent in a dialogue."""
    history: guess.History = ()
    while len(history) < turns:
        texts, weights = zip(*policy(history).items(), strict=True)
        (text,) = draws.choices(texts, weights)
        history = (*history, (text, guess.reply(pair, text)))
        if text in guess.PAIRS:
            break
    return [text for text, _ in history]


def record(tokenizer, item, texts: Sequence[str], privileged: bool) -> Record:
    """A dialogue as a critic reads it."""
    messages, visits = [{"role": "user", "content": guess.QUESTION}], []
    for text in texts:
        prompt = np.array(tokenizer.encode_chat(messages), np.int32)
        tokens = np.array([*tokenizer.encode(text), tokenizer.eos_ids[0]], np.int32)
        visits.append((Turn(0, 0, "actor", 0, 0, 0, prompt, tokens, np.zeros(len(tokens)), text, True),))
        reply = guess.reply(item.answer, text)
        messages = [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": reply}]
    hidden = np.array(tokenizer.encode(f"{item.hidden}\n") if privileged else [], np.int32)
    places = tuple((v, 0) for v in range(len(visits)))
    return Record(item.task_id, hidden, tuple(visits), ((float(texts[-1] == item.answer), places),))


def scores(config, played: Sequence, tests: Sequence, privileged: bool) -> np.ndarray:
    """Scores of the turns of ``tests`` by a critic fitted to ``played``, both of (item, texts); float32."""
    team = teams.build_team(config)
    tokenizer, critic = team["actor"].tokenizer, sweet.build_critic(config, team)
    kept = Dialogues("actor", lambda item: np.zeros(0, np.int32), (config.seed,))
    kept.keep([record(tokenizer, item, texts, privileged) for item, texts in played], 0)
    others = [record(tokenizer, item, texts, privileged).sequence(0) for item, texts in tests]
    sizes = log_ratio.sizes_of([*(each.sequence(0) for each in kept.records), *others])
    for times in range(config.sweet.critic_steps * config.preference.model_updates):
        critic.learn(kept.draw(config.preference.batch, times), sizes)
    return critic.scores([text for sequence in others for text in sequence], sizes)


def ranked(credit_R: np.ndarray, truth_R: np.ndarray, group_R: np.ndarray) -> float:
    """Share of pairs in a group with different truth that credit orders in the same way; ties count a half.

    >>> ranked(np.array([1.0, 0.0, 0.0]), np.array([3.0, 2.0, 1.0]), np.zeros(3))
    0.8333333333333334
    """
    better_RR = (truth_R[:, None] > truth_R[None]) & (group_R[:, None] == group_R[None])
    right_RR = np.where(credit_R[:, None] > credit_R[None], 1.0, 0.5 * (credit_R[:, None] == credit_R[None]))
    return float(right_RR[better_RR].mean())


def measure(seed: int, dialogues: int, asks: float, updates: int = 0) -> dict[str, float]:
    """``<arm>/fidelity`` and ``<arm>/ranked`` of every one of `ARMS`.

    Args:
      seed: for the model, the dialogues and the critic's draws.
      dialogues: number per pair, for the critic and for the test.
      asks: how often the agent asks.
      updates: critic updates in each of sweet.critic_steps; 0: as in the config.
    """
    config, items, draws = reasoning.get_config("guess"), guess.load(), random.Random(seed)
    config.seed = seed
    config.preference.model_updates = updates or config.preference.model_updates
    policy = guess.player(asks)
    played, tests = (
        [(item, play(item.answer, policy, draws)) for item in items for _ in range(dialogues)]
        for _ in range(2)
    )
    truth = np.array(
        [x for item, texts in tests for x in guess.advantages(item.answer, policy, texts)], np.float32
    )
    points = [(item.answer, *texts[:k]) for item, texts in tests for k in range(len(texts))]
    numbers = {point: n for n, point in enumerate(dict.fromkeys(points))}
    groups = np.array([numbers[point] for point in points], np.int32)
    outcomes = [float(texts[-1] == item.answer) for item, texts in tests for _ in texts]
    credits = {arm: scores(config, played, tests, arm == "privileged") for arm in ARMS[:2]}
    credits |= {"outcome": np.array(outcomes, np.float32)}
    results = {}
    for arm, values in credits.items():
        rho = credit.credit_fidelity(values, truth, groups, num_groups=len(numbers))
        results |= {f"{arm}/fidelity": float(rho), f"{arm}/ranked": ranked(values, truth, groups)}
    return results


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--dialogues", type=int, default=96, help="dialogues about each pair")
    parser.add_argument("--asks", type=float, default=0.4, help="how often the agent asks")
    args = parser.parse_args()
    rows = [measure(seed, args.dialogues, args.asks) for seed in range(args.seeds)]
    for name in ("fidelity", "ranked"):
        numbers = np.array([[row[f"{arm}/{name}"] for arm in ARMS] for row in rows])
        lines = [*zip(map(str, range(args.seeds)), numbers, strict=True), ("mean", numbers.mean(0))]
        table = [(seed, *(f"{x:.3f}" for x in values)) for seed, values in lines]
        console.table(table, ("seed", *ARMS), title=name)


if __name__ == "__main__":
    main()
