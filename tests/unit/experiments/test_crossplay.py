"""experiments/crossplay.py, crossplay.py: teams are put together as asked, and compared item by item."""

import contextlib
import itertools
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scripted_team import CountingTask, tiny_team

from configs import coding
from experiments import crossplay as command
from jaxmarl_llm import checkpoint, evaluation, update
from jaxmarl_llm.analysis.audit import crossplay
from jaxmarl_llm.evaluation import results
from jaxmarl_llm.executor import Limits
from jaxmarl_llm.factory import evaluations, randomness, tasks, teams
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.sampling import choice

WORDS = (3, 5, 4)
SEEDS = {"a": 1, "b": 2}  # of the best parameters; the latest ones are those of 10 more


def config(**fields):
    made = coding.get_config("smoke")
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


def save_config(folder, **fields):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(**fields).to_dict()))
    return folder


@pytest.fixture(scope="module")
def workdirs(tmp_path_factory):
    """Two runs, saved as training saves them."""
    root, optimizer = tmp_path_factory.mktemp("runs"), update.make_optimizer(lr=1e-3, steps=1)
    for name, seed in SEEDS.items():
        folder = save_config(root / name)
        with checkpoint.Checkpointer(folder / "checkpoints") as saver:
            for save, step, own in ((saver.save, 4, seed + 10), (saver.save_best, 2, seed)):
                team = tiny_team(own)
                save(step, {0: update.init_state(team.members[0].trainable, optimizer)}, team, {})
    return [root / name for name in SEEDS]


@pytest.fixture
def scripted(monkeypatch):
    """The factories build a tiny team and a scripted task; everything else is what it is."""
    executor = types.SimpleNamespace(level=2, limits=Limits())
    monkeypatch.setattr(tasks, "build_executor", lambda config: contextlib.nullcontext(executor))
    monkeypatch.setattr(tasks, "build_task", lambda config, executor, *rest: CountingTask(WORDS))
    monkeypatch.setattr(teams, "build_team", lambda config, **_: tiny_team())


def returns_of(aux, main, mode):
    """Of the adapters of one seed's aux and another's main, put together by hand."""
    first, second = (tiny_team(seed).members[0].trainable for seed in (aux, main))
    learned = [jax.tree.map(lambda x, y: jnp.stack([x[0], y[1]]), first, second)]
    actual = evaluation.evaluate(
        tiny_team(), learned, CountingTask(WORDS), range(len(WORDS)), randomness.stream(config(), "report"),
        params=choice.SamplingParams(16, config().sampling.temperature), samples=2, max_prompt_tokens=768,
    )  # fmt: skip
    return getattr(actual, mode).scores()["return"]


@pytest.mark.slow
@pytest.mark.parametrize("which, more", [("best", 0), ("latest", 10)])
def test_every_team_answers_as_if_put_together_by_hand(workdirs, scripted, which, more):
    lines = []
    actual = command.play(workdirs, which, tell=lines.append)
    seeds = [seed + more for seed in SEEDS.values()]
    for mode in results.MODES:
        (table,) = actual.tables[mode]
        assert table.agent == "main"
        for (row, first), (column, second) in itertools.product(enumerate(seeds), repeat=2):
            wanted = returns_of(first, second, mode)
            np.testing.assert_array_equal(table.returns_RRB[row, column], wanted)
        different = {tuple(values) for values in table.returns_RRB.reshape(4, -1).tolist()}
        assert len(different) == 4  # the comparison above says something
    assert actual.about["steps"] == ([2, 2] if which == "best" else [4, 4])
    assert lines[1].startswith("[2/4] aux of a, main of b: return ") and len(lines) == 4


def test_the_diagonal_is_what_evaluate_says(workdirs, scripted):
    actual = command.play(workdirs, tell=lambda line: None)
    for run, workdir in enumerate(workdirs):
        _, report = evaluations.evaluate_run(run_folder.load_run(workdir), workdir)
        for mode in results.MODES:
            assert actual.tables[mode][0].means_RR[run][run]._asdict() == report[mode]["scores"]["return"]


def test_who_is_in_a_team():
    assert crossplay.exchanged_agents(("aux", "main")) == ("main",)
    assert crossplay.teams(2, ("aux", "main"), "main") == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]
    three = ("x", "y", "z")
    assert crossplay.exchanged_agents(three) == three
    assert crossplay.teams(2, three, "y") == [[(0, 0, 0), (0, 1, 0)], [(1, 0, 1), (1, 1, 1)]]
    assert crossplay.corner(three, "y") == ("run of agents x, z", "run of agent y")


def test_the_gap_by_hand():
    # Items 1 and 2 of three runs: 10 for every row's number, 1 for every column's, and 6 and 8 for one's own.
    rows, columns = np.arange(3)[:, None, None], np.arange(3)[None, :, None]
    returns = 10.0 * rows + columns + np.eye(3)[:, :, None] * np.array([6.0, 8.0])
    table = crossplay.table("main", returns)
    # (0 + 11 + 22) / 3 = 11, and as much for the six others: (1 + 2 + 10 + 12 + 20 + 21) / 6
    assert (table.own.mean, table.mixed.mean, table.gap.mean) == (18.0, 11.0, 7.0)
    assert (table.gap.low, table.gap.high) == (6.0, 8.0)  # of the two items
    assert table.p == 0.5  # 2 of 4 sign flips add up to 14
    assert table.means_RR[2][1].mean == 21.0
    # An item that one team has no return for tells nothing about the gap.
    returns[0, 1, 0] = np.nan
    table = crossplay.table("main", returns)
    assert (table.gap.mean, table.own.mean, table.mixed.mean) == (8.0, 19.0, 11.0)
    assert table.means_RR[0][1].mean == 1.0


@pytest.mark.slow
def test_what_is_written(tmp_path):
    nan = np.full((2, 2, 2), np.nan)
    tables = {
        mode: [crossplay.table(agent, values) for agent in ("x", "y", "z")]
        for mode, values in (("sampled", np.arange(8.0).reshape(2, 2, 2)), ("greedy", nan))
    }
    about = {"checkpoint": "best", "steps": [2, 4], "problems": 9}
    actual = command.Crossplay(("a", "b"), ("x", "y", "z"), about, tables)
    command.write(actual, tmp_path)
    data = json.loads((tmp_path / "crossplay.json").read_text())
    assert data["checkpoint"] == "best" and [each["agent"] for each in data["sampled"]] == ["x", "y", "z"]
    # Items 0 1 | 2 3 | 4 5 | 6 7: own (0 + 6) / 2 and (1 + 7) / 2, mixed (2 + 4) / 2 and (3 + 5) / 2
    assert data["sampled"][0]["own"]["mean"] == data["sampled"][0]["mixed"]["mean"] == 3.5
    assert data["sampled"][0]["gap"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert data["greedy"][2]["returns"] == [[[None] * 2] * 2] * 2
    lines = (tmp_path / "crossplay.md").read_text().splitlines()
    states = "the states that are best on validation (iterations 2, 4), 9 problems, fresh draws"
    assert f"## test return, sampled, of {states}" in lines
    assert "| run of agents x, z \\ run of agent y | a | b |" in lines
    assert "| a | 0.5 [0.0, 1.0] | 2.5 [2.0, 3.0] |" in lines
    assert "own partners 3.5, those of other runs 3.5; gap 0.0 [0.0, 0.0], p 1" in lines
    picture = image.imread(tmp_path / "crossplay.png")
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 100


def test_runs_that_do_not_go_together_are_refused(workdirs, tmp_path, monkeypatch):
    monkeypatch.setattr(teams, "build_team", lambda config, **_: pytest.fail("a model was loaded"))
    a = str(workdirs[0])

    def refusal(*folders, which="best"):
        with pytest.raises(ValueError) as error:
            command.play([a, *folders], which)
        return str(error.value)

    assert refusal() == f"--workdirs={a}: give two runs or more, with commas between them"
    assert refusal(f"{a}/").endswith("every run may be there once")
    for field, fields in {
        "team.rank": {"team__rank": 4},
        "model": {"model": "smollm2-135m-instruct"},
        "task.test_source": {"task__test_source": "starter[5:7]"},
        "train.turns": {"train__turns": 2},
        "seed": {"seed": 5},  # the random base comes from it
    }.items():
        other = str(save_config(tmp_path / field, **fields))
        message = refusal(other)
        assert message.startswith(f"{a} and {other} do not go together: {field}: first "), message
        assert message.count(a) == message.count(other) == 1 and ", second " in message
        assert "absent" not in message and message.count(": first ") == 1
    # What they were trained on and how does not matter; but there is no checkpoint.
    other = save_config(tmp_path / "other", train__lr=0.1, task__train_split="all")
    assert refusal(str(other)).startswith("no checkpoint 'best' in ")


@pytest.mark.parametrize("fields, message", [
    ({"team__agents": ("main",)}, "team.agents=.* of .*: a single agent has no partner to exchange"),
    ({"team__mode": "frozen"}, "team.mode='frozen' of .*: all runs have the same agents"),
])  # fmt: skip
def test_teams_that_cannot_be_mixed_are_refused(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        command.play([save_config(tmp_path / name, **fields) for name in "ab"])


def test_names():
    assert command.run_names(["runs/a", "runs/b"]) == ("a", "b")
    assert command.run_names(["x/a", "y/a"]) == ("x", "y")
    members = [f"runs/lr/train.lr={lr}/seed{seed}" for lr in (1, 2) for seed in (0, 0 + lr)]
    assert command.run_names(members[::2]) == ("train.lr=1", "train.lr=2")
    assert command.run_names(members) == tuple(m.removeprefix("runs/lr/") for m in members)
    assert command.run_names(["x/a", "x/a/a"]) == ("a", "a/a")


def test_the_cells_of_the_picture_hold_their_numbers(tmp_path, monkeypatch):
    """With names as long as those of a sweep's members, and more runs than usual."""
    names = [f"train.baseline=leave_one_out, train.lr=0.000{i}" for i in range(6)]
    values = np.random.default_rng(0).uniform(0, 100, (6, 6, 3))
    tables = {mode: [crossplay.table("main", values)] for mode in ("sampled", "greedy")}
    drawn = []
    print_png = FigureCanvasAgg.print_png

    def kept(canvas, path):
        drawn.append(canvas.figure)
        print_png(canvas, path)

    monkeypatch.setattr(FigureCanvasAgg, "print_png", kept)
    crossplay.draw(tables, ("aux", "main"), names, tmp_path / "x.png")
    (figure,) = drawn
    renderer, inside = figure.canvas.get_renderer(), figure.bbox
    for axes in figure.axes[:2]:
        corners = axes.transData.transform([(-0.5, -0.5), (0.5, 0.5)])
        width, height = np.abs(corners[1] - corners[0])
        texts = [text.get_window_extent(renderer) for text in axes.texts]
        assert len(texts) == 36 and all(box.width < width and box.height < height for box in texts)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()):
            box = text.get_window_extent(renderer)
            assert box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0, text
            assert box.y1 <= inside.y1, text
