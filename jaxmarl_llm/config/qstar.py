"""Fields of train.protocol=qstar: best-first search over lines of an answer, and its values (Q*)."""

from jaxmarl_llm.config import remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted

NAME = "qstar"
KINDS = ("generation", "reasoning")  # of tasks whose answers can be searched line by line
# `repeated` answers such questions too, as a baseline.
OF_QUESTIONS = (NAME, "repeated")
FITTED, ASKED = "fitted", "agent"


def of(config: ConfigDict) -> bool:
    """Whether answers are searched line by line."""
    return config.train.protocol == NAME


def writers(config: ConfigDict) -> tuple[str, ...]:
    """The agents whose answers are judged: in such a search only the first one."""
    agents = tuple(config.team.agents)
    return agents[:1] if of(config) else agents


_SEARCH = Read(of, "only train.protocol='qstar' reads it")
FIELDS = (
    # Of the search.
    number("qstar.samples", 3, "k: lines that are drawn after a text when it is expanded; equal lines "
           "count as one.", low=1,
           read=_SEARCH),
    number("qstar.expansions", 48, "Expansions for a problem at most; not below qstar.depth.",
           low=1, read=_SEARCH),
    number("qstar.depth", 24, "Lines of an answer at most; in programs a string of several lines counts as "
           "one.", low=1,
           read=_SEARCH),
    number("qstar.answers", 4, "Answers that are judged for a problem at most, in the order of the search.",
           low=1,
           read=_SEARCH),
    number("qstar.step_tokens", 32, "Longest line in tokens; a whole answer has sampling.max_new_tokens.",
           low=1,
           read=_SEARCH),
    number("qstar.weight", 1.0, "lambda of f = g + lambda h, by which the next text is chosen.", low=0, read=_SEARCH),
    choice("qstar.value", "none", "h, the estimated value of a text; or the dotted name of a function of "
           "your own, (questions, texts) -> numbers.",
           {"none": "0: of texts with equal f the oldest is next, breadth first",
            "random": "a number at random from 0 to 1",
            "longest": "the number of lines: depth first", ASKED: "the reply of the second of two agents, "
            "0 to 1",
            FITTED: "Q of the model that experiments.values has fitted, see qstar.model"}, dotted=True, read=_SEARCH),
    value("qstar.model", "", "Folder of experiments.values with the model of qstar.value=fitted.",
          Read(lambda c: of(c) and c.qstar.value == FITTED, "only qstar.value='fitted' reads it")),
    choice("qstar.process", "none",
           "Process rewards, from which g is computed; or the dotted name of a function of your own, "
           "(questions, texts) -> a reward of the last line of each text.",
           {"none": "0", "tokens": "of programs, -0.5 for a line that does not tokenise"}, dotted=True, read=_SEARCH),
    choice("qstar.aggregate", "last", "How g of a text follows from the process rewards of its lines.",
           ("min", "max", "sum", "last"), read=_SEARCH),
    # Of experiments.values.
    choice("qstar.labels", "fitted", "What the model of experiments.values is fitted to, see docs/qstar.md.",
           {"fitted": "y = r + discount max Q of the next lines, Q as fitted so far",
            "best_rollout": "the best return of the answers that continue after a line",
            "completions": "from the second agent's completions, with the mean over the next lines"},
           read=_SEARCH),
    number("qstar.discount", 1.0, "Discount of the labels, once per line.", low=0, high=1, read=_SEARCH),
    number("qstar.rollouts", 8, "Answers to each training problem; with labels=completions also the number "
           "of completions.",
           low=1, read=_SEARCH),
    number("qstar.rounds", 12, "How often labels are computed; labels=fitted needs as many rounds as "
           "answers have lines.", low=1,
           read=_SEARCH),
    number("qstar.updates", 20, "Updates of the model in a round.", low=1, read=_SEARCH),
    number("qstar.batch", 16, "Texts in an update.", low=1, read=_SEARCH),
    number("qstar.lr", 1e-3, "Learning rate of the model's AdamW.", low=0, read=_SEARCH),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that such a search does not allow."""
    own = config.qstar
    bad: list[str] = []
    if not of(config):
        return bad
    agents, models = tuple(config.team.agents), remote.agents(config)
    if own.expansions < own.depth:
        bad.append(
            f"qstar.expansions={own.expansions}: an answer of qstar.depth={own.depth} lines takes as many, allowed is "
            f"{own.depth} or more"
        )
    if config.sampling.temperature == 0 and own.samples > 1:
        bad.append(f"qstar.samples={own.samples}: at sampling.temperature=0.0 all are equal, allowed is 1")
    if own.process == "tokens" and config.task.kind == "reasoning":
        bad.append("qstar.process='tokens': task.kind='reasoning' has no programs, allowed is none")
    if own.value == FITTED and not own.model:
        bad.append("qstar.model='': qstar.value='fitted' needs the folder of experiments.values")
    if own.value == FITTED and config.team.mode == "full":
        bad.append(
            "team.mode='full': values of steps are fitted with adapters, allowed are adapters and frozen"
        )
    pair = own.value == ASKED or own.labels == "completions"
    if len(agents) > 2 or pair and len(agents) != 2:
        wanted = "two, who writes and who values" if pair else "one, or two: who writes and who values"
        bad.append(f"team.agents={agents!r}: train.protocol='qstar' allows {wanted}")
    any_second = own.value == ASKED and own.labels != "completions"
    for agent in dict.fromkeys([agents[0], *(() if any_second else agents[-1:])]):
        if agent in models:
            bad.append(
                f"the model {models[agent]!r} of agent {agent!r}: train.protocol='qstar' goes on from lines and fits "
                "values, allowed are models of ours; with qstar.value='agent' the second one may be any"
            )
    if config.task.kind not in KINDS and not is_dotted(config.task.kind):
        bad.append(f"task.kind={config.task.kind!r}: train.protocol='qstar' allows {' or '.join(KINDS)}")
    return bad
