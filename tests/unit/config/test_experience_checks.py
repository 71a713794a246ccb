"""What a config of an instructor and an assistant may say, and what each refusal names."""

import pytest

from configs import ablation, experience
from jaxmarl_llm.config import programs, validate, workload
from jaxmarl_llm.factory import sampler_calls
from jaxmarl_llm.factory.sampler_calls import Call


def config_of(arg=None, **fields):
    config = experience.get_config(arg)
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return config


@pytest.mark.parametrize("smoke", ["", "smoke"])
@pytest.mark.parametrize("arg", ["", "scripted", "generation", "train", "train,generation"])
def test_variants(arg, smoke):
    config = config_of(",".join(filter(None, (arg, smoke))) or None)
    validate(config)
    assert (config.model == "random-tiny") == (smoke == "smoke")
    assert (config.team.mode == "frozen") == ("train" not in arg)
    assert programs.searches(config) and programs.writers(config) == ("assistant",)
    assert all(name in experience.__doc__ for name in filter(None, arg.split(",")))


@pytest.mark.parametrize("arg, fields, message", [
    (None, dict(team__agents=("a",)), r"team.agents=\('a',\): train.protocol='experience' needs two, the instructor"),
    (None, dict(task__kind="coding", task__source="starter"), "task.kind='coding': train.protocol='experience' al"),
    ("train", dict(train__system="iac"), "train.system='iac': train.protocol='experience' allows magrpo, mareinforce"),
    ("train", dict(train__joint_mode="cross"), "train.joint_mode='cross': train.protocol='experience' needs 'alig"),
    ("train", dict(train__overlap=True, train__importance_cap=2.0), "train.overlap=True: experience.bank='run' sh"),
    ("train", dict(train__redraw=1), "train.redraw=1: experience.bank='run' keeps what each iteration found out"),
    ("train", dict(warm_up__steps=3), "warm_up.protocol='': demonstrations have no instructions; name another"),
    (None, dict(experience__encoder="bert"), "experience.encoder='bert': allowed are policy, ngrams, or the dotte"),
    (None, dict(experience__select="full"), "experience.select='full': allowed are cosine, bm25, two_step, random"),
    (None, dict(experience__select="bm25", experience__encoder="ngrams"), "experience.encoder='ngrams': only expe"),
    (None, dict(experience__select="none", experience__examples=2), "experience.examples=2: only train.protocol='"),
    (None, dict(experience__bank="none", experience__select="random"), "experience.select='random': only train.pr"),
    (None, dict(experience__threshold=-1.0), "experience.threshold=-1.0: allowed is 0 to any larger number"),
    (None, dict(train__protocol="reflexion", experience__keep=3), "experience.keep=3: only train.protocol='experi"),
    (None, dict(lessons__shown=2), "lessons.shown=2: train.protocol='experience' has no lessons, leave it at 4"),
])  # fmt: skip
def test_refusals(arg, fields, message):
    with pytest.raises(ValueError, match=message):
        validate(config_of(arg, **fields))


def test_other_rounds_need_no_more_than_their_name():
    validate(config_of(train__protocol="reflexion"))


def test_the_arithmetic():
    config = config_of("train", train__prompts=2, train__group=4, train__turns=3)
    # 2 problems x 4 chains x 3 versions; as many instructions, and those of the most shortcuts: of 4 versions, with
    # the given program, 3 pairs are not neighbours.
    assert workload.joint_answers(config) == 24
    assert workload.completions(config) == 24 + 24 + 8 * 3
    assert workload.learned(config) == 48
    # In the order of asking: for instructions, versions, ..
    calls = sampler_calls.of_training(config, config.team.agents, 4)
    first, others = Call(("instructor",), 2, 4), [Call((name,), 8, 1) for name in ("assistant", "instructor")]
    assert calls == (
        first,
        others[0],
        others[1],
        others[0],
        others[1],
        others[0],
        Call(("instructor",), 24, 1),
    )
    config.experience.shortcuts = 2
    assert workload.completions(config) == 48 + 16
    config.experience.bank = "none"
    assert workload.completions(config) == 48
    assert sampler_calls.of_training(config, ("assistant",), 4) == (others[0],) * 3


def test_the_members_of_an_ablation():
    config = config_of("scripted")
    members = ablation.members(config)
    assert list(members) == ["no examples", "random", "bm25", "cosine", "two steps"]
    for name, member in members.items():
        made = ablation.config_of(config, member)
        validate(made, name)
        assert ablation.agents_of(config, member) == ("assistant",) and len(made.team.agents) == 2
    assert (
        ablation.config_of(config, members["bm25"]).experience.encoder == "policy"
    )  # which nothing reads then
