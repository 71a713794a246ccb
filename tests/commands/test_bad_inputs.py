"""Bad input to a run: one clear sentence before anything is compiled, and a folder keeps what it held."""

import contextlib
import json
import shutil
import types

import pytest
import smoke_runs
from tiny_models import VARIANTS, random_params, tiny_tokenizer

from configs import coding
from experiments import train
from jaxmarl_llm import checkpoint, metrics, rollout, sampling, update, weights
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import parse_arg
from jaxmarl_llm.config.team import RESERVED
from jaxmarl_llm.executor import Limits
from jaxmarl_llm.factory import tasks
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.tasks import CodingTask, CustomRewardTask
from jaxmarl_llm.tasks.coding.items import CodingItem

pytestmark = pytest.mark.model  # for its tokenizer
ROW = {"task_id": "t/1", "prompt": "def f(x):\n", "entry_point": "f",
       "test": "def check(candidate):\n    assert candidate(1) == 2\n"}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """Neither sampling nor learning may begin; the sandbox is not needed so far."""
    for module, name in ((sampling, "generate"), (update, "train_step"), (rollout, "run")):
        monkeypatch.setattr(module, name, lambda *args, **fields: pytest.fail("the run has begun"))
    executor = types.SimpleNamespace(level=3, limits=Limits())
    monkeypatch.setattr(tasks, "build_executor", lambda config: contextlib.nullcontext(executor))


@pytest.fixture
def unfinished(learning_run, tmp_path):
    """Copy of a run with some iterations to go: its folder and its config."""
    folder = tmp_path / "run"
    shutil.copytree(learning_run.folder, folder)
    return folder, smoke_runs.learning_config(train__steps=20)


def assert_refused(config, folder, message):
    """Training raises a ValueError of our own that starts like this and changes no file."""
    before = smoke_runs.files(folder)
    with pytest.raises(ValueError, match=message) as caught:
        train.train(config, folder)
    assert isinstance(caught.value, entry.EXPECTED)  # the command line shows the sentence alone
    assert smoke_runs.files(folder) == before


def as_if_started(folder, config):
    """Write the config into the folder, as if the run had begun with it when all was still well."""
    (folder / "config.json").write_text(json.dumps(config.to_dict()))


@pytest.mark.parametrize("fields, message", [
    (dict(train__group=1), r"train\.group=1: allowed is 2 to any larger number"),
    (dict(train__minibatches=3), r"train\.minibatches=3: must divide train\.prompts=2"),
    (dict(train__prompts_per_microbatch=2), r"train\.prompts_per_microbatch=2: must divide the 1 problems"),
    (dict(train__lr=float("nan")), r"train\.lr=nan: allowed is 0 to any larger number"),
    (dict(task__reward="no_such_module:reward"), r"reward 'no_such_module:reward': cannot import 'no_such_m"),
    (dict(task__reward="smoke_runs:letters"), "'smoke_runs' has no 'letters'; it has .*'distinct_letters'"),
    (dict(task__source="strater"),
     "^task.source='strater', task.train_split='train': source is 'strater'; allowed: 'starter', 'human"),
    (dict(task__eval_source="nope"),
     "^task.eval_source='nope', task.eval_split='validation': source is 'nope'; allowed: 'starter'"),
    (dict(task__test_source="nope"),
     "^task.test_source='nope', task.test_split='test': source is 'nope'; allowed: 'starter'"),
    (dict(task__test_split="held_out"), "task.test_split='held_out': allowed are train, validation, test, a"),
    (dict(task__eval_source="starter[500:]"), r"source 'starter\[500:\]', split 'validation' holds no prob"),
    (dict(sampling__max_prompt_tokens=100), "prompt of agent 'aux' for item starter/.* tokens, the limit is 100"),
    (dict(sampling__max_prompt_tokens=2041),
     "max_prompt_tokens .* max_new_tokens = 2049 is more than the context of 'random-tiny', 2048 tokens"),
    (dict(team__targets=("q", "w")), r"team\.targets=\('q', 'w'\): allowed are one or more of q, k, v, o"),
])  # fmt: skip
def test_fields(unfinished, fields, message):
    folder, _ = unfinished
    config = smoke_runs.learning_config(train__steps=20, **fields)
    as_if_started(folder, config)
    assert_refused(config, folder, message)


@pytest.mark.parametrize("lines, message", [
    ([ROW, {**ROW, "task_id": "t/2", "test": ""}], r"line 2 \(t/2\): field 'test' is empty"),
    ([ROW, {k: v for k, v in ROW.items() if k != "test"}], r"line 2 \(t/1\): no field 'test'"),
    ([], r"data.jsonl: no rows"),
])  # fmt: skip
def test_data(unfinished, tmp_path, lines, message):
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    folder, config = unfinished
    config.task.source = str(tmp_path / "data.jsonl")
    as_if_started(folder, config)
    assert_refused(config, folder, message)


@pytest.mark.parametrize("split, message", [
    ("eval", r"^task.eval_source='.*data.jsonl', task.eval_split='all': 1 of 1 problems occur in training, "
             r"names aside: 't/1' \(equal prompt\)\. Choose splits"),
    ("test", r"^task.test_source='.*other.jsonl\[1:\]', task.test_split='all': 1 of 1 problems occur in "
             r"training, names aside: 't/3' \(prompt as that of 't/1'\)\. Choose splits"),
])  # fmt: skip
def test_a_problem_of_training_in_another_split(unfinished, tmp_path, split, message):
    own = {**ROW, "prompt": 'def f(x):\n    """Adds 1 to x."""\n'}
    other = {**ROW, "task_id": "t/2", "prompt": 'def f(x, y):\n    """Adds x to y."""\n'}
    renamed = {**ROW, "task_id": "t/3", "prompt": 'def g(y):\n    """Adds 1 to y."""\n', "entry_point": "g"}
    rows = {"data": [own], "other": [other, renamed]}
    for name, lines in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    folder, config = unfinished
    config.task.source, config.task.train_split = str(tmp_path / "data.jsonl"), "all"
    config.task.eval_source, config.task.eval_split = f"{tmp_path}/other.jsonl[:1]", "all"
    config.task.test_source, config.task.test_split = f"{tmp_path}/other.jsonl[1:]", "all"
    if split == "eval":
        config.task.eval_source = config.task.source
    as_if_started(folder, config)
    assert_refused(config, folder, message)


def missing(model):
    shutil.rmtree(model)


def truncated(model):
    content = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(content[: len(content) // 2])


def other_family(model):
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    (model / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("damage, message", [
    (missing, "^model: no model '.*/model': not .*a folder, a .gguf file or a hub id"),
    (truncated, "model.safetensors is damaged or truncated"),
    (other_family, "config.json: model family GPT2LMHeadModel is not supported; supported are Llama"),
])  # fmt: skip
def test_models(unfinished, tmp_path, damage, message):
    variant = VARIANTS["llama"]
    model = weights.LoadedModel(Policy(variant), random_params(variant), tiny_tokenizer())
    weights.save(model, tmp_path / "model")
    damage(tmp_path / "model")
    folder, config = unfinished
    config.model = str(tmp_path / "model")
    as_if_started(folder, config)
    assert_refused(config, folder, message)


def test_a_run_is_not_resumed_at_a_lower_level(unfinished, monkeypatch):
    """The first level is the checkpoint's; a higher one than that is no reason to stop."""
    folder, config = unfinished
    began = checkpoint.read_meta(folder / "checkpoints")["executor"]["first_level"]
    refused = f"the run in .* began at isolation level {began} and would go on at level {began - 1}: resume"
    for level, message in ((began - 1, refused), (began + 1, "no model '/no/such/model'")):
        executor = types.SimpleNamespace(level=level, limits=Limits())
        monkeypatch.setattr(tasks, "build_executor", lambda c, e=executor: contextlib.nullcontext(e))
        config.model = "/no/such/model"  # which is looked for after that
        as_if_started(folder, config)
        assert_refused(config, folder, message)


GO_ON = r"; to go on as it began give --config=\S+/config\.json, or take another --workdir$"


def test_another_config(unfinished):
    folder, config = unfinished
    config.train.lr = 0.5
    assert_refused(config, folder, r"another configuration: train\.lr: saved 0\.01, now 0\.5" + GO_ON)
    config.train.steps = 14  # as many as it has done: no reason to show it as finished
    assert_refused(config, folder, r"another configuration: train\.lr: saved 0\.01, now 0\.5" + GO_ON)


def test_fewer_steps_than_done(unfinished):
    folder, config = unfinished
    config.train.steps = 5
    assert_refused(config, folder, r"train\.steps=5: the run in .*run has done 14 already")


def test_checkpoint_of_another_team(unfinished):
    folder, config = unfinished
    config.team.rank = 4
    assert_refused(config, folder, r"another configuration: team\.rank: saved 2, now 4" + GO_ON)
    as_if_started(folder, config)
    assert_refused(config, folder, "checkpoints is of another team: aux.rank: saved 2, now 4; aux.scale: ")


def test_folder_that_cannot_hold_the_run(tmp_path, monkeypatch, unfinished):
    folder, config = unfinished
    (tmp_path / "file").write_text("results")
    with pytest.raises(ValueError, match="file/run cannot be written to: Not a directory"):
        train.train(config, tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "results"
    monkeypatch.setattr(shutil, "disk_usage", lambda place: types.SimpleNamespace(free=10_000))
    assert_refused(config, folder, "the disk of .*run is too full: 0.00 GB are free, the checkpoints need up")


def test_context_of_a_loaded_model(tmp_path):
    """The random model's 2048 tokens are above; here a model folder says how many it has."""
    variant = VARIANTS["llama"]
    model = weights.LoadedModel(Policy(variant), random_params(variant), tiny_tokenizer())
    weights.save(model, tmp_path / "model")
    config = smoke_runs.learning_config(model=str(tmp_path / "model"), sampling__max_prompt_tokens=10**6)
    message = f"1000008 is more than the context of .*model', {variant.max_positions} tokens"
    assert_refused(config, tmp_path / "run", message)
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("fields, message", [
    ({"train.stepz": 3}, "error: there is no config field 'train.stepz'; did you mean train.steps?\n"),
    ({"seed.x": 3}, "error: there is no config field 'seed.x'; did you mean seed?\n"),
    ({"train.steps": "many"}, "error: flag --config.train.steps=many: invalid literal for int()"),
    ({"task.source": "nowhere.jsonl"}, "error: task.source='nowhere.jsonl', task.train_split='train': no"),
])  # fmt: skip
def test_command_line_says_one_sentence(tmp_path, compiled, fields, message):
    folder = tmp_path / "run"
    done = smoke_runs.run(smoke_runs.train_command(folder, fields), compiled)
    assert done.returncode == 1 and done.stderr.startswith(message), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout in ("", f"reading problems and models for {folder}\n")
    assert not smoke_runs.files(folder)


def test_options_after_the_colon():
    with pytest.raises(ValueError, match="option 'smokey'; known are: warm_up, smoke, small, he_1turn"):
        coding.get_config("smokey")


@pytest.mark.parametrize("given, message", [
    (["--config=nowhere.py:smoke"], "--config=nowhere.py: there is no such file"),
    (["--config", "nowhere.py"], "--config=nowhere.py: there is no such file"),
    (["--config"], "--config names no file; give --config=configs/coding.py (others: ls configs)"),
    (["--config", "--workdir=x"], "--config names no file; give --config="),
    (["--config="], "--config names no file; give --config="),
    (["--config=folder"], "--config=folder: is a folder; give --config=configs/coding.py (others: "),
    (["--config=page.md"], "--config=page.md: is no Python file; give --config="),
    (["--config=broken.py:x"], "--config=broken.py: SyntaxError in line 2: "),
    (["--config=empty.py"], "--config=empty.py: defines no get_config(); configs/coding.py shows one"),
])  # fmt: skip
def test_files_that_are_no_config(tmp_path, monkeypatch, capsys, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text in (("page.md", "# A page"), ("broken.py", "x = 1\ndef get_config(:\n"), ("empty.py", "")):
        (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as caught:
        entry.parse(["train", *given])
    assert caught.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")


def test_usage_is_one_line(capsys):
    def main(argv):
        entry.refuse_arguments(argv)

    assert entry.plainly(main)(["train", "more"]) == 1
    assert capsys.readouterr().err == "error: unexpected arguments ['more']; see --help\n"


def test_a_command_without_its_config_and_its_help(tmp_path, compiled):
    done = smoke_runs.run(smoke_runs.command("train", "--workdir", tmp_path), compiled)
    assert done.returncode == 1
    assert done.stderr == "error: give --config=configs/coding.py (others: ls configs)\n"
    helped = smoke_runs.run(smoke_runs.command("train", "--help"), compiled)
    text = " ".join(helped.stdout.split())
    for part in ("--coordinator:", "--processes:", "configs/coding.py:smoke", "--config.train.lr=1e-4"):
        assert part in text


def test_no_agent_may_be_named_like_the_metrics_of_a_run(learning_run):
    """Of a run; `team_checks.RESERVED` keeps agents from being named so."""
    names = {name for row in metrics.read_metrics(learning_run.folder) for name in row if "/" in name}
    begins = {name.partition("/")[0] for name in names}
    assert begins - {"aux", "main"} <= set(RESERVED) and "train" in begins


def test_bugs_keep_their_traceback(capsys):
    def main(argv):
        return argv[0]()

    def library():
        int("four")

    with pytest.raises(ValueError, match="invalid literal"):
        entry.plainly(main)([library])
    with pytest.raises(TypeError):
        entry.plainly(main)([len])
    assert entry.plainly(main)([str]) == ""
    assert capsys.readouterr().err == ""
    assert entry.plainly(main)([lambda: parse_arg("frag", flag=True)]) == 1
    assert capsys.readouterr().err == "error: unknown config option 'frag'; known are: flag\n"


def test_a_function_of_the_users_own_is_told_with_its_frames(capsys):
    def reward(completions, **columns):
        raise ArithmeticError("boom")

    item = CodingItem("t/1", ROW["prompt"], "f", ROW["test"], ("x",))
    task = CustomRewardTask(CodingTask([item], None), reward)
    assert entry.plainly(lambda argv: task.judge([item], {"aux": [""], "main": [""]}))([]) == 1
    first, *frames = capsys.readouterr().err.splitlines()
    assert first == "error: the reward raised on task_id t/1 (ArithmeticError: boom)"
    assert len(frames) == 2 and frames[0].startswith(f'  File "{__file__}", line ')
