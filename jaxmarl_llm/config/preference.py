"""Fields of systems that learn from pairs of which one earned more: madpo, marlhf, their _iter, dpo, malt, sweet."""

from jaxmarl_llm.config import maporl
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, field
from jaxmarl_llm.config.systems import DIRECT, FROM_PAIRS, OFFLINE

# What all of them need.
NEEDED = {
    "train.turns": (1, "a pair is of answers to the same prompts"),
    "mesh.agent": (1, "its answers are scored on one device"),
    "mesh.data": (1, "its answers are scored on one device"),
    "mesh.model": (1, "its answers are scored on one device"),
}


def _pairs(config: ConfigDict) -> bool:
    return config.train.system in FROM_PAIRS or maporl.has_verifier(config)


_NO_PAIRS = f"only train.system={', '.join(map(repr, FROM_PAIRS))} learn from pairs"
# The reference of malt and sweet is always the team as their last stage begins with it.
_WITH_REFERENCE = tuple(name for name in DIRECT if name not in ("malt", "sweet"))
_WITH_NLL = ("dpo", "malt", "sweet")
FIELDS = (
    number("preference.collect", 10,
           "madpo, marlhf, dpo, malt, sweet, maporl.verifier: first iterations, which collect pairs, or dialogues, "
           "without learning.",
           low=1),
    number("preference.pairs", 4,
           "Pairs of a problem's joint answers in an iteration, of dpo, malt, sweet and maporl.verifier of an agent's "
           "to one prompt; 0: all.",
           low=0),
    choice("preference.selection", "gap", "Which pairs, if there are more.",
           {"gap": "those of the greatest difference of rewards, of sweet of the critic's scores", "random": "",
            "halves": "random ones of one of the better and one of the worse half, each in one pair at most"},
           read=Read(lambda c: _pairs(c) and (c.preference.pairs > 0 or c.preference.selection == "halves"),
                     f"{_NO_PAIRS}, and with preference.pairs=0 all pairs are kept")),
    choice("preference.replay", "all", "Pairs to learn from, of _iter.",
           {"current": "of this iteration", "nearest": "of the last iterations", "all": "",
            "decay": "of an iteration a ago together lambda^a"}, read=Read(_pairs, _NO_PAIRS)),
    number("preference.nearest", 3, "Iterations of replay=nearest, this one counted.", low=1),
    number("preference.decay", 0.5, "lambda of replay=decay; 1: all iterations alike.", low=0.01, high=1),
    number("preference.batch", 16,
           "Pairs of an update, of madpo's agents, of each agent of dpo, malt and sweet, of marlhf's reward model, of "
           "sweet's critic, or of a verifier.",
           low=1),
    number("preference.beta", 0.1,
           "madpo, dpo, malt, sweet: strength of the pull to the reference (DPO's beta).", low=1e-6),
    value("preference.reference", False,
          "madpo, dpo: subtract log-probabilities of the reference policy (DPO): what the run began with.",
          Read(lambda c: c.train.system in _WITH_REFERENCE,
               f"only train.system={' and '.join(map(repr, _WITH_REFERENCE))} read it")),
    number("preference.nll", 0.0,
           "dpo, malt, sweet: weight of the negative log-likelihood per token of the better answers in the loss.",
           low=0, read=Read(lambda c: c.train.system in _WITH_NLL,
                            f"only train.system={' and '.join(map(repr, _WITH_NLL))} read it")),
    number("preference.model_updates", 32,
           "marlhf, a verifier: updates of the model whenever it is fitted: once, of _iter in every iteration; sweet: "
           "of the critic in each of sweet.critic_steps.",
           low=1),
    number("preference.model_lr", 1e-4,
           "marlhf, sweet, maporl.verifier: learning rate of the AdamW of the reward model, critic or verifier.",
           low=0),
    number("preference.pairs_per_microbatch", 4,
           "marlhf, sweet, maporl.verifier: pairs of a micro-batch of the reward model, critic or verifier.", low=1),
)  # fmt: skip


def needs_reference(config: ConfigDict) -> bool:
    """Whether the loss compares with the untrained model."""
    return config.train.system in _WITH_REFERENCE and config.preference.reference


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that ``train.system`` does not allow."""
    c, p = config.train, config.preference
    bad: list[str] = []
    name = f"train.system={c.system!r}"
    if c.system not in FROM_PAIRS:
        return bad
    for path, (wanted, why) in NEEDED.items():
        if field(config, path) != wanted and (path, c.system) != ("train.turns", "sweet"):
            bad.append(f"{path}={field(config, path)!r}: {name} needs {wanted!r}: {why}")
    protocols = ("simultaneous", "tree") if c.system == "dpo" else ("simultaneous",)
    if c.protocol not in protocols and c.system not in ("malt", "sweet"):  # which need another
        allowed = " or ".join(map(repr, protocols))
        bad.append(
            f"train.protocol={c.protocol!r}: {name} needs {allowed}: a pair is of answers to the same prompts"
        )
    if c.system in OFFLINE and p.replay != "all":
        bad.append(f"preference.replay={p.replay!r}: {name} learns from what it collected, allowed is 'all'")
    if c.system in OFFLINE and p.collect >= c.steps:
        bad.append(f"preference.collect={p.collect}: must be below train.steps={c.steps}, or nobody learns")
    return bad + (_direct(config) if c.system in DIRECT else [])


def _direct(config: ConfigDict) -> list[str]:
    c, bad = config.train, []
    if c.prompts_per_microbatch > 0 and config.preference.batch % c.prompts_per_microbatch:
        bad.append(
            f"train.prompts_per_microbatch={c.prompts_per_microbatch}: must divide the "
            f"preference.batch={config.preference.batch} pairs of an update"
        )
    return bad
