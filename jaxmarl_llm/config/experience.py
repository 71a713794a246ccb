"""Fields of train.protocol=experience: an instructor and an assistant, and what they remember of earlier problems."""

from jaxmarl_llm.config.fields import Read, choice, number, value, wrong_encoder
from jaxmarl_llm.config.options import ConfigDict, is_dotted

NAME = "experience"
KINDS = ("optimisation", "generation")  # kinds of tasks with versions of a program
NONE = "none"
BY_VECTORS = ("cosine", "two_step")
# Systems whose credit for an instruction is that of the versions it led to.
_SYSTEMS = ("magrpo", "mareinforce", "marloo", "maremax", "dr_mas")


def of(config: ConfigDict) -> bool:
    """Whether an instructor and an assistant write versions of a program."""
    return config.train.protocol == NAME


def remembers(config: ConfigDict) -> bool:
    """Whether shortcuts are kept for later problems."""
    return of(config) and config.experience.bank == "run"


def shows(config: ConfigDict) -> bool:
    """Whether prompts may hold examples from earlier problems."""
    return remembers(config) and config.experience.select != NONE


def encodes(config: ConfigDict) -> bool:
    """Whether examples are chosen by vectors of texts."""
    return shows(config) and config.experience.select in BY_VECTORS


_OWN = Read(of, "only train.protocol='experience' reads it")
_KEPT = Read(remembers, "only train.protocol='experience' with experience.bank='run' keeps anything")
_SHOWN = Read(shows, "only train.protocol='experience' with a memory that is shown has examples")
_ENCODED = Read(encodes, "only experience.select='cosine' and 'two_step' compare vectors of texts")
FIELDS = (
    choice("experience.bank", "run", "How long shortcuts are kept.",
           {"run": "shortcuts of earlier problems are kept, and saved with the run", NONE: "no shortcut is "
            "kept"},
           read=_OWN),
    choice("experience.select", "cosine", "Which examples of other problems the two agents read. The "
           "instructor's examples are chosen by the last version, the assistant's by the instruction.",
           {"cosine": "vectors", "bm25": "common words", "two_step": "vectors among the 50 best by common words",
            "random": "", NONE: "no example is shown, but the memory is still filled"}, read=_KEPT),
    number("experience.examples", 1, "Examples in a prompt, at most.", low=1, read=_SHOWN),
    value("experience.encoder", "policy",
          "Encoder of programs and instructions: policy (mean of the first model's last hidden states), ngrams (needs "
          "no model), or the dotted name of a function, texts -> vectors.", _ENCODED),
    number("experience.threshold", 0.0, "A shortcut must gain more than this: the reward of its later "
           "version minus that of its earlier one.", low=0, read=_KEPT),
    number("experience.shortcuts", 10, "Shortcuts of a chain at most, those with the greatest gain; the "
           "instructor writes an instruction for each.", low=1, read=_KEPT),
    choice("experience.end", "best", "Where the shortest path ends, from which shortcuts are taken.",
           {"best": "at the best version of a chain", "last": "at its last version"}, read=_KEPT),
    number("experience.keep", 200, "Shortcuts that are kept at most; the newest stay.",
           low=1, read=_KEPT),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that this protocol does not allow."""
    if not of(config):
        return []
    c, agents, where = config.train, tuple(config.team.agents), "train.protocol='experience'"
    bad: list[str] = []
    if len(agents) != 2:
        bad.append(f"team.agents={agents!r}: {where} needs two, the instructor and the assistant")
    if config.task.kind not in KINDS:
        bad.append(f"task.kind={config.task.kind!r}: {where} allows {' or '.join(KINDS)}")
    if c.system not in _SYSTEMS and not is_dotted(c.system):
        bad.append(f"train.system={c.system!r}: {where} allows {', '.join(_SYSTEMS)}")
    bad += wrong_encoder(config, "experience.encoder")
    if remembers(config) and c.overlap:
        bad.append(
            "train.overlap=True: experience.bank='run' shows what came of an iteration in the next one"
        )
    return bad


def most_shortcuts(config: ConfigDict) -> int:
    """Most shortcut instructions in a chain: pairs of versions, with the given program, not neighbours."""
    turns = config.train.turns
    return min(config.experience.shortcuts, turns * (turns - 1) // 2) if remembers(config) else 0
