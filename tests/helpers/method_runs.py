"""For tests: runs of one method on tiny random models, and by hand what they should have learned."""

import functools
import json
import types
import zlib

import jax
import numpy as np
import smoke_runs

from configs import coding
from experiments import train
from jaxmarl_llm import rollout, sampling, transcripts, update
from jaxmarl_llm.factory import teams

EASY = "starter/basics/005"
# Two problems, two samples, one iteration. All prompts are cut to one width, so that methods share programs.
SMALL = {
    "team.targets": ("q", "v"), "policy.remat": "none", "task.source": "starter[3:5]", "eval.every": 0,
    "task.eval_source": "starter[:1]", "task.test_source": "starter[:1]",
    "task.reward": f"{__name__}:codes", "sampling.max_new_tokens": 8,
    "sampling.max_prompt_tokens": 128, "sampling.long_prompts": "truncate", "sampling.stop": (),
    "train.steps": 1, "train.joint_mode": "aligned", "train.lr": 0.01, "train.warmup": 0,
    "eval.before": False, "eval.samples": 1, "log.tensorboard": False,
}  # fmt: skip
TEXTS = {
    "task.source": "sample_posts[:2]", "task.eval_source": "sample_posts[:1]",
    "task.test_source": "sample_posts[:1]",
}  # fmt: skip
ALONE = {"team.agents": ("team",), "task.centralised": True}
TWO_TURNS = {"train.turns": 2, "task.feedback": "plain"}

HELPER, RIGHT, CHEAT = "def aux(n):\n    return n", "def f(n):\n    return n % 2", "def f(n):\n    return 1"
_ASSERTS = "".join(f"    assert candidate({n}) == {n % 2}\n" for n in (1, 2, 3, 4))
_ASKED = ("Is n odd?", "One for an odd number, zero for an even one: a remainder.", "The parity.", "n mod 2.")


def codes(completions, task_id, **columns):
    """A part per agent, 0..498, which hardly two texts share; and 1000 for the easy problem."""
    parts = [[zlib.crc32(text.encode()) % 499 for text in texts] for texts in completions.values()]
    rows = [dict(zip(completions, row, strict=True)) for row in zip(*parts, strict=True)]
    return [row | {"easy": 1000 * (name == EASY)} for row, name in zip(rows, task_id, strict=True)]


def scripted(monkeypatch, tmp_path, task, texts):
    """Judge sample g of an agent as if it were texts[agent][g]. Returns config fields of two problems, whose
    four tests RIGHT passes, CHEAT only the first and third."""
    real = task.judge

    def judge(self, items, completions):
        scripted_texts = {agent: [texts[agent][j % 2] for j in range(len(items))] for agent in completions}
        return real(self, items, scripted_texts)

    monkeypatch.setattr(task, "judge", judge)
    test = f"def check(candidate):\n{_ASSERTS}"
    prompts = [f'def f(n):\n    """{text}"""\n' for text in _ASKED]
    rows = [
        {"task_id": f"odd/{i}", "prompt": prompt, "entry_point": "f", "test": test}
        for i, prompt in enumerate(prompts)
    ]
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = {"task.eval_source": f"{path}[2:3]", "task.test_source": f"{path}[3:]"}
    sources |= {"task.source": f"{path}[:2]", "task.reward": ""}
    return sources | {"task.train_split": "all", "task.eval_split": "all", "task.test_split": "all"}


def watched(monkeypatch):
    """What runs do from here on: ``called``, programs in order; ``forests``; ``batches``, (agents, batch)
    to learn from."""
    actual = types.SimpleNamespace(called=[], forests=[], batches=[])

    def watch(module, name, keep):
        real = getattr(module, name)

        @functools.wraps(real)
        def kept(*args, **fields):
            result = real(*args, **fields)
            keep(args, result)
            return result

        monkeypatch.setattr(module, name, kept)

    def learned(args, _):
        actual.called.append("train_step")
        actual.batches += [(batch.agents or args[0].agents, jax.device_get(batch)) for batch in args[-1]]

    watch(sampling, "generate", lambda *_: actual.called.append("generate"))
    watch(update, "train_step", learned)
    watch(rollout, "run", lambda _, forest: actual.forests.append(forest))
    return actual


def by_hand(forest, c):
    """Advantage of every turn, from the sentences of docs/turns.md."""
    joints, totals = forest.joints, forest.totals().astype(float)

    def gain(j):
        if c.hand_on != "all":
            return totals[j]  # all answers of a node share what follows: it makes no difference
        after = [gain(k) for k, joint in enumerate(joints) if joint.follows == j]
        if after:
            return totals[j] + c.discount * np.mean(after)
        mean = np.mean([totals[k] for k, joint in enumerate(joints) if joint.node == joints[j].node])
        return totals[j] + mean * sum(c.discount**k for k in range(1, c.turns - joints[j].turn))

    def share(j):
        """Of what follows answer j, in the return of all problems."""
        before, node = joints[j].follows, joints[j].node
        own = share(before) if before is not None else 1 / len({k.node for k in joints if k.follows is None})
        return c.discount * own / (sum(k.node == node for k in joints) if c.hand_on == "all" else 1)

    gains, groups, actual = [gain(j) for j in range(len(joints))], {}, {}
    for turn in forest.turns:
        mean = np.mean(
            [gains[j] for j, joint in enumerate(joints) if turn.id in (*joint.turns, *joint.heard)]
        )
        groups.setdefault((turn.agent, turn.item, turn.turn, turn.follows), {})[turn.id] = mean
    for (agent, _, index, follows), means in groups.items():
        weight = c.turn_weights[index] if c.turn_weights else 1.0
        if c.turn_loss == "return" and follows is not None:
            weight *= share(follows) * sum((a, t) == (agent, index) for a, _, t, _ in groups)
        actual |= {i: weight * (mean - np.mean([*means.values()])) for i, mean in means.items()}
    return [actual[turn.id] for turn in forest.turns]


def _slots(agents, batch):
    """(agent, tokens.., advantage) of every completion that lies in a packed batch."""
    rows = batch.rows
    for slot in map(tuple, np.argwhere(rows.lengths_MS > 0)):  # prompt, micro-batch, agent, row, slot
        start = rows.starts_MS[slot]
        tokens = rows.tokens_MW[slot[:-1]][start : start + rows.lengths_MS[slot]]
        yield agents[slot[2]], *tokens.tolist(), float(rows.advantages_MS[slot])


def trained(seen, folder, fields, base=coding, by_hand=by_hand):
    """Run one iteration. Every completion that tells something is learned from once, with its advantage, and
    nothing else is; every agent moves if there is a signal. Returns the metrics and the transcript."""
    c = base.get_config("smoke")
    c.update_from_flattened_dict(SMALL | fields)
    train.train(c, folder)
    forest, (row, *_) = seen.forests[0], smoke_runs.rows(folder)
    expected = by_hand(forest, c.train)
    completions = [(t.agent, *t.completion.tolist(), a) for t, a in zip(forest.turns, expected, strict=True)]
    learned = [slot for agents, batch in seen.batches for slot in _slots(agents, batch)]
    completions, learned = (sorted(x for x in actual if abs(x[-1]) > 1e-3) for actual in (completions, learned))
    assert [x[:-1] for x in learned] == [x[:-1] for x in completions]
    np.testing.assert_allclose([x[-1] for x in learned], [x[-1] for x in completions], atol=1e-3)
    assert sum((batch.lengths_NR > 0).sum() for _, batch in seen.batches) == len(forest.turns)
    after, before = smoke_runs.saved_state(folder, c).trainable, teams.build_team(c).members[0].trainable
    for n, agent in enumerate(c.team.agents):
        leaves = zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)
        assert any((new[n] != old[n]).any() for new, old in leaves) == bool(completions)
        assert (row[f"{agent}/update_norm"] > 0) == (row[f"{agent}/grad_norm"] > 0) == bool(completions)
        assert abs(row[f"{agent}/ratio0"] - 1) < 1e-4
    return row, transcripts.read(folder, 0)
