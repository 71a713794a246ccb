"""Small run folders and evaluations for the tests of the report, written as the training writes them."""

import copy
import html.parser
import json

from jaxmarl_llm.analysis.report import grouping, runs
from jaxmarl_llm.transcripts import AgentRecord, JointAction, TranscriptWriter

CONFIG = {
    "seed": 0,
    "model": "tiny-model",
    "task": {"source": "poems", "reward": "", "test_source": ""},
    "team": {"agents": ["poet", "critic"], "models": []},
    "train": {"steps": 3, "lr": 0.1},
    "eval": {"samples": 2},
    "executor": {"workers": 0},
}
BEFORE = {"step": 0, "rhyme": 10.0, "metre": 30.0, "return": 20.0, "return_low": 15.0, "return_high": 26.0}
# What a model might write to break out of the page or to run a script in it, and what cannot be seen.
HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "]]>--></style></textarea></pre><svg/onload=window.hacked=3>",
    "\"' onmouseover=\"window.hacked=4\" x='",
    "<!--<script>",
    "line\u2028separator\u2029paragraph\x00nul\x1bescape \u202eright to left\u202c zero\u200bwidth \ud800 ♞",
    "{{ 7 * 7 }} {% raw %} &lt;b&gt; &amp;amp; \\u003c \\",
)


def config(**changes) -> dict:
    """`CONFIG` with other values: ``train__lr=1`` changes train.lr."""
    actual = copy.deepcopy(CONFIG)
    for name, value in changes.items():
        *sections, field = name.split("__")
        place = actual
        for section in sections:
            place = place[section]
        place[field] = value
    return actual


def rows(shift: float = 0.0) -> list[dict]:
    """Three training iterations and evaluations before and after them; ``shift`` tells runs apart."""
    actual = [evaluated(0, 20.0 + shift, {"fail": 3, "pass": 1})]
    for step in range(3):
        row = {"step": step, "train/rhyme": 10.0 + shift, "train/metre": 50.0}
        row |= {"train/return": 30.0 + step + shift}
        for agent, length in (("poet", 12), ("critic", 5)):
            row |= {f"{agent}/completion_length": length + step, f"{agent}/entropy": 1.0 - step / 4}
            row |= {f"{agent}/zero_signal": 0.25, f"{agent}/ratio0": 1.0}
        row |= {"seconds": 4.0 + step, "seconds/sample": 1.0, "seconds/update": 2.0, "tokens_per_s": 100.0}
        row |= {"executor/programs": 8.0, "executor/runs": 6.0, "memory/peak_rss_mb": 500.0 + step}
        row |= {"executor/verdict/pass": 6.0, "executor/verdict/fail": 2.0, "executor/verdict/infra": 0.0}
        actual.append(row)
    return [*actual, evaluated(3, 60.0 + shift, {"pass": 4})]


def evaluated(step: int, score: float, verdicts: dict[str, int]) -> dict:
    """A row of an evaluation, sampled and greedy."""
    row = {"step": step, "eval/rhyme": score / 2, "eval/metre": score, "eval/return": score}
    row |= {"eval/return_low": score - 5, "eval/return_high": score + 5, "eval/pass@1": score / 4}
    row |= {f"eval/verdict/{name}": count for name, count in verdicts.items()}
    greedy = {"eval_greedy/rhyme": score, "eval_greedy/return": score + 1, "eval/return_greedy": score + 1}
    return row | {"eval/length/poet": 9.0} | greedy


def action(step: int, item: str, total: float | None, verdict: str = "pass", text: str = "roses", **more):
    """A joint action of both agents; ``more`` are further fields of the record."""
    poet = AgentRecord("write a poem", text, 4, 12, "stop", sample=0, advantage=0.5)
    critic = AgentRecord("judge the poem", f"about {text}", 5, 9, "length", 1, advantage=-0.25, marginal=-0.125)
    parts = {"rhyme": total, "metre": None}
    given = {"agents": {"poet": poet, "critic": critic}, "parts": parts, "failures": (), **more}
    return JointAction(step, item, total=total, verdict=verdict, **given)


def actions(step: int) -> list[JointAction]:
    """Two items, three joint actions each, of rewards 0.5, 2 and (not applicable) none."""
    return [
        action(step, item, total, verdict, f"{item} {step} {verdict}", failures=failures)
        for item in ("ode", "sonnet")
        for total, verdict, failures in ((0.5, "fail", ("line 3 does not rhyme",)), (2.0, "pass", ()),
                                         (None, "not-applicable", ()))
    ]  # fmt: skip


def write_run(folder, settings=None, metrics=None, finished: bool = True, spoken=None):
    """A run folder; ``spoken`` are joint actions by step, default: `actions` at the three steps."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = config() if settings is None else settings
    (folder / "config.json").write_text(json.dumps(settings))
    lines = [json.dumps(row) for row in (rows() if metrics is None else metrics)]
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    summary = {"seconds": 90.0, "seed": settings["seed"], "before": BEFORE}
    if finished:
        after = {name: value + 40.0 for name, value in BEFORE.items()}
        summary |= {"after": after, "best": after}
    (folder / "summary.json").write_text(json.dumps(summary))
    writer = TranscriptWriter(folder)
    for step, joint_actions in ({step: actions(step) for step in range(3)} if spoken is None else spoken).items():
        writer.write(step, joint_actions)
    return folder


def write_evaluation(path, step: int, joint_actions, mean: float = 50.0):
    """A file of `experiments.evaluate`, with the same answers for both modes."""
    scores = {"return": {"mean": mean, "low": mean - 5, "high": mean + 5}, "rhyme": {"mean": None}}
    about = {"workdir": f"runs/{step}" if step else None, "step": step}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about | {mode: {"scores": scores} for mode in ("sampled", "greedy")}))
    for mode in ("sampled", "greedy"):
        TranscriptWriter(path.with_suffix("") / mode).write(step, joint_actions)
    return path


def hostile_run(folder):
    """A run in which every text that comes from outside is one of `HOSTILE`, names included."""
    bad = "".join(HOSTILE)
    settings = config(model=bad, task__source=bad, team__agents=[bad, "critic"])
    part = f"train/{bad.replace('/', '')}"
    metrics = [
        {name.replace("poet/", f"{bad}/"): value for name, value in row.items()}
        | {part: 3.0, f"eval/verdict/{bad}": 1}
        for row in rows()
    ]
    joint_actions = [
        JointAction(
            0, f"{text}{n}", {f"poet{text}": hostile_speech(text)}, {text: 1.0}, 1.0, text,
            (text, bad), 0, ((text, text, text, 3, 2, 1, True), (text, bad)),
        )
        for n, text in enumerate((*HOSTILE, bad))
    ]  # fmt: skip
    return write_run(folder, settings, metrics, spoken={0: joint_actions})


def hostile_speech(text):
    """A speech and the remark on it."""
    remark = AgentRecord(text, text, 4, 6, text, 0, 0.25)
    return AgentRecord(text, text, 4, 12, text, 0, 0.5, remark=remark)


def groups(*folders):
    """The runs in folders, read and grouped."""
    return grouping.group_runs(runs.read_runs(folders))


def two_seeds(place):
    """Folders of two runs that differ in the seed; the second has a return higher by 6."""
    return tuple(write_run(place / name, config(seed=n), rows(6.0 * n)) for n, name in enumerate("ab"))


class Elements(html.parser.HTMLParser):
    """Names and attributes of all elements, and the text of the scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.lasttag in ("script", "style", "title"):
            key = (self.lasttag, len(self.found))
            self.texts[key] = self.texts.get(key, "") + data

    def text(self, tag, number=0):
        return [text for (name, _), text in self.texts.items() if name == tag][number].strip("\n")


def setting(name, mean, low=None, high=None, baseline=False):
    sampled = {"mean": mean, "low": low, "high": high}
    greedy = {key: value and value + 1 for key, value in sampled.items()}
    return {"setting": name, "baseline": baseline, "return": sampled, "return_greedy": greedy}


THREE_SETTINGS = [setting("base", 20.0, 18.0, 22.0, True), setting("none", None), setting("best", 30.0)]
