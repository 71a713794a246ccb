"""Compare loss and gradients of the `comlrl_compat` preset with those of CoMLRL 1.4.3 itself.

    python -m benchmarks.comlrl_parity [--env FOLDER]

In the environment of `peers.make_environment`, by default in the cache folder of this package,
comlrl_reference.py lets CoMLRL's trainer compute the loss and the gradients of two tiny random Llamas on
fixed tokens and rewards. Here the same weights go through this package's training path
(`gradient.gradients`), and every tensor is compared. Exit status 1 if a difference exceeds 1e-4.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import peers
from jaxmarl_llm import weights
from jaxmarl_llm.cli import entry
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import agent_loss, comlrl_compat, gradient, packing
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import hf

TOLERANCE = 1e-4


def make_case(seed: int = 0) -> dict:
    """Fixed prompts, completions and returns: lists over agents, nodes (one prompt each) and the group.

    Lengths differ within a group, so that shorter rows have pad tokens. The pad id is the EOS id. Node 1 has
    two equally long longest rows. All rows of node 2 are one token long: CoMLRL has nothing to train there.
    """
    rng = np.random.default_rng(seed)
    vocab_size, pad_id = 61, 2
    lengths = [[[5, 9, 3, 7], [6, 2, 6, 4], [1, 1, 1, 1]], [[4, 4, 8, 1], [2, 3, 3, 2], [1, 1, 1, 1]]]
    prompt_lengths = [[6, 11, 4], [9, 5, 7]]

    def tokens(length):
        return rng.integers(3, vocab_size, size=length).tolist()

    return {
        "vocab_size": vocab_size,
        "pad_id": pad_id,
        "group_size": 4,
        "prompts": [[tokens(p) for p in agent] for agent in prompt_lengths],
        "completions": [[[tokens(n - 1) + [pad_id] for n in node] for node in agent] for agent in lengths],
        "returns": [[0.4, 2.5, 3.1, 1.0], [4.0, 0.0, 0.0, 1.5], [1.0, 2.0, 3.0, 4.0]],
    }


def make_batch(case: dict) -> packing.Batch:
    """The case as the trainer's batch: rows r = node * G + g, completions filled up with the pad id."""
    agents, nodes, group = len(case["prompts"]), len(case["returns"]), case["group_size"]
    rows = [[c for node in agent for c in node] for agent in case["completions"]]
    lengths_NR = np.array([[len(c) for c in agent] for agent in rows], np.int32)
    tokens_NRL = np.full((agents, nodes * group, lengths_NR.max()), case["pad_id"], np.int32)
    for index in np.ndindex(*lengths_NR.shape):
        tokens_NRL[index][: lengths_NR[index]] = rows[index[0]][index[1]]
    padded = [pad_prompts(prompts, width=16) for prompts in case["prompts"]]
    group_R = np.repeat(np.arange(nodes), group)
    advantages_R = comlrl_compat.advantages(np.ravel(case["returns"]), group_R, num_groups=nodes)
    return packing.Batch(
        prompts_NBP=jnp.stack([p for p, _ in padded]),
        prompt_lengths_NB=jnp.stack([n for _, n in padded]),
        tokens_NRL=jnp.asarray(tokens_NRL),
        lengths_NR=jnp.asarray(lengths_NR),
        logprobs_NRL=jnp.zeros(tokens_NRL.shape, jnp.float32),  # this loss has no ratio
        advantages_NR=jnp.stack([advantages_R] * agents),
    )


def our_losses_and_gradients(case: dict, folder: pathlib.Path) -> list[tuple[float, dict[str, np.ndarray]]]:
    """Per agent: loss, and gradients by Hugging Face name, from the weights that the reference saved."""
    models = [weights.load(folder / f"agent_{n}") for n in range(len(case["prompts"]))]
    names = tuple(f"agent_{n}" for n in range(len(models)))
    stack = Stack(names, models[0].policy, (case["pad_id"],), "full")
    trainable = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[m.params for m in models])
    config = agent_loss.LossConfig(sampling=SamplingParams(max_new_tokens=16), comlrl_compat=True)
    packed = config.pack(make_batch(case))
    grads, (pg, *_) = gradient.gradients(stack, config, models[0].params, trainable, packed)
    policy_config = models[0].policy.config
    return [
        (float(pg.mean()[n]), hf.to_hf_tensors(policy_config, jax.tree.map(lambda x, n=n: x[n], grads)))
        for n in range(len(models))
    ]


def compare(loss: float, grads: dict, reference) -> list[tuple[str, float, float]]:
    """Rows (name, max absolute difference, the same relative to the reference's largest magnitude)."""
    theirs = {name: reference[name] for name in reference.files if not name.startswith("__")}
    theirs["loss"] = reference["__node_losses__"].mean()
    ours = {**grads, "loss": np.array(loss)}
    if set(ours) != set(theirs):
        raise UserError(f"tensors that only one side has: {sorted(set(ours) ^ set(theirs))}")
    table = []
    for name, expected in theirs.items():
        if not np.any(expected):
            raise UserError(f"the reference has no gradient for {name}: nothing would be compared")
        difference = float(np.abs(ours[name] - expected).max())
        table.append((name, difference, difference / float(np.abs(expected).max())))
    return table


def main() -> int:
    """Compare, print a table per agent, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--env", type=pathlib.Path, default=peers.default_folder(), help="virtual environment (%(default)s)"
    )
    python = peers.make_environment(parser.parse_args().env.expanduser())
    case, worst = make_case(), 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "case.json").write_text(json.dumps(case))
        reference = pathlib.Path(__file__).with_name("comlrl_reference.py")
        subprocess.run([python, reference, folder], check=True)
        for n, (loss, grads) in enumerate(our_losses_and_gradients(case, folder)):
            table = compare(loss, grads, np.load(folder / f"agent_{n}.npz"))
            worst = max([worst, *(relative for _, _, relative in table)])
            print(f"\nagent {n}: loss {loss:.6f}\n{'':52}{'max abs diff':>14}{'relative':>12}")
            for name, absolute, relative in table:
                print(f"{name:52}{absolute:14.2e}{relative:12.2e}")
    print(f"\nlargest relative difference {worst:.2e}, allowed {TOLERANCE:.0e}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    entry.run_script(main)
