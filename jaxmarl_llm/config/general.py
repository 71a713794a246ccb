"""Fields of the machine and of the run: seed, model, devices, executor, evaluations, checkpoints, logs."""

from jaxmarl_llm.config import maporl, remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict
from jaxmarl_llm.utils.errors import UserError

LARGEST_SEED = 2**32 - 1
DTYPES = ("float32", "bfloat16", "float16")


def _several_devices(config: ConfigDict) -> bool:
    return config.mesh.agent * config.mesh.data * config.mesh.model > 1


def _cuts_along_data(config: ConfigDict) -> bool:
    """Whether ``mesh.fsdp`` divides any parameters: along data, or along agent if it divides no agents."""
    sizes = [*map(len, remote.stacks(config).values())]
    # A model that is fitted for the whole team is a stack of one.
    sizes += [1] * (config.train.system == "maac" or maporl.has_verifier(config))
    return config.mesh.data > 1 or any(size % max(config.mesh.agent, 1) for size in sizes)


FIELDS = (
    # Random keys are made of 32 bits of the seed.
    number("seed", 0, "Seed of every random stream: adapters, rollouts, evaluations, order of the problems.",
           low=0, high=LARGEST_SEED),
    value("seeds", (),
          "Seeds that are trained at the same time, in one program, such as (0, 1, 2), each in its own "
          "folder (docs/sweeps.md); empty: only the one of seed."),
    value("model", "smollm2-135m-instruct",
          "Model of all agents: a bundled name, a local folder, a .gguf file or a hub id. Models with "
          "random weights: random-tiny (one layer, the bundled tokenizer), game-tiny (words of "
          "task.kind=game or lock, or of the sources clues, trust and six), code-tiny (functions of one "
          "line, for task.source=sums)."),
    # All 1: one device. The product must be the number of devices.
    number("mesh.agent", 1, "Devices over which the agents are divided; if they cannot be divided equally, "
           "the problems are.",
           low=1),
    number("mesh.data", 1, "Devices over which the problems and their samples are divided.", low=1),
    number("mesh.model", 1, "Devices over which attention heads, feed-forward width and vocabulary are "
           "divided.", low=1),
    value("mesh.fsdp", False,
          "Divide parameters and optimizer state along mesh.data too, and gather them where they are used.",
          Read(_cuts_along_data, "with mesh.data=1 it divides nothing where mesh.agent divides the agents")),
    number("device.memory_fraction", 0.9,
           "Share of a GPU's memory that JAX takes at the start, unless XLA_CLIENT_MEM_FRACTION is set; 0: "
           "JAX's default share.", low=0, high=1),
    choice("policy.dtype", "float32", "Dtype of the computation; see docs/precision.md.", DTYPES),
    choice("policy.precision", "float32",
           "Precision of products of float32 numbers on GPUs and TPUs; a CPU always computes them in "
           "float32.",
           {"float32": "", "tensorfloat32": "TF32 on GPUs, three passes of bfloat16 on TPUs",
            "bfloat16": "the default of the device: TF32 on GPUs, one pass of bfloat16 on TPUs"}),
    choice("policy.remat", "dots", "Activations that the backward pass recomputes.",
           {"none": "", "dots": "all but those of linear maps", "full": ""}),
    choice("policy.attention", "auto", "Attention over prompts and completions; tokens are always sampled "
           "with xla.",
           {"auto": "the device's own, if supported",
            "xla": "computes all scores", "cudnn": "NVIDIA GPUs",
            "splash": "TPUs"}),
    number("executor.workers", 0, "Programs that run at the same time; 0: one per CPU of this process.",
           low=0),
    number("executor.cpu_seconds", 2.0, "CPU time limit of a program, seconds.", low=0.01),
    number("executor.memory_mb", 512, "Memory limit of a program, MB.", low=64),
    number("executor.min_level", 2,
           "Lowest isolation level at which programs may run: 1 processes, 2 with filters, 3 with "
           "namespaces.",
           low=1, high=3),
    value("executor.allow_modules", (),
          "Installed packages, such as ('numpy',), that programs and tests may import beside the standard "
          "library."),
    value("eval.before", True, "Also evaluate the untrained team on the test problems."),
    number("eval.every", 0, "Iterations between evaluations; 0: only before and after the training.",
           low=0),
    number("eval.samples", 4, "Sampled answers per problem, at the training settings, beside the greedy "
           "one.", low=1),
    number("eval.problems", 0,
           "Validation problems in an evaluation during training, spread over all of them; 0: all.", low=0),
    value("eval.until_agreed", False,
          "In evaluations a conversation ends with the first turn in which all agents give the same "
          "answer, and this answer counts; training always has all turns.",
          Read(lambda c: c.task.kind == "reasoning" and c.train.turns > 1 and not c.task.reward,
               "only task.kind='reasoning' with train.turns above 1 knows whether answers are the same")),
    number("eval.chains", 1, "c: conversations about a problem whose answers vote together, see eval.vote.",
           low=1),
    number("save.every", 10, "Iterations between checkpoints.", low=1),
    number("save.keep", 2, "Checkpoints that stay on disk, beside the best one.", low=1),
    value("log.tensorboard", True, "Write event files to <workdir>/tensorboard."),
    value("log.wandb_project", "", "W&B project to log to (needs the wandb extra); empty: none."),
    number("log.transcripts_every", 1, "Iterations between transcript files; 0: none.", low=0),
    value("log.transcript_tokens", False,
          "Also keep token ids and the sampler's log-probabilities in transcripts.",
          Read(lambda c: c.log.transcripts_every > 0, "no transcripts are written")),
    value("log.report", True, "Write report.html at the end."),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence about invalid seeds, or one per field that several seeds do not allow."""
    seeds = tuple(config.seeds)
    if not seeds:
        return []
    whole = [seed for seed in seeds if type(seed) is int and 0 <= seed <= LARGEST_SEED]
    if len(whole) < len(seeds):
        return [f"seeds={seeds!r}: allowed are whole numbers from 0 to {LARGEST_SEED}"]
    if len(set(seeds)) < len(seeds):
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        return [f"seeds={seeds!r}: {twice} is there twice, each seed is trained once"]
    if config.seed != base.seed:
        return [f"seed={config.seed}: seeds={seeds!r} says what is trained, allowed beside it is {base.seed}"]
    bad = []
    if _several_devices(config):
        bad.append(
            f"seeds={seeds!r}: several seeds are trained on one device, mesh.agent, data and model are 1"
        )
    if config.engine.kind != "local":
        bad.append(
            f"engine.kind={config.engine.kind!r}: completions of several seeds are drawn in this process, allowed is "
            "'local'"
        )
    if config.log.wandb_project:
        bad.append(
            f"log.wandb_project={config.log.wandb_project!r}: of several seeds no run can be logged to W&B, "
            "allowed is ''"
        )
    if config.warm_up.steps and config.warm_up.folder and "{seed}" not in config.warm_up.folder:
        bad.append(f"warm_up.folder={config.warm_up.folder!r}: with several seeds it must hold '{{seed}}'")
    return bad


def refuse_seeds(config: ConfigDict, what: str) -> None:
    """UserError if the config has several seeds; ``what`` names the thing that needs one seed."""
    if config.seeds:
        raise UserError(f"seeds={tuple(config.seeds)!r}: {what} is of one seed, give it as seed")
