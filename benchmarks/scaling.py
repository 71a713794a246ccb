"""Measure strong and weak scaling over the devices of a mesh, and how sharding changes the result.

    python -m benchmarks.scaling --axis=data

Two agents draw answers to some problems and take the gradient of their loss, on 1, 2, 4, .. devices along one
axis of the mesh. Strong scaling: always as many problems as the largest number of devices. Weak scaling: one
problem per device. On a CPU the devices are fake (eight that share its cores), so times show only the cost of
sharding, and the last columns matter: the largest difference of any gradient from that of one device,
relative to the largest gradient, and the share of drawn tokens that are equal.
"""

import argparse
import dataclasses
import functools
import statistics
from collections.abc import Sequence

import jax
import numpy as np

from benchmarks import machine, ours
from benchmarks.tables import markdown
from jaxmarl_llm import sampling
from jaxmarl_llm.factory import teams, training
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.sharding import AXES
from jaxmarl_llm.update import packing
from jaxmarl_llm.weights import model_files

FAKE = 8


def make_config(model: str, axis: str, devices: int, sizes: dict[str, int]):
    """The config of `ours` for so many devices along one axis."""
    config = ours.make_config(model=model, mode="adapters", sampling_dtype="float32", **sizes)
    config.mesh[axis] = devices
    return config


def random_batch(agents: int, problems: int, vocabulary: int, config) -> packing.Batch:
    """Prompts and completions of random tokens; problem b is the same for any number of problems."""
    prompt, new = config.sampling.max_prompt_tokens, config.sampling.max_new_tokens
    drawn = [
        np.random.default_rng(b).integers(vocabulary, size=(agents, prompt + config.train.group * new))
        for b in range(problems)
    ]
    tokens_NBX = np.stack(drawn, axis=1).astype(np.int32)
    padded = [pad_prompts(tokens_BX[:, :prompt].tolist()) for tokens_BX in tokens_NBX]
    prompts_NBP, lengths_NB = (np.stack(arrays) for arrays in zip(*padded, strict=True))
    tokens_NRL = tokens_NBX[:, :, prompt:].reshape(agents, -1, new)
    shape_NR = tokens_NRL.shape[:2]
    advantages_NR = np.resize(np.float32(ours.advantages(config.train.group)), shape_NR)
    lengths_NR, logprobs_NRL = np.full(shape_NR, new, np.int32), np.zeros(tokens_NRL.shape, np.float32)
    return packing.Batch(prompts_NBP, lengths_NB, tokens_NRL, lengths_NR, logprobs_NRL, advantages_NR)


def run(config, devices: int, problems: int, rounds: int) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Median seconds of drawing and of the gradient; the tokens drawn; all gradients in one vector."""
    (member,) = teams.build_team(config, jax.devices()[:devices]).members
    stack, loss = dataclasses.replace(member.stack, eos_ids=(), stops=()), training.loss_config(config)
    batch = random_batch(len(stack.agents), problems, stack.policy.config.vocab_size, config)
    packed = jax.device_put(loss.pack(batch, stack.layout.shards))

    def draw():
        prompts = batch.prompts_NBP, batch.prompt_lengths_NB
        fixed = stack, member.base, member.trainable, *prompts, jax.random.key(0)
        return sampling.generate(*fixed, samples=config.train.group, params=loss.sampling)

    def learn():
        return ours.gradients(stack, loss, member.base, member.trainable, packed)

    phases = {"generate": draw, "gradient": learn}
    seconds = {name: [ours.timed(work)[1] for _ in range(rounds + 1)][1:] for name, work in phases.items()}
    grads = np.concatenate([np.ravel(x) for x in jax.tree.leaves(jax.device_get(learn()[0]))])
    tokens = np.asarray(draw().tokens_NRL)
    return {name: statistics.median(times) for name, times in seconds.items()}, tokens, grads


def measure(model: str, axis: str, counts: Sequence[int], rounds: int, **sizes: int) -> list[tuple]:
    """Rows of the table: kind, devices, problems, seconds of both, deviation, share of equal tokens."""
    rows = []

    @functools.cache
    def alone(problems: int):
        return run(make_config(model, axis, 1, sizes), 1, problems, 1)

    for kind, problems_of in (("strong", lambda count: max(counts)), ("weak", lambda count: count)):
        for count in counts:
            problems = problems_of(count)
            seconds, tokens, grads = run(make_config(model, axis, count, sizes), count, problems, rounds)
            _, expected, exact = alone(problems)
            deviation = float(np.abs(grads - exact).max() / np.abs(exact).max())
            rows.append(
                (kind, count, problems, *seconds.values(), deviation, float((tokens == expected).mean()))
            )
    return rows


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axis", default="data", choices=AXES, help="of the mesh (data)")
    parser.add_argument("--model", default=model_files.DEFAULT, help="as config.model")
    parser.add_argument("--rounds", type=int, default=3, help="that count, after one that does not (3)")
    parser.add_argument("--new-tokens", type=int, default=32, help="tokens of each completion (32)")
    args = parser.parse_args(arguments)
    jax.config.update("jax_num_cpu_devices", FAKE)
    counts = [2**n for n in range(6) if 2**n <= min(len(jax.devices()), 8 if args.axis != "agent" else 2)]
    sizes = dict(group=4, prompt_tokens=85, new_tokens=args.new_tokens)
    print(f"{machine.describe()}; {len(jax.devices())} devices, along {args.axis}")
    rows = measure(args.model, args.axis, counts, args.rounds, **sizes)
    headers = ("scaling", "devices", "problems", "generate, s", "gradient, s", "deviation", "equal tokens")
    print(markdown(headers, [[x if isinstance(x, str) else f"{x:.3g}" for x in row] for row in rows]))


if __name__ == "__main__":
    main()
