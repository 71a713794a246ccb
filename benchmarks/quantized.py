"""Measure how quantising a frozen base (`model_options.quantize`) changes its predictions.

    python -m benchmarks.quantized

The texts are test problems of the written set, each followed by its solution, as in a program; no training of
this project reads them. For every token but a text's first: the divergence KL(p || q) in nats, where p is the
stored model's distribution and q the quantised model's; whether both have the same most likely token; and how
much less likely the actual token became. Everything is computed in float32.
"""

import argparse
import functools
import importlib.resources
import json

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import machine
from benchmarks.tables import markdown
from jaxmarl_llm import weights
from jaxmarl_llm.sampling.padding import bucket
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.weights import model_files


def held_texts(number: int) -> list[str]:
    """The first test problems, from each file in turn, with their solutions."""
    folder = importlib.resources.files("jaxmarl_llm.tasks") / "data" / "written"
    by_file = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        by_file.append([row["prompt"] + row["canonical_solution"] for row in rows if row["split"] == "test"])
    longest = max(map(len, by_file))
    return [texts[i] for i in range(longest) for texts in by_file if i < len(texts)][:number]


@functools.partial(jax.jit, static_argnames="policy")
def compared(policy, stored, quantised_variables, tokens_L, length) -> jax.Array:
    """Sums over a text's tokens but the first: KL, equal choices, log p - log q of the token, and 1."""
    positions_1L = jnp.arange(tokens_L.shape[0])[None]

    def log_probs(variables):
        logits_1LV, _ = policy.apply(variables, tokens_L[None], positions_1L)
        return jax.nn.log_softmax(logits_1LV[0, :-1])

    p_LV, q_LV = log_probs(stored), log_probs(quantised_variables)
    there_L = positions_1L[0, 1:] < length
    divergence_L = (jnp.exp(p_LV) * (p_LV - q_LV)).sum(-1)
    same_L = p_LV.argmax(-1) == q_LV.argmax(-1)
    lost_L = jnp.take_along_axis(p_LV - q_LV, tokens_L[1:, None], axis=-1)[:, 0]
    rows = jnp.stack([divergence_L, same_L.astype(jnp.float32), lost_L, jnp.ones_like(lost_L)])
    return jnp.where(there_L, rows, 0).sum(-1)


def losses(model: weights.LoadedModel, variables, texts) -> np.ndarray:
    """Means over all tokens but each text's first: KL, share of equal choices, log p - log q; the count."""
    total = np.zeros(4)
    for text in texts:
        ids = model.tokenizer.encode(text)
        tokens_L = np.zeros(bucket(len(ids)), np.int32)
        tokens_L[: len(ids)] = ids
        total += compared(model.policy, model.params, variables, tokens_L, len(ids))
    return np.array([*total[:3] / total[3], total[3]])


def bits(variables) -> float:
    """Mean bits per weight of the layers' linear maps, including its part of the scales."""
    count = sum(np.prod(shape) for shape in quantised.kernel_shapes(variables).values())
    return 8 * sum(x.nbytes for x in jax.tree.leaves(variables[quantised.COLLECTION])) / count


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=model_files.DEFAULT, help="as config.model")
    parser.add_argument("--texts", type=int, default=64, help="how many texts are read")
    args = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    model, texts = weights.load(args.model), held_texts(args.texts)
    rows = []
    for kind in quantised.KINDS:
        variables = quantised.quantised(model.params, kind)
        divergence, same, lost, tokens = losses(model, variables, texts)
        shown = f"{bits(variables):.1f}", f"{divergence:.5f}", f"{100 * same:.2f} %", f"{lost:+.5f}"
        rows.append((kind, *shown))
        print(f"{kind}: {int(tokens)} tokens of {len(texts)} texts", flush=True)
    print(
        markdown(
            ("kept in", "bits a weight", "KL, nats a token", "same first choice", "log-likelihood lost"), rows
        )
    )


if __name__ == "__main__":
    main()
