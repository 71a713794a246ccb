"""Fields of systems that learn from pairs of answers: madpo, marlhf, their _iter, dpo, malt, sweet."""

from jaxmarl_llm.config import maporl
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, field
from jaxmarl_llm.config.systems import DIRECT, FROM_PAIRS, OFFLINE

# Fields that all these systems need: (value, why).
NEEDED = {
    "train.turns": (1, "a pair is of answers to the same prompts"),
    "mesh.agent": (1, "its answers are scored on one device"),
    "mesh.data": (1, "its answers are scored on one device"),
    "mesh.model": (1, "its answers are scored on one device"),
}


def _pairs(config: ConfigDict) -> bool:
    return config.train.system in FROM_PAIRS or maporl.has_verifier(config)


_NO_PAIRS = f"only train.system={', '.join(map(repr, FROM_PAIRS))} learn from pairs"
# The reference of malt and sweet is always the team at the start of their last stage.
_WITH_REFERENCE = tuple(name for name in DIRECT if name not in ("malt", "sweet"))
_WITH_NLL = ("dpo", "malt", "sweet")
FIELDS = (
    number("preference.collect", 10,
           "madpo, marlhf, dpo, malt, sweet, maporl.verifier: iterations at the start, which collect "
           "pairs, or dialogues, without learning.",
           low=1),
    number("preference.pairs", 4,
           "Pairs kept from a problem's joint answers in an iteration; in dpo, malt, sweet and "
           "maporl.verifier from an agent's answers to one prompt; 0: all.",
           low=0),
    choice("preference.selection", "gap", "Which pairs are kept, if there are more.",
           {"gap": "the greatest difference of rewards, in sweet of the critic's scores", "random": "",
            "halves": "random pairs of one answer of the better half and one of the worse half, each "
            "answer in one pair at most"},
           read=Read(lambda c: _pairs(c) and (c.preference.pairs > 0 or c.preference.selection == "halves"),
                     f"{_NO_PAIRS}, and with preference.pairs=0 all pairs are kept")),
    choice("preference.replay", "all", "Pairs to learn from, in the systems that end in _iter.",
           {"current": "those of this iteration", "nearest": "those of the last iterations", "all": "",
            "decay": "all, with total weight lambda^a for age a"},
           read=Read(_pairs, _NO_PAIRS)),
    number("preference.nearest", 3, "Iterations of replay=nearest, including the current one.",
           low=1),
    number("preference.decay", 0.5, "lambda of replay=decay; 1: all iterations have equal weight.",
           low=0.01, high=1),
    number("preference.batch", 16,
           "Pairs in an update: of madpo's agents, of each agent of dpo, malt and sweet, of marlhf's "
           "reward model, of sweet's critic, or of a verifier.",
           low=1),
    number("preference.beta", 0.1,
           "madpo, dpo, malt, sweet: DPO's beta, how strongly the policy is pulled to the reference.",
           low=1e-6),
    value("preference.reference", False,
          "madpo, dpo: subtract log-probabilities of the reference policy (DPO), that of the run's start.",
          Read(lambda c: c.train.system in _WITH_REFERENCE,
               f"only train.system={' and '.join(map(repr, _WITH_REFERENCE))} read it")),
    number("preference.nll", 0.0,
           "dpo, malt, sweet: weight of the negative log-likelihood per token of the better answers in the loss.",
           low=0, read=Read(lambda c: c.train.system in _WITH_NLL,
                            f"only train.system={' and '.join(map(repr, _WITH_NLL))} read it")),
    number("preference.model_updates", 32,
           "Updates of the model each time it is fitted: marlhf and a verifier fit it once, marlhf_iter in "
           "every iteration, and sweet fits its critic in each of sweet.critic_steps.",
           low=1),
    number("preference.model_lr", 1e-4,
           "marlhf, sweet, maporl.verifier: AdamW's learning rate for the reward model, critic or verifier.",
           low=0),
    number("preference.pairs_per_microbatch", 4,
           "marlhf, sweet, maporl.verifier: pairs in a micro-batch of the reward model, critic or verifier.",
           low=1),
)  # fmt: skip


def needs_reference(config: ConfigDict) -> bool:
    """Whether the loss needs the reference policy."""
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
