"""Our side of an iteration as a process of its own, so that its memory is free again when it has ended.

    python -m benchmarks.gpu.side SETTINGS

SETTINGS is JSON: the fields of a `cells.Case`, and ``model_path``. It answers as a `peers.Peer`: a request with
a unit by seconds, one without by the machine, the prompts, and the work of an iteration.
"""

import json
import os
import sys

import jax

from benchmarks import machine, ours
from benchmarks.gpu import rows
from benchmarks.gpu.cells import Case
from jaxmarl_llm.analysis.planning import chips, estimate, from_config


def work(config) -> dict[str, float]:
    """Operations that an iteration of both agents needs, by phase, as `experiments.plan` counts them."""
    (job,) = from_config.jobs(config, jax.devices()[:1])
    needed = {phase.name: phase.needed for phase in estimate.phases(job)}
    return {"generate": needed["prefill"] + needed["decode"], "update": needed["update"]}


def peak(dtype: str) -> tuple[float, str]:
    """Operations per second at most, and whether they are the chip's published rate (in bfloat16) or measured."""
    chip = chips.of_device(jax.devices()[0])
    return (chip.flops, "published") if chip else (machine.matrix_rate(dtype), "measured")


def describe(side: ours.Ours) -> dict:
    """The machine, the prompts, and the work of an iteration."""
    rate, source = peak(side.config.policy.dtype)
    return {
        "machine": rows.machine(),
        "texts": side.texts,
        "prompts": side.prompts,
        "vocabulary": side.policy_config.vocab_size,
        "work": work(side.config),
        "peak": rate,
        "peak_is": source,
    }


def serve(settings: dict, requests, answers) -> None:
    """Answer every request."""
    path = settings.pop("model_path")
    fields = tuple(tuple(pair) for pair in settings.pop("fields"))
    side = ours.Ours(Case(**settings, fields=fields).config(path))
    for line in requests:
        request = json.loads(line)
        print(json.dumps(side.ask(**request) if request else describe(side)), file=answers, flush=True)


if __name__ == "__main__":
    # What libraries print must not reach the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(json.loads(sys.argv[1]), sys.stdin, out)
