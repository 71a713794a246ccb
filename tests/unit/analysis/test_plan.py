"""Plans of small models for local devices: memory, time, and settings that fit."""

import dataclasses
import json

import jax
import pytest
from tiny_models import WIDE

from configs import coding
from jaxmarl_llm import sampling, update
from jaxmarl_llm.analysis.planning import chips, critics, estimate, from_config, job, memory, search, tables
from jaxmarl_llm.weights import hf_config

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path):
    """A small config whose model is a folder with nothing but config.json."""
    (tmp_path / "config.json").write_text(json.dumps(hf_config.hf_config(WIDE)))
    actual = coding.get_config("smoke")
    actual.update_from_flattened_dict({
        "model": str(tmp_path), "sampling.max_prompt_tokens": 32, "sampling.max_new_tokens": 32,
        "train.group": 16, "train.tokens_per_microbatch": 512, "train.prompts": 2,
        "train.prompts_per_microbatch": 2, "eval.samples": 47, "policy.remat": "none",
    })  # fmt: skip
    return actual


def _job(config, devices: int = 1, **fields) -> job.Job:
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    (actual,) = from_config.jobs(config, jax.devices()[:devices])
    return actual


def test_a_plan_reads_the_whole_iteration_off_the_config(config):
    actual = _job(config, train__turns=2, train__joint_mode="aligned", train__minibatches=2,
                 train__prompts_per_microbatch=1)  # fmt: skip
    both = ("aux", "main")
    assert actual.calls == (job.Call(both, 2, 16), job.Call(both, 32, 16))
    assert actual.batches == (job.Call(both, 1, 16), job.Call(both, 16, 16)) and actual.updates == 2
    # 96 rows at a time: 2 problems, each 47 times and greedily, and every answer goes on alone.
    assert actual.eval_calls == (job.Call(both, 2, 48), job.Call(both, 96, 1))


def test_agents_that_speak_one_after_the_other_are_sampled_apart_and_updated_together(config):
    actual = _job(config, train__protocol="pipeline", train__joint_mode="aligned")
    assert actual.calls == (job.Call(("aux",), 2, 16), job.Call(("main",), 32, 1))
    assert actual.batches == actual.calls
    assert memory.of_sampler(actual, actual.calls[1]).total > 0 and memory.of_update(actual).total > 0
    together = _job(config, train__protocol="discussion")
    assert together.calls == (job.Call(("aux", "main"), 2, 16), job.Call(("aux", "main"), 32, 1))


def test_agents_of_one_step_are_sampled_together(config):
    """A leader reads its peers; with one sample in later turns each answer goes on alone."""
    peers, lead, two = ("a", "b"), ("lead",), {"train__turns": 2, "train__later_samples": 1}
    team = {"team__agents": (*peers, *lead), "train__joint_mode": "aligned"}
    actual = _job(config, train__protocol="leader", **team, **two)
    later = job.Call(peers, 32, 1), job.Call(lead, 32, 1)
    assert actual.calls == (job.Call(peers, 2, 16), job.Call(lead, 32, 1), *later)
    assert actual.batches == (
        job.Call(peers, 2, 16), job.Call(lead, 32, 1), job.Call((*peers, *lead), 32, 1),
    )  # fmt: skip


def test_seeds_are_agents_side_by_side(config):
    actual = _job(config, seeds=(0, 3, 4))
    agents = ("0.aux", "0.main", "1.aux", "1.main", "2.aux", "2.main")
    assert actual.stack.agents == agents
    assert {call.agents for call in actual.calls + actual.eval_calls + actual.batches} == {agents}
    config.seeds = ()
    one = _job(config)
    assert memory.trainable_bytes(actual) == 3 * memory.trainable_bytes(one)
    assert memory.sampler_cache(actual, actual.calls[0]) == 3 * memory.sampler_cache(one, one.calls[0])
    base = job.bytes_per_device(job.parameters(one)[0])
    assert job.bytes_per_device(job.parameters(actual)[0]) == base > 0


@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_the_parts_of_the_memory_are_what_the_compiler_says_in_all(config, mode):
    actual = _job(config, team__mode=mode)
    stats = update.train_step.lower(*job.update_arguments(actual)).compile().memory_analysis()
    measured = memory.of_update(actual)
    assert measured.total == (
        stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes
    )  # fmt: skip
    assert min(measured.activations, measured.cache, measured.data) > 0
    base = 4 * sum(x.size for x in jax.tree.leaves(job.parameters(actual)[0]))
    learned = 4 * sum(x.size for x in jax.tree.leaves(job.parameters(actual)[1]))
    assert measured.parameters == base + learned
    assert measured.optimizer == pytest.approx(2 * learned, abs=64)  # AdamW's two moments, and its counts
    assert (base == 0) == (mode == "full")
    # The optimizer stays where it is while the sampler runs, which reads the same parameters.
    sampler = memory.of_sampler(actual, actual.calls[0], others=1000.0)
    assert (sampler.parameters, sampler.optimizer) == (measured.parameters, measured.optimizer)
    assert sampler.others == 1000
    # Two agents, 2 prompts of 32 tokens, 32 rows of 32: keys and values of 2 layers, 2 heads, 16 features.
    assert sampler.cache == 2 * (2 * 32 + 32 * 32) * (2 * 2 * 2 * 16 * 4)


@pytest.mark.parametrize("shared", [False, True])
def test_critics_are_part_of_the_plan(config, shared):
    """Two agents with a critic each, by the arrays of a critic and by its compiled program."""
    plain = _job(config)
    actual = _job(config, train__system="iac", critic__form="q", critic__shared=shared)
    (one,) = actual.critics
    # 2 problems, 16 answers of 32 tokens to prompts of 32 each.
    assert (one.names, one.texts, one.width) == (("aux", "main"), 32, 64)
    adapters = 4 * sum(x.size for x in jax.tree.leaves(job.parameters(plain)[1]))
    head = 2 * 4 * (WIDE.d_model + 1)
    learned = head if shared else adapters + head
    # AdamW's two moments; counts of AdamW and of the schedule for each critic, and the step.
    assert memory.state_bytes(actual) - memory.state_bytes(plain) == 3 * learned + 2 * 2 * 4 + 4
    measured, alone = memory.of_critics(actual, one), memory.of_update(plain)
    assert measured.parameters - alone.parameters == learned
    assert measured.optimizer - alone.optimizer == 2 * learned + 2 * 2 * 4
    sampler = memory.of_sampler(actual, actual.calls[0], others=1000.0)
    assert (sampler.parameters, sampler.optimizer) == (measured.parameters, measured.optimizer)
    stats = critics.lowered(actual, one).compile().memory_analysis()
    program = (
        stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes
    )  # fmt: skip
    # Beside it the agents' optimizer, and what it does not read: their parameters, or the head's optimizer.
    beside = alone.optimizer + (2 * head + 2 * 2 * 4 if shared else adapters)
    assert measured.total == program + beside
    if shared:  # their gradient waits for the agents' update
        assert memory.of_update(actual).data >= alone.data + adapters


def test_one_critic_reads_for_all_and_more(config):
    (actual,) = _job(config, train__system="maac", train__joint_mode="cross", train__group=3,
                    critic__form="q").critics  # fmt: skip
    # 2 problems with 9 joint answers each, filled up to 32; prompts and answers of both are 128 tokens.
    assert (actual.names, actual.texts, actual.width) == (("team",), 32, 128)
    (states,) = _job(config, critic__form="v").critics
    assert (states.texts, states.width) == (4, 64)  # a node for each problem, two prompts of 32 tokens


@pytest.mark.parametrize("fields, title, texts, width, copies", [
    ({"train.system": "marlhf"}, "reward model", 8, 128, 3),  # prompts and answers of both agents
    ({"train.system": "maporl", "maporl.verifier": True}, "verifier", 8, 64, 3),
    ({"train.system": "sweet", "train.turns": 3, "train.joint_mode": "aligned"}, "critic of turns", 8, 64, 4),
])  # fmt: skip
def test_fitted_models_are_part_of_the_plan(config, fields, title, texts, width, copies):
    """One model, which is fitted to pairs: its parameters and two moments, and its update as the compiler counts it."""
    plain = _job(config)
    config.preference.batch, config.preference.pairs_per_microbatch = 6, 4
    actual = _job(config, **{name.replace(".", "__"): value for name, value in fields.items()})
    (one,) = actual.critics
    assert (one.title, one.texts, one.width, one.pairs) == (title, texts, width, True)
    adapters = 4 * sum(x.size for x in jax.tree.leaves(job.parameters(plain)[1])) // 2
    learned = adapters + (0 if one.turns else 4 * (WIDE.d_model + 1))
    beside = memory.of_sampler(actual, actual.calls[0])
    alone = memory.of_sampler(plain, plain.calls[0])
    assert beside.parameters - alone.parameters == learned * (copies - 2)
    assert beside.optimizer - alone.optimizer == 2 * learned + 2 * 4  # counts of AdamW and of the schedule
    update_memory = memory.of_critics(actual, one)
    assert set(memory.of_programs(actual)) == {"sampler", "evaluation", "update", title}
    stats = critics.lowered(actual, one).compile().memory_analysis()
    program = (
        stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes
    )  # fmt: skip
    agents = memory.of_update(plain)
    assert update_memory.total == program + agents.optimizer + 2 * adapters


def test_a_mesh_cuts_what_every_device_holds(config):
    whole = _job(config, team__mode="full")
    cut = _job(config, 4, mesh__agent=2, mesh__data=2, mesh__fsdp=True)
    assert memory.state_bytes(cut) == pytest.approx(memory.state_bytes(whole) / 4, rel=0.05)  # norms are not cut
    measured = memory.of_update(cut)
    assert measured.parameters + measured.optimizer == memory.state_bytes(cut) - 4  # the step
    assert memory.sampler_cache(cut, cut.calls[0]) == memory.sampler_cache(whole, whole.calls[0]) / 4


@pytest.mark.parametrize("mode, remat", [("adapters", "none"), ("full", "full")])
def test_the_work_of_an_update_is_what_xla_counts_for_one_layer(config, tmp_path, mode, remat):
    # One layer, one micro-batch, one chunk of logits: every loop runs once, as often as it is counted.
    actual = _job(_one_layer(config, tmp_path), team__mode=mode, policy__remat=remat, train__prompts=1,
                 train__prompts_per_microbatch=1, train__group=4)  # fmt: skip
    counted = update.train_step.lower(*job.update_arguments(actual)).compile().cost_analysis()["flops"]
    *_, learn = estimate.phases(actual)
    assert counted == pytest.approx(learn.executed, rel=0.12)  # norms, softmax, AdamW are on top


def test_the_work_of_the_sampler_is_what_xla_counts_for_one_layer_and_step(config, tmp_path):
    actual = _job(_one_layer(config, tmp_path), train__group=4)  # so few rows that all go on together
    stack, inputs, options = job.sampler_arguments(actual, actual.calls[0])
    compiled = sampling.generate.lower(stack, *inputs, **options).compile()
    prefill, decode, _ = estimate.phases(actual)
    step = decode.executed / (actual.tokens - 1)  # XLA counts the body of the loop once
    assert compiled.cost_analysis()["flops"] == pytest.approx(prefill.executed + step, rel=0.12)


def _one_layer(config, folder):
    one = dataclasses.replace(WIDE, n_layers=1, d_model=256, vocab_size=128)
    (folder / "config.json").write_text(json.dumps(hf_config.hf_config(one)))
    return config


def test_time_is_the_slowest_of_arithmetic_memory_and_links(config):
    actual = _job(config, team__mode="full", policy__dtype="bfloat16")
    chip = chips.Chip("slow", flops=1e9, hbm_bandwidth=1e9, hbm=1e9, link_bandwidth=1e9)
    prefill, decode, learn = phases = estimate.phases(actual)
    m = estimate.model(actual)
    # 31 steps, each reads two copies of the weights in bfloat16 and the caches of both agents.
    cache = memory.sampler_cache(actual, actual.calls[0])
    assert decode.memory == 31 * (2 * m.parameters * 2 + cache)
    assert decode.needed < decode.executed and decode.links == prefill.links == learn.links == 0
    assert decode.limits(chip)["memory"] == decode.memory / 1e9
    assert learn.seconds(chip) == learn.executed / 1e9
    *rows, (name, needed, _, seconds, _, mfu) = tables.time_rows(phases, chip, 1)
    assert name == "all" and seconds == pytest.approx(sum(row[3] for row in rows))
    assert mfu == pytest.approx(100 * needed * 1e15 / seconds / 1e9)


def test_devices_share_the_work_and_pay_for_gathering(config):
    alone = estimate.phases(_job(config, team__mode="full"))
    cut = estimate.phases(_job(config, 8, mesh__agent=2, mesh__data=2, mesh__model=2, mesh__fsdp=True,
                               train__prompts_per_microbatch=1))  # fmt: skip
    for one, all_ in zip(alone, cut, strict=True):
        assert all_.needed == one.needed
        assert all_.executed == pytest.approx(one.executed / 8)
        assert all_.links > 0
    # One step of the sampler: every weight of the own agent that the other of the two holds, in float32.
    m = estimate.model(_job(config, 8))
    sums = 2 * 2 * 0.5 * 16 * m.config.n_layers * m.config.d_model * 4  # 16 rows, halves of two sums a layer
    assert cut[1].links == pytest.approx(31 * (m.parameters / 2 / 2 * 4 + sums))


def test_the_mesh_is_chosen_by_time_among_those_with_room(config, monkeypatch):
    devices = jax.devices()[:2]
    chip = chips.Chip("far apart", flops=1e12, hbm_bandwidth=1e12, hbm=1e12, link_bandwidth=1.0)
    monkeypatch.setattr(chips, "of_device", lambda device: chip)
    assert from_config.chooses_mesh(config, 2) and not from_config.chooses_mesh(config, 1)
    chosen = from_config.choose_mesh(config, devices, lambda settings: True)
    assert (chosen.agent, chosen.data, chosen.model) == (2, 1, 1)  # nothing to exchange
    chosen = from_config.choose_mesh(config, devices, lambda settings: settings.agent == 1)
    assert chosen.agent == 1


def test_what_does_not_fit_leads_to_the_nearest_settings_that_do(config):
    start, devices = from_config.settings(config), jax.devices()[:1]
    measure, _ = from_config.measuring(config, devices, None, tries=0)
    before, after = (memory.fullest(measure(s)[1])[0] for s in (start, start._replace(tokens=64)))
    assert after < before
    limit = (before + after) / 2
    measure, promising = from_config.measuring(config, devices, limit, tries=8)
    (first,) = search.nearest(start, from_config.limits(config), measure, promising)
    assert first.settings in list(search.lighter(start))
    assert after <= memory.fullest(first.measured)[0] <= limit
    # The flags that the user is told to add make those settings.
    flags = from_config.flags(start, first.settings).split()
    changes = [flag.removeprefix("--config.").split("=") for flag in flags]
    config.update_from_flattened_dict({k: int(v) if v.isdigit() else v for k, v in changes})
    assert from_config.settings(config) == first.settings != start


@pytest.fixture
def compiled(monkeypatch):
    """Nothing is compiled: the jobs that would have been, with what other stacks hold."""
    actual = []

    def of_programs(job, others):
        actual.append((job, others))
        return {"update": memory.Memory(0, 0, others, 0, 0, 0, 0)}

    monkeypatch.setattr(memory, "of_programs", of_programs)
    return actual


def test_no_more_is_compiled_than_asked_for(config, compiled):
    measure, promising = from_config.measuring(config, jax.devices()[:1], limit=1e12, tries=1)
    start = from_config.settings(config)
    assert promising(start) and not from_config.measuring(config, jax.devices()[:1], 1.0, 1)[1](start)
    measure(start), measure(start)
    assert promising(start) and len(compiled) == 1
    measure(start._replace(tokens=64))
    assert not promising(start)


def test_every_team_has_one_job_per_architecture_and_each_counts_what_the_other_holds(config, compiled):
    config.team.models = (config.model, "random-tiny")
    held = [memory.state_bytes(actual) for actual in from_config.jobs(config, jax.devices()[:1])]
    from_config.measuring(config, jax.devices()[:1], None, 0)[0](from_config.settings(config))
    assert [job.stack.agents for job, _ in compiled] == [("aux",), ("main",)]
    assert [others for _, others in compiled] == held[::-1]


def test_overlapping_takes_copies_of_what_learns_and_one_device(config, compiled):
    config.train.overlap = True
    assert not from_config.chooses_mesh(config, 8)
    from_config.measuring(config, jax.devices()[:1], None, 0)[0](from_config.settings(config))
    ((actual, others),) = compiled
    assert others == 4 * sum(x.size for x in jax.tree.leaves(job.parameters(actual)[1]))


