"""Fields of the training loop: iterations, budgets, turns, protocol, updates and optimizer."""

from jaxmarl_llm.config import engine, experience, programs, remote, systems, task
from jaxmarl_llm.config.fields import Read, choice, number
from jaxmarl_llm.config.options import ConfigDict, is_dotted

# Protocols in which agents read each other's answers.
READING = (
    "pipeline", "discussion", "tree", "leader", "review", "teams", "retrieve", "dialogue", "relay", "routed", "planner",
    "gated", "advice",
)  # fmt: skip
LEAST_AGENTS = {"leader": 2, "review": 2, "teams": 3, "retrieve": 4}


def _turns(config: ConfigDict) -> bool:
    c = config.train
    return c.turns > 1 or is_dotted(c.system) or is_dotted(c.protocol)


def _more_turns(config: ConfigDict) -> bool:
    return config.train.turns > 1 or is_dotted(config.train.protocol)


def _single(config: ConfigDict) -> bool:
    c = config.train
    return c.later_samples == 1 or c.protocol == "dialogue" or is_dotted(c.protocol)


_ONE_TURN = "with train.turns=1 no turn follows"
_NO_GRADES = f"only problems of task.kind={', '.join(map(repr, task.GRADED))} have grades"
FIELDS = (
    number("train.steps", 100, "Iterations: rollout, credit, update.", low=1),
    number("train.max_minutes", 0.0,
           "No new iteration begins after a run has lasted this many minutes; 0: no limit.", low=0),
    # The run ends when all given budgets are reached; at each budget the team is tested.
    number("train.budget_tokens", 0, "Completion tokens that the training may draw; 0: no limit.", low=0),
    number("train.budget_answers", 0, "Joint answers that the training may have judged; 0: no limit.",
           low=0),
    number("train.prompts", 4, "B: problems per iteration.", low=1),
    number("train.grade_every", 0,
           "Iterations after which problems of the next grade are added; 0: all from the start.", low=0,
           read=Read(task.graded, _NO_GRADES)),
    number("train.redraw", 0,
           "Further draws of an iteration at most, each of train.prompts other problems, in place of "
           "problems from which no agent would learn (DAPO's dynamic sampling); 0: none.", low=0),
    number("train.rollout_parts", 1,
           "Equal parts in which an iteration's problems are drawn; each is judged while the next one is "
           "drawn. For rewards that are slow compared with sampling.", low=1),
    choice("train.protocol", "simultaneous",
           "The order in which agents answer, and what they read; or the dotted name of a protocol of your "
           "own, see docs/tasks.md. Protocols in which agents read each other need joint_mode=aligned. "
           "Those from lessonl on have train.turns rounds of programs.",
           {"simultaneous": "all at once", "pipeline": "in order, each reads those before it",
            "discussion": "all answer, read each other, and answer again",
            "tree": "in order, each answers every path of earlier answers G times; one turn",
            "leader": "all but the last answer at once, and the last reads them; then they read its "
            "answer, and so on",
            "review": "in order, each edits the last version", "teams": "two teams discuss, the last agent decides",
            "routed": "one at a time, chosen by a router, see the section router",
            "planner": "a planner's text decides whether a caller calls a tool, a summarizer answers, or "
            "neither, see docs/turns.md",
            "gated": "in a world: in order, each reads those before it; actions with too small an "
            "advantage are refused, see the section gate",
            "relay": "all at once, in every turn other agents; equally many of team.agents per turn",
            "retrieve": "the first half answers, each agent of the second half scores one answer; one turn",
            "advice": "the first agent advises the second one, who acts for advice.every turns; then it advises again",
            "dialogue": "the first agent asks until it answers; the second one knows the hidden text, "
            "replies and does not learn",
            **dict.fromkeys(programs.METHODS, ""),
            experience.NAME: "an instructor says what to change, an assistant writes the next version, see the section "
                             "experience"}, dotted=True),
    number("train.turns", 1, "Turns: from the second one on, agents revise their answers after "
           "task.feedback.",
           low=1),
    number("train.later_samples", 0,
           "Samples of each agent after a joint answer that has a next turn; 0: train.group. With 1 every "
           "answer of the first turn begins its own chain.", low=0, read=Read(_turns, _ONE_TURN)),
    choice("train.hand_on", "all", "Joint answers of a node that get a next turn.",
           {"all": "a tree", "best": "a chain", "random": "a chain"}, read=Read(_turns, _ONE_TURN)),
    # A user's rewards may be negative.
    number("train.stop_above", 0.0,
           "A node whose mean reward, in units of the reward, is greater than this has no next turn; 0: "
           "off.", low=-1e6,
           read=Read(_more_turns, _ONE_TURN)),
    number("train.minibatches", 1, "Parts of the problems of an iteration, with one update on each.",
           low=1),
    number("train.epochs", 1, "Passes over the completions of an iteration, each with all its minibatches.", low=1),
    # In each part that mesh.data divides the problems into:
    number("train.prompts_per_microbatch", 1, "Prompts whose keys and values are in memory at the same "
           "time.", low=1),
    number("train.later_prompts_per_microbatch", 0,
           "The same for later turns with train.later_samples=1, where each prompt has one completion: the "
           "greatest common divisor of this and the number of prompts is used; 0: "
           "train.prompts_per_microbatch.", low=0,
           read=Read(_single, "only turns with one completion to a prompt read it")),
    number("train.tokens_per_microbatch", 512,
           "Tokens of an agent's completions whose activations are in memory at the same time.", low=1),
    number("train.lr", 2e-5, "Learning rate of AdamW, after the first train.warmup updates.", low=0),
    number("train.warmup", 0, "First updates, in which the learning rate rises to train.lr.",
           low=0),
    choice("train.decay", "constant", "Learning rate over the updates after the warm-up.",
           ("constant", "linear", "cosine")),
    number("train.weight_decay", 0.0, "Weight decay of AdamW, per unit of learning rate.", low=0),
    choice("train.param_dtype", "float32",
           "Dtype of the parameters that learn; in bfloat16 an update is rounded randomly, without bias, "
           "to one of the two nearest numbers.", ("float32", "bfloat16")),
    choice("train.moment_dtype", "float32",
           "Dtype in which AdamW's two moments are kept between updates, rounded in the same way.",
           ("float32", "bfloat16")),
    number("train.grad_clip", 1.0, "Limit of the gradient's global norm per agent; 0: no limit.", low=0),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field of the loop that contradicts another."""
    c = config.train
    bad = _minibatches(c) + _redraw(config) + _parts(config)
    if c.protocol in READING and c.joint_mode != "aligned":
        bad.append(f"train.protocol={c.protocol!r}: needs train.joint_mode='aligned', it is {c.joint_mode!r}")
    if c.protocol in ("tree", "retrieve") and c.turns > 1:
        bad.append(f"train.protocol={c.protocol!r}: has one turn, train.turns={c.turns}")
    bad += _agents(config)
    if c.later_samples == 1 and c.hand_on != "all":
        bad.append(
            f"train.later_samples=1: with train.hand_on={c.hand_on!r} a later answer has no other to compare it "
            "with, allowed is 0 or 2 and more"
        )
    if c.later_samples and c.joint_mode != "aligned":
        bad.append(
            f"train.later_samples={c.later_samples}: needs train.joint_mode='aligned', it is {c.joint_mode!r}"
        )
    if (c.budget_tokens or c.budget_answers) and c.decay != "constant":
        bad.append(
            f"train.decay={c.decay!r}: with train.budget_tokens or train.budget_answers the number of "
            "iterations is not known before, allowed is 'constant'"
        )
    return bad


def _agents(config: ConfigDict) -> list[str]:
    """A team that is too small for its protocol, or a protocol whose answers the task cannot judge."""
    protocol, agents = config.train.protocol, tuple(config.team.agents)
    least, bad = LEAST_AGENTS.get(protocol, 0), []
    if len(agents) < least or protocol == "retrieve" and len(agents) % 2:
        wanted = f"{least} or more names" + (", as many scorers as others" if protocol == "retrieve" else "")
        bad.append(f"team.agents={agents!r}: train.protocol={protocol!r} allows {wanted}")
    turns = config.train.turns
    if protocol == "relay" and (turns < 2 or len(agents) % turns):
        bad.append(
            f"team.agents={agents!r}: train.protocol='relay' allows equally many names for each of train.turns={turns} "
            "turns, and 2 turns or more"
        )
    if protocol == "relay" and config.task.centralised:
        bad.append(
            "task.centralised=True: train.protocol='relay' has other agents in every turn, allowed is False"
        )
    if protocol == "retrieve" and config.task.kind != "reasoning":
        bad.append(
            f"train.protocol='retrieve': task.kind={config.task.kind!r} reads no scores, allowed is 'reasoning'"
        )
    return bad


_NO_GROUPS = {
    systems.CRITIC: "learns from what its critics did not expect, also where all answers earn the same",
    systems.PAIRS: "keeps pairs of the answers of each iteration",
    systems.DEMONSTRATIONS: "learns from demonstrations, whatever an answer earns",
    systems.ROUTER: "has no agent that learns",
}


def _redraw(config: ConfigDict) -> list[str]:
    """Further draws for a system in which agents do not learn from advantages in a group."""
    c, why = config.train, ""
    row = systems.SYSTEMS.get(c.system)
    if row is not None and row.learns_from != systems.GROUP:
        why = f"train.system={c.system!r} {_NO_GROUPS[row.learns_from]}"
    elif c.protocol == "lessonl" and config.lessons.bank == "run":
        why = "lessons.bank='run' keeps the lessons of each iteration, and of its own problems only"
    elif experience.remembers(config):
        why = "experience.bank='run' keeps what each iteration found out, and of its own problems only"
    return [f"train.redraw={c.redraw}: {why}, allowed is 0"] if c.redraw and why else []


def _parts(config: ConfigDict) -> list[str]:
    """Rollouts in parts if the problems cannot be divided, or two rollouts cannot run at once."""
    c, why = config.train, ""
    if c.rollout_parts <= 1:
        return []
    if c.prompts % c.rollout_parts:
        why = f"allowed are divisors of train.prompts={c.prompts}"
    elif config.mesh.agent * config.mesh.data * config.mesh.model > 1:
        why = "two rollouts at once need a device alone; allowed with mesh 1, 1, 1"
    elif config.seeds:
        why = "several seeds draw together, allowed is 1"
    elif any(map(remote.is_remote, remote.names(config))) or engine.by_servers(config):
        why = "allowed is 1 where agents or their engine answer elsewhere"
    elif c.protocol in programs.METHODS:
        why = f"train.protocol={c.protocol!r} keeps a journal of its rounds, allowed is 1"
    elif config.tools.functions or config.tools.servers or config.tools.of_task:
        why = "tools are called by one rollout at a time, allowed is 1"
    return [f"train.rollout_parts={c.rollout_parts}: {why}"] if why else []


def _minibatches(c: ConfigDict) -> list[str]:
    """Parts that do not divide the problems of an iteration."""
    if c.minibatches < 1 or c.prompts_per_microbatch < 1:
        return []  # out of range, refused already
    if c.prompts % c.minibatches:
        return [f"train.minibatches={c.minibatches}: must divide train.prompts={c.prompts}"]
    if (c.prompts // c.minibatches) % c.prompts_per_microbatch:
        return [
            f"train.prompts_per_microbatch={c.prompts_per_microbatch}: must divide the "
            f"{c.prompts // c.minibatches} problems of a minibatch"
        ]
    return []
