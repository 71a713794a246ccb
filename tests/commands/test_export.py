"""experiments/export.py: what is written computes what the agent computed."""

import dataclasses
import functools
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_teams import trained
from repository import ROOT
from tiny_models import VARIANTS, random_params, tiny_tokenizer

from experiments import export
from jaxmarl_llm import adapters, checkpoint, weights
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import teams
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.weights import peft

TOKENS = jnp.asarray([[5, 90, 11, 11, 3, 42]])


@functools.cache
def logits(policy, scale):
    """Jitted ``(variables, lora) -> logits``; adapters are applied, not merged."""

    def run(variables, lora):
        variables = {**variables, "lora": adapters.scaled(lora, scale)} if lora else variables
        return policy.apply(variables, TOKENS, jnp.arange(TOKENS.shape[1])[None])[0]

    return jax.jit(run)


def make_run(folder, mode, family="qwen2", quantize=""):
    """A run folder with a saved model, a config, step 3 and, with other parameters, a best of step 2."""
    config = VARIANTS[family]
    model = weights.LoadedModel(Policy(config), random_params(config), tiny_tokenizer())
    weights.save(model, folder / "model")
    run_config = base_config()
    run_config.model = str(folder / "model")
    run_config.team.mode, run_config.team.rank, run_config.model_options.quantize = mode, 4, quantize
    run_config.sampling.max_prompt_tokens, run_config.sampling.max_new_tokens = 32, 16
    run = folder / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(run_config.to_dict()))
    team = teams.build_team(run_config)
    last, best = (jax.tree.map(lambda x: x * 0.2, trained(team, seed)) for seed in (1, 2))
    with Checkpointer(run / "checkpoints") as saver:
        saver.save(3, last, team, {})
        saver.save_best(2, best, team, {})
    return run, team, {"latest": last, "best": best}


@pytest.fixture(scope="module", params=["adapters", "full"])
def finished(request, tmp_path_factory):
    return request.param, *make_run(tmp_path_factory.mktemp(request.param), request.param)


def in_memory(mode, team, states, agent):
    """Logits of an agent as training computes them."""
    member = team[agent]
    own = jax.tree.map(lambda x: x[member.stack.agents.index(agent)], states[0].trainable)
    run = logits(member.stack.policy, member.stack.adapter_scale)
    return run(own, None) if mode == "full" else run(member.base, own)


def reloaded(folder):
    model = weights.load(folder)
    return logits(model.policy, 1.0)(model.params, None), model


@pytest.mark.parametrize("agent, which, step", [("main", "best", 2), ("aux", "latest", 3), ("main", 3, 3)])
def test_merged_model_has_the_agents_logits(finished, tmp_path, agent, which, step):
    mode, run, team, states = finished
    assert export.export(run, agent, tmp_path / "out", which=which) == step
    actual, model = reloaded(tmp_path / "out")
    wanted = in_memory(mode, team, states["best" if which == "best" else "latest"], agent)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    base, _ = reloaded(run.parent / "model")
    assert np.abs(base - wanted).max() > 0.1  # the agent is not the base
    assert model.tokenizer.eos_ids == (0,)


@pytest.mark.torch
def test_transformers_agrees(finished, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    mode, run, team, states = finished
    export.export(run, "main", tmp_path / "out")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        actual = model(torch.tensor(np.asarray(TOKENS))).logits.numpy()
    np.testing.assert_allclose(actual, in_memory(mode, team, states["best"], "main"), rtol=1e-4, atol=1e-4)


def test_adapter_folder_from_the_command_line(tmp_path):
    run, team, states = make_run(tmp_path, "adapters", "llama")
    command = [sys.executable, "-m", "experiments.export", f"--workdir={run}", "--agent=aux",
               f"--out={tmp_path / 'out'}", "--format=adapter", "--step=3"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "agent 'aux' after 3 iterations (adapter)" in done.stdout
    base = weights.load(run.parent / "model")
    adapter = peft.load_adapter(tmp_path / "out", base.policy.config)
    assert (adapter.rank, adapter.alpha, adapter.base_name) == (4, 32.0, str(run.parent / "model"))
    actual = logits(base.policy, adapter.alpha / adapter.rank)(base.params, adapter.lora)
    np.testing.assert_array_equal(actual, in_memory("adapters", team, states["latest"], "aux"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"base_model: {run.parent / 'model'}" in card and "was not evaluated on the test" in card


def test_gemma_as_a_merged_model_and_as_adapters(tmp_path):
    run, team, states = make_run(tmp_path, "adapters", "gemma3")
    wanted = in_memory("adapters", team, states["latest"], "main")
    for form in ("merged", "adapter"):
        export.export(run, "main", tmp_path / form, form, which=3)
    actual, model = reloaded(tmp_path / "merged")
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    assert model.policy.config == VARIANTS["gemma3"]
    base = weights.load(run.parent / "model")
    adapter = peft.load_adapter(tmp_path / "adapter", base.policy.config)
    actual = logits(base.policy, adapter.alpha / adapter.rank)(base.params, adapter.lora)
    np.testing.assert_array_equal(actual, wanted)


def test_a_quantised_base_is_exported_as_it_was_stored(tmp_path):
    run, team, states = make_run(tmp_path, "adapters", quantize="nf4")
    assert "quantised" in team["main"].base
    export.export(run, "main", tmp_path / "merged", which=3)
    actual, _ = reloaded(tmp_path / "merged")
    base = weights.load(run.parent / "model")
    own = jax.tree.map(lambda x: x[1], states["latest"][0].trainable)
    stored = logits(base.policy, team["main"].stack.adapter_scale)(base.params, own)
    np.testing.assert_allclose(actual, stored, rtol=1e-4, atol=1e-4)
    assert np.abs(actual - in_memory("adapters", team, states["latest"], "main")).max() > 0.01
    # What a training merges for itself is what it computes with.
    learned = dataclasses.replace(team["main"], trainable=states["latest"][0].trainable)
    merged = logits(base.policy, 1.0)(learned.agent_variables("main"), None)
    np.testing.assert_allclose(merged, in_memory("adapters", team, states["latest"], "main"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong, message", [
    (dict(agent="judge"), r"--agent='judge': the run in .* has the agents aux, main"),
    (dict(which=7), r"no checkpoint 7 in .*; there are steps \[3\] and 'best'"),
    (dict(form="gguf"), "--format='gguf': allowed are merged, adapter"),
    (dict(workdir="nowhere"), "nowhere holds no run: config.json is missing"),
])
def test_what_does_not_exist_is_refused_before_loading(finished, tmp_path, monkeypatch, wrong, message):
    _, run, _, _ = finished
    monkeypatch.setattr(teams, "build_team", None)
    right = dict(workdir=run, agent="main", out=tmp_path / "out")
    with pytest.raises(ValueError, match=message):
        export.export(**(right | wrong))
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_written(finished, tmp_path, monkeypatch):
    mode, run, _, _ = finished
    monkeypatch.setattr(teams, "build_team", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file exists already"):
        export.export(run, "main", tmp_path / "file")
    with pytest.raises(ValueError, match="file/out cannot be written: Not a directory"):
        export.export(run, "main", tmp_path / "file" / "out")
    if mode == "full":
        with pytest.raises(ValueError, match=r"agent 'main' has no adapters \(mode 'full'\); use merged"):
            export.export(run, "main", tmp_path / "out", "adapter")


def test_the_base_has_a_name_that_holds_elsewhere(tmp_path, monkeypatch):
    run, _, _ = make_run(tmp_path, "adapters")
    config = json.loads((run / "config.json").read_text())
    monkeypatch.chdir(tmp_path)
    (run / "config.json").write_text(json.dumps(config | {"model": "model"}))
    for name, base, wanted in (("a", "", tmp_path / "model"), ("b", "org/base", "org/base")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "restore_team", lambda folder, which, team, *rest: (team, {}))
            export.export(run, "main", tmp_path / name, "adapter", 3, base)
        settings = json.loads((tmp_path / name / "adapter_config.json").read_text())
        assert settings["base_model_name_or_path"] == str(wanted)
        assert f"base_model: {wanted}\n" in (tmp_path / name / "README.md").read_text()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, about names that peft uses
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_peft_and_transformers_load_the_adapters(tmp_path, family):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    peft_library = pytest.importorskip("peft")
    run, team, states = make_run(tmp_path, "adapters", family)
    export.export_team(run, tmp_path / "team", 3)
    folder = tmp_path / "team" / "aux"
    wanted = in_memory("adapters", team, states["latest"], "aux")
    base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    models = {
        "peft": peft_library.PeftModel.from_pretrained(
            transformers.AutoModelForCausalLM.from_pretrained(base), folder
        ),
        "transformers": transformers.AutoModelForCausalLM.from_pretrained(folder),
        "auto peft": peft_library.AutoPeftModelForCausalLM.from_pretrained(folder),
    }
    for name, model in models.items():
        with torch.no_grad():
            logits = model.eval()(torch.tensor(np.asarray(TOKENS))).logits.numpy()
        np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4, err_msg=name)
