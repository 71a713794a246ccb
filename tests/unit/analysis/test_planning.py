"""The work of a model by hand and by XLA, published architectures, chips and topologies."""

import dataclasses
import importlib.util
import json

import jax
import jax.numpy as jnp
import pytest

from configs import coding, game
from jaxmarl_llm.analysis.planning import chips, from_config, job, memory, models, search, topology, work
from jaxmarl_llm.factory import teams
from jaxmarl_llm.policy import Policy, PolicyConfig, Windows, prefill
from jaxmarl_llm.weights import hf_config

# Weights of a layer: q 4x4, k and v 4x2, o 4x4, gate and up 4x8, down 8x4: 144. Attention: 4 x 2 layers x 2
# heads x 2 features = 32 operations per pair.
SMALL = PolicyConfig(10, d_model=4, d_ff=8, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=2, max_positions=64)
FULL, ADAPTERS = work.Model(SMALL), work.Model(SMALL, "adapters", 1, ("q",))
BATCH = work.Update(prompts=3, width=5, completions=6, tokens=4, read_prompts=3, read_tokens=24, row=8)


def test_weights_are_counted():
    assert (FULL.linear, FULL.head, FULL.parameters) == (288, 40, 328)
    assert (FULL.adapter, ADAPTERS.adapter) == (0, 2 * (4 + 4))


def test_reading_prompts():
    # 3 prompts of 5 tokens: 2 x 288 x 15 + the head for 3 of them 2 x 40 x 3 = 8880; 15 visible pairs each.
    assert work.prefill(FULL, 3, 5) == work.Work(8880 + 32 * 45, 8880 + 32 * 75)
    # The adapters: 2 x 16 x 15.
    assert work.prefill(ADAPTERS, 3, 5).needed == work.prefill(FULL, 3, 5).needed + 480


def test_drawing_tokens():
    # 3 steps of 6 rows: 2 x 328 x 18 = 11808; a row sees 6, 7 and 8 keys, the program reads 5 + 4 slots + 1.
    assert work.decode(FULL, 6, 5, 4) == work.Work(11808 + 32 * 6 * 21, 11808 + 32 * 18 * 10)


def test_windows_are_needed_work_and_no_executed_work():
    # One of two layers has a window of 3: 1 + 2 + 3 + 3 + 3 = 12 of 15 pairs of a prompt, 3 a token behind it.
    windowed = work.Model(dataclasses.replace(SMALL, windows=Windows(3, (True, False))))
    less = 16 * 3 * 3  # 16 operations per pair of a layer, 3 prompts
    assert work.prefill(windowed, 3, 5) == work.Work(8880 + 32 * 45 - less, 8880 + 32 * 75)
    full = work.decode(FULL, 6, 5, 4)
    assert work.decode(windowed, 6, 5, 4) == work.Work(full.needed - 16 * 6 * (21 - 9), full.executed)
    update, same = work.update(FULL, BATCH, "full"), work.update(windowed, BATCH, "full")
    # Completions of 4 tokens see 6, 7, 8 and 9 keys, in the window 3 each.
    assert same == work.Work(update.needed - 3 * (less + 16 * 6 * (30 - 12)), update.executed)
    wide = work.Model(dataclasses.replace(SMALL, windows=Windows(7, (True, True))))
    assert wide.visible(5, 4) == 6 + 7 + 7 + 7


def test_updating():
    # Forward: 2 x 288 x 39 = 22464, the head for 24 tokens 1920; pairs 45 + 6 x (20 + 10), run 75 + 24 x 13.
    dense, head, needed, run = 22464, 1920, 32 * 225, 32 * 387
    assert work.update(FULL, BATCH, "none") == work.Work(
        3 * (dense + head + needed), 3 * (dense + head + run) + head
    )
    least = work.update(FULL, BATCH, "none").executed
    assert work.update(FULL, BATCH, "dots").executed == least + run
    assert work.update(FULL, BATCH, "full").executed == least + run + dense
    # Frozen weights have no gradient of their own, adapters (2 x 16 x 39 forward) have.
    assert work.update(ADAPTERS, BATCH, "none").needed == 2 * (dense + head) + 3 * needed + 3 * 1248
    assert work.update(FULL, BATCH, "none", kl=True).needed == 4 * (dense + head + needed)


@pytest.mark.parametrize("kv_heads, width", [(4, 64), (1, 128)])
def test_reading_prompts_is_what_xla_counts_for_one_layer(kv_heads, width):
    # With one layer the body of the scan is counted as often as it runs.
    config = PolicyConfig(512, d_model=64, d_ff=256, n_layers=1, n_heads=4, n_kv_heads=kv_heads, head_dim=16,
                          max_positions=256)  # fmt: skip
    policy, rows = Policy(config, remat="none"), 3
    ints = jax.ShapeDtypeStruct((rows, width), jnp.int32), jax.ShapeDtypeStruct((rows,), jnp.int32)
    params = jax.eval_shape(policy.init, jax.random.key(0), *[jnp.zeros((1, 1), jnp.int32)] * 2)

    def read(params, tokens_BP, lengths_B):
        hidden_BD, cache = prefill.prefill(policy, params, tokens_BP, lengths_B)
        return policy.apply(params, hidden_BD, method="logits"), cache

    counted = jax.jit(read).lower(params, *ints).compile().cost_analysis()["flops"]
    executed = work.prefill(work.Model(config), rows, width).executed
    assert executed < counted < 1.1 * executed  # norms, softmax and rotations are on top


@pytest.mark.parametrize("name, billions", [
    ("smollm2-135m-instruct", 0.135), ("HuggingFaceTB/SmolLM2-360M-Instruct", 0.362),
    ("HuggingFaceTB/SmolLM2-1.7B", 1.71), ("Qwen/Qwen2.5-Coder-0.5B", 0.49),
    ("Qwen/Qwen2.5-Coder-1.5B", 1.54), ("Qwen/Qwen2.5-Coder-3B-Instruct", 3.09),
    ("Qwen/Qwen2.5-Coder-7B", 7.61), ("Qwen/Qwen2.5-Coder-14B", 14.7),
    ("Qwen/Qwen2.5-Coder-32B", 32.5), ("Qwen/Qwen3-0.6B", 0.6), ("Qwen/Qwen3-1.7B", 1.7),
    ("Qwen/Qwen3-4B-Base", 4.0), ("Qwen/Qwen3-8B", 8.2),
    ("meta-llama/Llama-3.1-8B-Instruct", 8.03), ("Qwen/Qwen2.5-3B-Instruct", 3.09), ("Qwen/Qwen2.5-7B", 7.62),
    ("google/gemma-3-270m", 0.268), ("google/gemma-3-1b-it", 1.0),
])  # fmt: skip
def test_published_models_have_the_parameters_that_their_cards_say(name, billions):
    policy = Policy(models.policy_config(name))
    shapes = jax.eval_shape(policy.init, jax.random.key(0), *[jnp.zeros((1, 1), jnp.int32)] * 2)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) / 1e9 == pytest.approx(billions, rel=0.02)


def test_a_folder_and_a_file_are_models(tmp_path):
    raw = hf_config.hf_config(SMALL)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert models.policy_config(str(tmp_path)) == models.policy_config(f"{tmp_path}/config.json") == SMALL
    (tmp_path / "config.json").write_text(json.dumps(raw | {"hidden_size": 0}))
    with pytest.raises(ValueError, match="config.json: hidden_size is 0"):
        models.policy_config(str(tmp_path))


@pytest.mark.parametrize("name, get", [("game-tiny", game.get_config), ("code-tiny", coding.get_config)])
def test_models_that_are_made_by_name_have_a_plan(name, get):
    """Of the sizes and the dtype that a run makes them with."""
    config = get()
    config.model, config.sampling.max_prompt_tokens = name, 64
    made = teams.read_model(config, name)
    (actual,) = from_config.jobs(config, jax.devices()[:1])
    assert actual.config == made.policy.config
    base, _ = job.parameters(dataclasses.replace(actual, keep_reference=True))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), base) == jax.tree.map(lambda x: (x.shape, x.dtype), made.params)
    assert from_config.limits(config).divided >= 1


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'nobody/nothing' is not known here; .*Qwen/Qwen2.5-Coder-3B"):
        models.policy_config("nobody/nothing")


@pytest.mark.parametrize("name", ["v9:2x2", "v5e", "v5e:16", "5e:4x4", "v5e:4x"])
def test_unknown_topologies_are_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"topology '{name}' is not known; .* v5e:4x4, v5p:2x2x1"):
        topology.devices(name)


def test_without_libtpu_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'jaxmarl_llm\[tpu-aot\]'"):
        topology.devices("v5e:4x4")


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
@pytest.mark.parametrize("name, count, chip", [
    ("v4:2x2x1", 4, "TPU v4"), ("v5e:2x4", 8, "TPU v5e"),
    ("v5p:2x2x1", 4, "TPU v5p"), ("v6e:2x2", 4, "TPU v6e"),
])  # fmt: skip
def test_topologies_are_described_chip_by_chip(name, count, chip):
    actual = topology.devices(name)
    assert len(actual) == count and chips.of_device(actual[0]).name == chip
    assert chips.memory_limit(actual[0]) == chips.of_device(actual[0]).usable
    with pytest.raises(ValueError, match="'v5e:3x5' cannot be described: .*not divisible"):
        topology.devices("v5e:3x5")


def test_what_a_compiler_asked_for_is_read():
    text = "the total memory required for HLO temporaries (21.21G) exceeds available HBM (15.75G)."
    assert memory.requested_bytes(text) == 21.21 * 2**30
    assert memory.requested_bytes("Ran out of memory in memory space hbm. Used 17.5M of 16.0M hbm.") == 17.5 * 2**20
    assert memory.requested_bytes("Out of memory") != memory.requested_bytes("Out of memory")  # NaN


START = search.Settings("full", "dots", prompts=2, tokens=256, agent=1, data=4, model=1, fsdp=False)
LIMITS = search.Limits(agents=2, divided=4)


def _search(fits, tries=100):
    asked = []

    def measure(settings):
        asked.append(settings)
        return fits(settings), len(asked)

    return search.nearest(START, LIMITS, measure, lambda settings: len(asked) < tries), asked


def test_the_nearest_settings_of_every_kind_are_found():
    actual, asked = _search(lambda s: s.tokens <= 128 or s.fsdp or s.mode == "adapters")
    assert [f.settings for f in actual] == [
        START._replace(tokens=128), START._replace(fsdp=True), START._replace(mode="adapters"),
    ]  # fmt: skip
    assert all(f.measured for f in actual) and len(asked) < 20


def test_a_mesh_and_smaller_micro_batches_are_changed_together_where_it_takes_both():
    actual, _ = _search(lambda s: s.model == 4 and s.remat == "full" and s.tokens == 64)
    assert {(f.settings.mode, f.settings.model, f.settings.remat, f.settings.tokens) for f in actual} == {
        ("full", 4, "full", 64), ("adapters", 4, "full", 64),
    }  # fmt: skip


def test_a_search_ends_where_nothing_fits_and_where_nothing_is_promising():
    assert _search(lambda s: False)[0] == []
    actual, asked = _search(lambda s: True, tries=0)
    assert actual == [] and asked == []


def test_lighter_settings_end_with_the_lightest_and_change_little_first():
    steps = list(search.lighter(START))
    assert steps[-1] == START._replace(prompts=1, tokens=64, remat="full")
    assert set(steps[:3]) == {
        START._replace(prompts=1), START._replace(tokens=128), START._replace(remat="full"),
    }  # fmt: skip


def test_other_meshes_have_as_many_devices_and_divide_agents_and_heads():
    shapes = list(search.meshes(START, LIMITS))
    assert shapes[0] == START._replace(fsdp=True)
    assert len(set(shapes)) == len(shapes) and START not in shapes
    for s in shapes:
        assert s.agent * s.data * s.model == 4 and s.agent in (1, 2)


@pytest.mark.parametrize("model, fields, fits", [
    # Bytes of state and gradients by shape: 16 and 8 a parameter of each of two agents.
    ("Qwen/Qwen2.5-Coder-3B-Instruct", {"team.mode": "full"}, False),
    ("Qwen/Qwen2.5-Coder-3B-Instruct",
     {"team.mode": "full", "train.param_dtype": "bfloat16", "train.moment_dtype": "bfloat16"}, True),
    ("Qwen/Qwen2.5-Coder-7B-Instruct", {"team.mode": "adapters"}, True),
])  # fmt: skip
def test_what_two_agents_hold_on_one_card_of_80_gb(model, fields, fits):
    config = coding.get_config("he_1turn")
    config.update_from_flattened_dict({"model": model, "policy.dtype": "bfloat16", **fields})
    (actual,) = from_config.jobs(config, jax.devices()[:1])
    held = memory.state_bytes(actual) + memory.trainable_bytes(actual)
    weights = work.Model(actual.config).parameters
    if fields["team.mode"] == "full":
        each = 8 if fits else 16
        assert held == pytest.approx(2 * each * weights, rel=0.01)
    else:  # the base once in bfloat16; four float32 numbers for each of the adapters'
        own = 2 * work.Model(actual.config, "adapters", actual.rank, actual.targets).adapter
        assert held == pytest.approx(2 * weights + 16 * own, rel=0.01)
    assert (held + memory.sampler_cache(actual, actual.calls[0]) < 0.9 * 80e9) == fits


def test_the_base_of_a_plan_is_as_stored_and_no_narrower_than_the_computation(tmp_path):
    config = coding.get_config("smoke")
    (tmp_path / "config.json").write_text(json.dumps(hf_config.hf_config(SMALL, "bfloat16")))
    config.model, config.sampling.max_prompt_tokens, config.sampling.max_new_tokens = str(tmp_path), 16, 16
    for policy, given, wanted in (("float32", "", "float32"), ("bfloat16", "", "bfloat16"),
                                  ("bfloat16", "float32", "float32")):  # fmt: skip
        config.policy.dtype, config.model_options.dtype = policy, given
        (actual,) = from_config.jobs(config, jax.devices()[:1])
        base, trainable = job.parameters(actual)
        assert {x.dtype.name for x in jax.tree.leaves(base)} == {wanted}
        assert {x.dtype.name for x in jax.tree.leaves(trainable)} == {"float32"}
    assert models.stored_dtype("smollm2-135m-instruct") == "float32"
    assert models.stored_dtype("Qwen/Qwen3-0.6B") == "bfloat16"


@pytest.mark.parametrize("kind, bits", [("int8", 8.5), ("nf4", 4.5)])
def test_a_quantised_base_is_counted_by_its_bits(kind, bits):
    config = coding.get_config("he_1turn")
    name = "Qwen/Qwen2.5-Coder-3B"
    fields = {"model": name, "team.mode": "adapters", "policy.dtype": "bfloat16"}
    config.update_from_flattened_dict(fields | {"model_options.quantize": kind})
    (actual,) = from_config.jobs(config, jax.devices()[:1])
    base = job.bytes_per_device(job.parameters(actual)[0])
    counted = work.Model(actual.config)
    rest = 2 * (counted.parameters - counted.linear)  # embedding, in bfloat16; norms and biases are little
    assert base == pytest.approx(bits / 8 * counted.linear + rest, rel=1e-3)
    config.model_options.quantize = ""
    (plain,) = from_config.jobs(config, jax.devices()[:1])
    assert job.bytes_of_weight(plain) == 2 and job.bytes_of_weight(actual) < 2 * bits / 12
    jax.tree.map(lambda x, y: None, job.parameters(actual)[1], job.parameters(plain)[1])  # the same adapters


def test_evaluations_shrink_with_the_memory_and_not_below_the_training():
    config = coding.get_config("he_1turn")
    config.update_from_flattened_dict({"model": "Qwen/Qwen2.5-Coder-3B", "policy.dtype": "bfloat16"})
    device = jax.devices()[:1]
    answers = config.eval.samples + 1
    sizes_by_limit = {}
    for limit in (None, 200e9, 9e9, 1e9):
        (actual,) = from_config.jobs(config, device, limit)
        sizes_by_limit[limit] = actual.eval_calls[0].prompts
        assert actual.eval_calls[0].samples == answers
        held, cache = memory.state_bytes(actual), memory.sampler_cache(actual, actual.eval_calls[0])
        if limit is not None:
            most = max(memory.sampler_cache(actual, call) for call in actual.calls)
            assert cache <= max(most, (limit - held) / 2) or actual.eval_calls[0].prompts == 1
    assert sizes_by_limit[None] == sizes_by_limit[200e9] == 96 // answers
    assert 1 <= sizes_by_limit[1e9] <= sizes_by_limit[9e9] < 96 // answers
