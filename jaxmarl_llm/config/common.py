"""What every config shares: the text after the colon, and all fields with their defaults. No JAX in here."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from ml_collections import config_dict

from jaxmarl_llm.config import imitation, model_options, programs, task_fields

ConfigDict = config_dict.ConfigDict


def field(config: Mapping, path: str):
    """The value at a dotted path."""
    for name in path.split("."):
        config = config[name]
    return config


def leaves(config: Mapping, prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields that are no sections; an empty section is a field that holds a dict."""
    for name, value in config.items():
        if isinstance(value, ConfigDict) and len(value):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def no_such_field(path: str, known: Iterable[str]) -> str:
    """A sentence about a dotted name that no field has, with those that may be meant.

    Fields with the same last name come first, then those that are spelled like the whole or its last name.
    """
    known, last = list(known), path.rpartition(".")[2]
    lasts: dict[str, list[str]] = {}
    for name in known:
        lasts.setdefault(name.rpartition(".")[2], []).append(name)
    meant = lasts.get(last) or difflib.get_close_matches(path, known, 1, 0.8)
    meant = meant or [name for like in difflib.get_close_matches(last, lasts, 1, 0.7) for name in lasts[like]]
    meant = meant or difflib.get_close_matches(path, known, 1)
    return f"there is no config field {path!r}" + (f"; did you mean {' or '.join(meant)}?" if meant else "")


def parse_arg(arg: str | None, **defaults):
    """Typed options from ``--config=file.py:name=value,flag``.

    Args:
      arg: text after the colon; None or empty gives the defaults.
      **defaults: every known option; its type converts the text (a bool may be given as a bare name).

    Returns:
      A ConfigDict of all options.

    Raises:
      ValueError: for an unknown option, naming the known ones, or a value of the wrong type.
    """
    options = ConfigDict(defaults)
    for piece in filter(None, (arg or "").split(",")):
        name, _, text = piece.partition("=")
        if name not in defaults:
            known = f"known are: {', '.join(defaults)}" if defaults else "this file has no options"
            raise ValueError(f"unknown config option {name!r}; {known}")
        kind = type(defaults[name])
        if kind is bool:
            if text.lower() not in ("", "true", "false", "1", "0"):
                raise ValueError(f"config option {name}={text!r} must be true or false")
            options[name] = text.lower() in ("", "true", "1")
            continue
        try:
            options[name] = kind(text)
        except ValueError:
            raise ValueError(f"config option {name}={text!r} must be of type {kind.__name__}") from None
    return options


def base_config() -> ConfigDict:
    """All fields, with MAGRPO's settings (arXiv 2508.04652); each config file changes what it needs."""
    c = ConfigDict()
    c.seed = 0  # of every random stream: adapters, rollouts, evaluation, order of the problems; below 2**32
    c.model = "smollm2-135m-instruct"  # bundled name, local folder, .gguf file or hub id, or with random
    # weights: random-tiny (one layer, the bundled tokenizer), game-tiny (words of task.kind=game or lock)
    c.team = ConfigDict()
    c.team.agents = ("aux", "main")  # names, in the order of the task's roles; one works alone. Letters,
    # digits and _, and none that other metrics begin with, such as train
    c.team.models = ()  # one model per agent for a heterogeneous team; empty: config.model for all
    # | expert:<name>: a model behind the endpoint of config.expert, which speaks and does not learn
    # | scripted:mixture: a script that draws from the known rewrites of an optimisation problem
    # | scripted:follower: a script that does what the lessons about a lock say
    c.team.agent = ConfigDict()  # settings of single agents, team.agent.<name>.<field>: trainable (False: it
    # answers with its start parameters), lr, temperature, top_p, top_k, min_p, max_new_tokens; a field that
    # is not set takes the value of all agents, of train.lr or sampling
    c.team.mode = "adapters"  # adapters (one shared base) | full (a copy per agent) | frozen
    c.team.rank = 16  # of the adapters; ignored in the other modes, as alpha and targets are
    c.team.alpha = 32.0  # the low-rank addition is scaled by alpha / rank
    c.team.targets = ("q", "k", "v", "o", "gate", "up", "down")  # linear maps that get an adapter
    # What agents begin with, and what the reference policy of KL terms and comparisons is.
    c.team.begin = ""  # run folder whose agents' parameters are taken over; empty: the model as it is
    c.team.begin_map = ()  # ("aux1=aux", "aux2=aux"): agents of this team that begin as another one of that
    # run's; empty: as the one of their own name
    c.team.begin_step = "latest"  # checkpoint of that run: latest | best | a number of iterations
    # How many devices cut each axis; all 1: one device. The product must be the number of devices.
    c.mesh = ConfigDict()
    c.mesh.agent = 1  # agents; where it does not divide those of one model, it cuts problems instead
    c.mesh.data = 1  # problems and their samples
    c.mesh.model = 1  # attention heads, the feed-forward's width and the vocabulary
    c.mesh.fsdp = False  # cut parameters and optimizer along data too, at the price of gathering them
    c.policy = ConfigDict()
    c.policy.dtype = "float32"  # of the computation: float32 | bfloat16 | float16; weights stay float32
    c.policy.remat = "dots"  # recomputed in the backward pass: none | dots (all but linear maps) | full
    model_options.add_fields(c)
    task_fields.add_fields(c)
    c.executor = ConfigDict()
    c.executor.workers = 0  # programs that run at a time; 0: one per CPU of this process
    c.executor.cpu_seconds = 2.0  # per program
    c.executor.memory_mb = 512  # per program
    c.executor.min_level = 2  # refuse to run below this isolation: 1 process | 2 with filters | 3 namespaces
    c.sampling = ConfigDict()
    c.sampling.max_new_tokens = 256  # longest completion, its end-of-text token counted
    c.sampling.temperature = 1.0  # divides the logits, in training and in sampled evaluation
    c.sampling.top_k = 0  # 0 keeps all
    c.sampling.top_p = 1.0  # keep the likeliest tokens that reach this probability; 1 keeps all
    c.sampling.min_p = 0.0  # keep tokens at least this times as likely as the likeliest; 0 keeps all
    c.sampling.stop = ()  # texts that end a completion, e.g. ("\n\n", "<|im_start|>")
    c.sampling.dtype = ""  # of a copy of the weights to sample with: float32 | bfloat16; empty: policy.dtype
    # A dtype of its own makes the sampler differ from what is trained, see train.importance_cap.
    c.sampling.max_prompt_tokens = 1024  # longest prompt, chat markup counted
    c.sampling.long_prompts = "error"  # error | truncate (on the left, with a warning)
    _add_training(c)
    imitation.add_fields(c)
    programs.add_fields(c)
    _add_outputs(c)
    return c


def _add_training(c: ConfigDict) -> None:
    """Sections of the training loop."""
    c.train = ConfigDict()
    c.train.max_minutes = 0.0  # no new iteration once a run has lasted that long; 0: no limit
    c.train.steps = 100  # iterations: rollout, credit, update
    # Of the whole training; 0: none. It ends when all that are given are reached; at each of them the team is
    # evaluated on the test items.
    c.train.budget_tokens = 0  # completion tokens drawn
    c.train.budget_answers = 0  # joint answers judged
    c.train.prompts = 4  # B: problems per iteration
    c.train.grade_every = 0  # iterations until problems of the next grade join in; 0: all from the start
    # How rewards become what agents learn; docs/systems.md has a line and the equation of each.
    c.train.system = "magrpo"  # magrpo | mareinforce | marloo | maremax | dr_mas | at_grpo | c3 | ccpo
    # | centralised | iac | maac (a critic per agent, or one of all, says what was to be expected)
    # | madpo | madpo_iter | marlhf | marlhf_iter (pairs of joint answers, a reward model; see c.preference)
    # | sft (agents imitate demonstrations, nothing is drawn or judged; see c.sft)
    # | lessonl (agents that learn lessons from each other, with the protocol of that name; see c.lessons)
    # | dotted name of a function of your own, forest and credit settings -> credit
    c.train.group = 4  # G: samples per agent and problem; with critic.form=v one will do
    c.train.joint_mode = "aligned"  # aligned: G joint answers | cross: all G**N of them
    c.train.partner_samples = 0  # K: further samples of every agent for each problem, not learned from: they
    # are judged beside its partners' samples, whose returns are then less a matter of luck
    c.train.reduce = "mean"  # cross: a sample's return is the mean | sum over its joint answers
    c.train.protocol = "simultaneous"  # simultaneous | pipeline | discussion | tree; all but the first:
    # aligned, a tree in one turn. There each agent answers every path of answers before it G times. Of
    # programs: lessonl | repeated | reflexion | mapcoder | mixture, train.turns rounds
    # | dotted name of a protocol of your own, see docs/tasks.md
    c.train.turns = 1  # answers in a row: from the second on, agents revise theirs after task.feedback
    c.train.hand_on = "all"  # answers of a node that get a next turn: all (a tree) | best | random (chains)
    c.train.stop_above = 0.0  # no next turn where a node's mean reward, on its own scale, is greater; 0: off
    c.train.discount = 1.0  # gamma: what a later turn earns counts this much one turn earlier
    c.train.backup = "mean"  # later turns add their mean | max return; last: only the last answers count
    c.train.turn_weights = ()  # of each turn's advantages; empty: all alike
    c.train.turn_loss = "return"  # later turns weigh as in the return's gradient | mean: as published
    c.train.local_weight = 0.0  # at_grpo: weight of what an agent earned by itself beside the team's reward
    c.train.counterfactual = ""  # also judge every joint answer without each agent's part, in whose place is
    # nothing (no text) | sample (its next one) | reference (the untrained agent's greedy answer) | nothing,
    # and those who had heard it speak again: solo. Empty: no. For credit/.. metrics, and ccpo learns from it
    c.train.baseline = "mean"  # mean | leave_one_out | max | none
    c.train.normalise = False  # divide advantages by a standard deviation:
    c.train.normalise_by = "group"  # of a group's returns, less their mean | agent: of all its advantages
    c.train.loss = ""  # dotted name of a loss of your own, see docs/losses.md; empty: as the fields below say
    c.train.clip = 0.0  # PPO's epsilon; 0: no importance ratio
    c.train.clip_high = 0.0  # the same above 1, at least clip (DAPO's clip-higher); 0: as train.clip
    c.train.dual_clip = 0.0  # greatest ratio that still learns from a negative advantage, such as 3; 0: any
    c.train.ratio_level = "token"  # token | sequence_normalised (geometric mean: GSPO) | sequence (product)
    c.train.aggregation = "sequence"  # sequence (sum over tokens) | token | sequence_mean | constant
    # The sum over tokens is divided by answers, tokens (DAPO), each answer's own tokens and then answers
    # (GRPO), or answers times sampling.max_new_tokens (Dr. GRPO).
    c.train.drop_truncated = False  # learn nothing from completions that were cut off (DAPO)
    c.train.importance_cap = 0.0  # weigh tokens by policy / sampler, at most this; 0: no weights
    c.train.overlap = False  # draw and judge the next answers while this iteration's update is made; they
    # are off-policy by that update, so it needs clip or importance_cap
    c.train.kl_coef = 0.0  # weight of a KL term towards the reference policy: what the run began
    # with; 0: off
    c.train.kl_kind = "k3"  # k2 | k3; not k1, whose gradient is 0 on average
    c.train.entropy_coef = 0.0  # weight of an entropy bonus per token, against collapse; 0: off
    c.train.minibatches = 1  # updates per iteration, each on a share of the problems
    # Of each part that mesh.data cuts the problems into:
    c.train.prompts_per_microbatch = 1  # prompts whose keys and values are held in memory together
    c.train.tokens_per_microbatch = 512  # tokens of an agent's completions whose activations are
    c.train.comlrl_compat = False  # CoMLRL 1.4.3's loss with its quirks, for comparison only
    c.train.lr = 2e-5  # of AdamW, after the first updates of train.warmup
    c.train.warmup = 0  # first updates, in which the rate rises to lr; the imitation before a run is warm_up
    c.train.decay = "constant"  # constant | linear | cosine, over the updates after those
    c.train.weight_decay = 0.0  # AdamW's, per unit of learning rate
    c.train.grad_clip = 1.0  # global norm per agent; 0: off
    # Of train.system=iac and maac. Each critic begins as the model, with adapters (or a copy) of its own.
    c.critic = ConfigDict()
    c.critic.form = "v"  # v: what a prompt will earn | q: what a reply will earn, needs train.group >= 2
    c.critic.shared = False  # iac: a head on the agent's own parameters, one step for both; else as above
    c.critic.coef = 0.6  # with shared: weight of the value loss in the agent's gradient
    c.critic.lr = 1e-4  # of AdamW; with shared of the head
    c.critic.updates = 1  # steps of a critic in an iteration, each on all that was read; with shared 1 only
    c.critic.warmup = 0  # first iterations in which only the critics learn; with shared 0 only
    c.critic.clip = 0.0  # of the value loss: how far values may move from those before the update; 0: no clip
    c.critic.prompts_per_microbatch = 4  # of each critic, and of each part that mesh.data cuts its texts into
    # Of train.system=madpo, marlhf and their _iter: pairs of joint answers of which one earned more.
    c.preference = ConfigDict()
    c.preference.collect = 10  # madpo, marlhf: the first iterations, in which nobody learns
    c.preference.pairs = 4  # kept of a problem's joint answers in an iteration; 0: all
    c.preference.selection = "gap"  # which, if there are more: gap (the greatest of rewards) | random
    c.preference.replay = "all"  # pairs to learn from, in _iter: current (of this iteration) | nearest | all
    # | decay (those of an iteration a ago together lambda^a)
    c.preference.nearest = 3  # iterations of replay=nearest, this one counted
    c.preference.decay = 0.5  # lambda of replay=decay; 1: every iteration alike
    c.preference.batch = 16  # pairs of an update, of madpo's agents or of marlhf's reward model
    c.preference.beta = 0.1  # madpo: how far preferences may move the policies, the smaller the further
    c.preference.reference = False  # madpo: take log-probabilities less those of the reference policy (DPO)
    c.preference.model_updates = 32  # marlhf: of the reward model whenever it is fitted, which is once, or in
    # _iter in every iteration
    c.preference.model_lr = 1e-4  # marlhf: of the reward model's AdamW
    c.preference.pairs_per_microbatch = 4  # marlhf: pairs that the reward model reads at a time


def _add_outputs(c: ConfigDict) -> None:
    """Sections of what a run measures and leaves behind."""
    c.eval = ConfigDict()
    c.eval.before = True  # evaluate the untrained team too
    c.eval.every = 0  # iterations between evaluations; 0: only before and after
    c.eval.samples = 4  # per problem, at the training settings, beside the greedy one
    c.eval.problems = 0  # problems of evaluations during training, spread over all; 0: all, as at both ends
    c.save = ConfigDict()
    c.save.every = 10  # iterations between checkpoints
    c.save.keep = 2  # checkpoints on disk, the best one besides
    c.log = ConfigDict()
    c.log.tensorboard = True  # event files in <workdir>/tensorboard
    c.log.wandb_project = ""  # also log to this W&B project, which needs the wandb extra; empty: no
    c.log.transcripts_every = 1  # iterations between transcript files; 0: none
    c.log.report = True  # write report.html at the end


def laptop(c: ConfigDict) -> None:
    """How the default model learns on two CPU cores, whatever the task."""
    c.sampling.stop = ("<|im_start|>",)  # the next message
    c.train.joint_mode = "cross"
    c.train.lr = 5e-4
    c.train.warmup = 2
    c.train.decay = "linear"
    c.train.grad_clip = 0.0
    c.train.tokens_per_microbatch = 160  # measured: few rows stay empty, products are still wide
    c.eval.samples = 3
    c.save.every = 5


def smoke(c: ConfigDict) -> None:
    """The whole path in seconds: it proves that everything runs, not that anything is learned."""
    c.model = "random-tiny"
    c.team.rank = 2
    c.sampling.max_new_tokens = 16
    c.train.steps = 2
    c.train.decay = "constant"  # so that a larger train.steps goes on from here
    c.train.prompts = 2
    c.train.prompts_per_microbatch = min(c.train.prompts_per_microbatch, 2)
    c.train.group = 2
    c.eval.every = 1
    c.eval.samples = 2
    # A source may be a slice already, and of a slice there is none.
    c.task.eval_source = c.task.test_source = f"{c.task.source.partition('[')[0]}[:4]"
    c.save.every = 1
