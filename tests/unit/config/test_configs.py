"""Configs: options after the colon, variants, and checks that name field, value and what is allowed."""

import importlib
import json
import math
import re
import subprocess
import sys

import pytest
from ml_collections import config_dict
from repository import ROOT

from configs import coding, lessonl, published, writing
from jaxmarl_llm.config import FIELDS, base_config, parse_arg, programs, reference, validate
from jaxmarl_llm.config.options import field, leaves, no_such_field
from jaxmarl_llm.config.programs import check_training
from jaxmarl_llm.config.team import check_read
from jaxmarl_llm.tasks import sources

CHOICES = {path: tuple(each.choices) for path, each in FIELDS.items() if each.choices}
RANGES = {path: (each.low, each.high) for path, each in FIELDS.items() if each.low is not None}
READ = [path for path, each in FIELDS.items() if each.read]

VARIANTS = ("smoke", "toy", "warm_up", *published.EXPERIMENTS, "comlrl_compat")
COMBINED = (
    "warm_up,smoke",
    "smoke,comlrl_compat",
    *(f"smoke,{name}" for name in published.EXPERIMENTS),
    *(f"{name},small" for name in published.EXPERIMENTS),
    "he_1turn,comlrl_compat",
)


@pytest.mark.parametrize("text, wanted", [
    (None, dict(flag=False, rank=4, lr=0.1, name="a")),
    ("", dict(flag=False, rank=4, lr=0.1, name="a")),
    ("flag", dict(flag=True, rank=4, lr=0.1, name="a")),
    ("flag=false,rank=8", dict(flag=False, rank=8, lr=0.1, name="a")),
    ("lr=2e-5,name=b=c,flag=1", dict(flag=True, rank=4, lr=2e-5, name="b=c")),
    ("lr=1,", dict(flag=False, rank=4, lr=1.0, name="a")),
])  # fmt: skip
def test_options_are_typed(text, wanted):
    actual = parse_arg(text, flag=False, rank=4, lr=0.1, name="a").to_dict()
    assert actual == wanted
    types = dict(flag=bool, rank=int, lr=float, name=str)
    assert {name: type(value) for name, value in actual.items()} == types


@pytest.mark.parametrize("text, message", [
    ("frag", "unknown config option 'frag'; known are: flag, rank"),
    ("rank=4,size=3", "unknown config option 'size'"),
    ("rank=four", "config option rank='four' must be of type int"),
    ("rank", "config option rank='' must be of type int"),
    ("flag=maybe", "config option flag='maybe' must be true or false"),
])  # fmt: skip
def test_bad_options(text, message):
    with pytest.raises(ValueError, match=message):
        parse_arg(text, flag=False, rank=4)


@pytest.mark.parametrize("path, meant", [
    ("train.stepz", "train.steps"), ("train.seed", "seed"),
    ("lr", "critic.lr or gate.lr or qstar.lr or router.lr or train.lr or warm_up.lr"),
    ("eval.stes", "train.steps or warm_up.steps"), ("train.normalize", "train.normalise"),
    ("task.soruce", "task.source"),
])  # fmt: skip
def test_a_field_that_is_not_there_names_those_that_may_be_meant(path, meant):
    sentence = no_such_field(path, leaves(base_config()))
    assert sentence == f"there is no config field {path!r}; did you mean {meant}?"
    assert no_such_field("zzzz", ["seed"]) == "there is no config field 'zzzz'"


def test_a_file_without_options_says_so():
    with pytest.raises(ValueError, match="^unknown config option 'smoke'; this file has no options$"):
        parse_arg("smoke")


@pytest.mark.parametrize("arg", [None, *VARIANTS, *COMBINED])
def test_every_variant_can_be_used(arg):
    config = coding.get_config(arg)
    validate(config)
    for name in filter(None, (arg or "").split(",")):
        assert name in coding.__doc__
    assert (config.model == "random-tiny") == ("smoke" in (arg or ""))
    assert config.train.comlrl_compat == ("comlrl" in (arg or ""))
    config.lock()
    with pytest.raises(AttributeError, match="steps"):
        config.train.stepz = 3


def test_variants_that_exclude_each_other():
    with pytest.raises(ValueError, match="he_1turn and che_1turn exclude each other"):
        coding.get_config("he_1turn,che_1turn")
    with pytest.raises(ValueError, match="warm_up goes with smoke only, not with che_1turn"):
        coding.get_config("warm_up,che_1turn")
    with pytest.raises(ValueError, match="warm_up goes with smoke only, not with comlrl_compat"):
        coding.get_config("comlrl_compat,warm_up")
    with pytest.raises(ValueError, match="toy goes with no other"):
        coding.get_config("toy,smoke")
    with pytest.raises(ValueError, match="small needs one of he_1turn"):
        coding.get_config("small")
    with pytest.raises(ValueError, match="'laptop'; known are: warm_up, smoke, small, he_1turn"):
        coding.get_config("laptop")


def test_published_experiments_and_their_twins():
    config = coding.get_config("he_2turn_level_feedback")
    # 6 epochs over HumanEval 33..146, a problem at a time
    assert (config.task.source, config.train.steps) == ("humaneval[33:147]", 684)
    assert (config.train.turns, config.train.discount, config.train.group) == (2, 0.9, 4)
    assert (config.task.prompts, config.task.cooperation, config.task.parsing) == ("published", "paper", "paper")
    twin = coding.get_config("he_2turn_level_feedback,small")
    assert (twin.model, twin.task.source) == ("smollm2-135m-instruct", "starter")
    assert (twin.train.turns, twin.train.discount) == (2, 0.9)
    assert (twin.task.prompts, twin.task.cooperation, twin.task.parsing) == ("examples", "influence", "python")
    weighted = coding.get_config("mbpp_2turn_level_feedback")
    assert tuple(weighted.train.turn_weights) == (1.2, 0.8)
    guided, twin = coding.get_config("che_2turn_expert"), coding.get_config("che_2turn_expert,small")
    assert guided.task.feedback == twin.task.feedback == "expert_edits"
    assert (guided.expert.kind, twin.expert.kind, twin.expert.model) == (
        "anthropic", "local", "smollm2-135m-instruct",
    )  # fmt: skip


@pytest.mark.parametrize("get, names", [(coding.get_config, published.EXPERIMENTS),
                                        (writing.get_config, ("tldr", "arxiv"))])  # fmt: skip
def test_published_experiments_clip_no_gradients(get, names):
    assert {get(name).train.grad_clip for name in names} == {0.0}


def test_a_smoke_run_of_a_slice_is_evaluated_on_a_slice():
    sources_of = {name: coding.get_config(f"smoke,{name}").task.test_source for name in published.EXPERIMENTS}
    assert sources_of["he_1turn"] == "humaneval[:4]"
    for source in sources_of.values():
        name, chosen = sources.parse(source)
        assert "[" not in name and chosen == slice(None, 4), source
    assert writing.get_config("arxiv,smoke").task.eval_source == "OpenMLRL/arXiv_abstract[:4]"


@pytest.mark.parametrize("system", ["magrpo", "iac", "madpo"])
def test_a_run_folder_gives_the_same_config(system):
    config = coding.get_config()
    config.train.system = system
    read = config_dict.ConfigDict(json.loads(json.dumps(config.to_dict())))
    validate(read)  # tuples have become lists
    assert list(read.team.agents) == list(config.team.agents)


def changed(path, value):
    config = base_config()
    *sections, name = path.split(".")
    place = config
    for section in sections:
        place = place[section]
    with place.ignore_type():
        place[name] = value
    return config


def complaints(config):
    with pytest.raises(ValueError) as caught:
        validate(config)
    first, *lines = str(caught.value).split("\n")
    assert first == "the config cannot be used:"
    return [line.strip() for line in lines]


TIMED = {"task.kind": "optimisation"}
ASKED = {"train.turns": 2, "task.feedback": "expert_edits", "expert.model": "teacher"}
LESSONL = TIMED | {"train.protocol": "lessonl", "train.system": "lessonl"}
SERVED = {"engine.kind": "completions", "engine.servers": ("http://gpu1:8000",), "train.importance_cap": 2.0}
MAPCODER = TIMED | {"train.protocol": "mapcoder", "search.plans": 1}
SCORED = {"task.kind": "reasoning", "train.turns": 2, "task.feedback": "heard_scored"}
DISTILLED = {"train.system": "sft", "sft.source": "texts.jsonl", "distil.weight": 0.1}
MAPORL = {"train.system": "maporl", "train.turns": 2, "train.later_samples": 1}
MLPO = {
    "train.system": "mlpo", "train.protocol": "leader", "train.joint_mode": "aligned", "team.agents": ("peer", "lead"),
    "team.agent": {"peer": {"trainable": False}},
}  # fmt: skip
VALUED = MAPORL | {"maporl.value_model": True}
SEARCHED = {"task.kind": "generation", "train.protocol": "repeated"}
QSTAR = {"task.kind": "generation", "train.protocol": "qstar"}
EXPERIENCE = TIMED | {"train.protocol": "experience", "team.agents": ("instructor", "assistant")}
DIALOGUE = {
    "task.kind": "reasoning", "train.protocol": "dialogue", "train.turns": 2, "team.agents": ("actor", "partner"),
    "team.models": ("m", "expert:x"),
}  # fmt: skip
SWEET = DIALOGUE | {"train.system": "sweet"}
ROUTED = {
    "task.kind": "reasoning", "train.system": "der", "train.protocol": "routed", "train.joint_mode": "aligned",
}  # fmt: skip
GATED = {
    "task.kind": "world", "task.source": "kitchen", "train.protocol": "gated", "train.turns": 2,
    "train.joint_mode": "aligned",
}  # fmt: skip
LEARNED = GATED | {"gate.q": "learned"}
COMMITS = {"task.kind": "commits", "train.protocol": "pipeline"}
RETRIEVED = COMMITS | {"commits.examples": 1}
FIXED, CASCADE = ({"router.kind": "fixed", "router.agent": "aux"}, {"router.kind": "cascade", "train.turns": 2})
ADVICE = {
    "task.kind": "world", "task.source": "ball", "train.protocol": "advice", "train.turns": 4, "train.later_samples": 1,
    "train.joint_mode": "aligned",
}  # fmt: skip
# What makes a choice one that is read.
READ_WITH = {
    "train.hand_on": {"train.turns": 2}, "train.backup": {"train.turns": 2}, "train.group_by": {"train.turns": 2},
    "train.reduce": {"train.joint_mode": "cross"}, "train.ratio_level": {"train.clip": 0.2},
    "train.kl_kind": {"train.kl_coef": 0.1}, "critic.form": {"train.system": "iac"},
    "task.bands": {"task.kind": "tldr"}, "task.matching": {"task.kind": "tldr"},
    "task.feedback": {"train.turns": 2}, "expert.kind": ASKED,
    "task.reward_place": {"task.reward": "my.reward", "task.reward_workers": 2},
    "task.total": {"task.kind": "reasoning"}, "eval.vote": {"task.kind": "reasoning"},
    "eval.chains": {"task.kind": "reasoning", "eval.vote": "last"}, "task.shown_score": SCORED,
    "train.later_samples": {"train.turns": 2, "train.joint_mode": "aligned"},
    "train.later_prompts_per_microbatch": {
        "train.turns": 2, "train.later_samples": 1, "train.joint_mode": "aligned",
    },
    "task.drop_easier_than": {"task.kind": "reasoning"}, "maporl.horizon": MAPORL, "maporl.share": MAPORL,
    "mlpo.peer_answers": MLPO,
    "advice.every": ADVICE,
    "router.encoder": ROUTED, "router.discount": ROUTED, "router.gae_lambda": ROUTED, "router.change": ROUTED,
    **{f"gate.{name}": LEARNED if name in ("episodes", "encoder") else GATED for name in base_config().gate},
    "router.kind": ROUTED, "router.confidence": ROUTED | CASCADE, "tools.calls": {"tools.functions": ("my.tool",)},
    "tools.place": {"tools.functions": ("my.tool",), "train.joint_mode": "aligned"},
    "maporl.gae_lambda": VALUED, "maporl.kl_reward": VALUED, "train.epochs": {"train.clip": 0.2},
    "preference.selection": {"train.system": "madpo_iter"}, "preference.nll": {"train.system": "dpo"},
    "preference.replay": {"train.system": "madpo_iter"},
    "train.discount": {"train.turns": 2}, "train.stop_above": {"train.turns": 2},
    "train.turn_loss": {"train.turns": 2}, "train.minibatches": {"train.clip": 0.2},
    "search.plans": MAPCODER, "search.problems": MAPCODER,
    **{f"commits.{name}": RETRIEVED | {"commits.rule": "cosine"} for name in base_config().commits},
    "commits.rule": RETRIEVED,
    **{f"qstar.{name}": QSTAR for name in base_config().qstar}, "qstar.expansions": QSTAR | {"qstar.depth": 1},
    "qstar.depth": QSTAR | {"qstar.depth": 1},
    **{f"lessons.{name}": LESSONL for name in base_config().lessons},
    **{f"experience.{name}": EXPERIENCE for name in base_config().experience},
    **{f"timing.{name}": TIMED for name in base_config().timing},
    **{f"distil.{name}": DISTILLED for name in base_config().distil},
    "sft.prompts": {"train.system": "sft"},
}  # fmt: skip


@pytest.mark.parametrize("path", CHOICES)
def test_choices(path):
    for value in CHOICES[path]:
        config = changed(path, value)
        config.update_from_flattened_dict(READ_WITH.get(path, {}))
        config.train.importance_cap = 2.0 * (path == "sampling.dtype")  # a sampler of its own asks for it
        if (path, value) == ("policy.dtype", "float16"):
            config.team.mode = "frozen"
        config.train.normalise = value == "agent"
        needed = {"c3": "tree", "malt": "tree", "solo": "pipeline"}
        config.train.protocol = needed.get(value, config.train.protocol)
        if value in programs.METHODS:
            config.task.kind = "optimisation"
            config.train.system = "lessonl" if value == "lessonl" else "magrpo"
            config.train.protocol = value
            config.search.plans = 1 if value == "mapcoder" else config.search.plans
            config.task.kind = "generation" if value == "qstar" else config.task.kind
            if value == "experience":
                config.team.agents = EXPERIENCE["team.agents"]
        if value == "generated":
            config.task.kind, config.train.protocol = "generation", "repeated"
        if (path, value) == ("qstar.value", "fitted"):
            config.qstar.model = "runs/values"
        if value == "expert_edits":
            config.expert.model = "m"
        if value == "completions":
            config.update_from_flattened_dict(SERVED)
        if value == "mlpo":
            config.train.protocol, config.team.agents = "leader", ("peer", "lead")
            config.team.agent.peer = {"trainable": False}
        if value == "maporl":
            config.train.turns, config.train.later_samples = 2, 1
        if value in ("dialogue", "sweet"):
            config.update_from_flattened_dict(DIALOGUE)
            config.train.backup = "last" if value == "dialogue" else "mean"
        if value == "played":
            config.task.kind = "game"
        if path == "eval.vote":
            config.team.agents = ("a", "b", "c", "d")
            config.train.protocol = "retrieve" if value == "best" else "simultaneous"
        if value in ("heard", "heard_scored"):
            config.task.kind = "reasoning"
        if value in ("relay", "world"):
            config.train.turns = 2
        if value in ("advice", "mutual"):
            pairs = {"train.system": "mutual", "train.counterfactual": "solo"} if value == "mutual" else {}
            config.update_from_flattened_dict(ADVICE | pairs)
        if value in ("routed", "der") or path == "router.kind":
            config.update_from_flattened_dict(ROUTED)
            config.train.turns, config.router.agent = 3, "aux" if value in ("fixed", "prompt") else ""
            config.team.agents = ("aux", "b", "main") if path == "router.kind" else config.team.agents
        if value == "commits":
            config.train.protocol = "pipeline"
        if value == "planner":
            config.team.agents, config.tools.functions = ("a", "b", "c"), ("my.tool",)
        if value == "gated":
            config.update_from_flattened_dict(GATED)
        if value in ("leader", "review", "teams", "retrieve"):
            config.team.agents, config.task.kind = ("a", "b", "c", "d"), "reasoning"
        config.train.counterfactual = "nothing" if value == "ccpo" else config.train.counterfactual
        config.task.centralised = value == "centralised"
        config.team.agents = ("team",) if value == "centralised" else config.team.agents
        validate(config)
    allowed = ", ".join(choice or "''" for choice in CHOICES[path])
    assert complaints(changed(path, "both")) == [f"{path}='both': allowed are {allowed}"]


@pytest.mark.parametrize("path", RANGES)
def test_ranges(path):
    low, high = RANGES[path]
    real = isinstance(field(base_config(), path), float)
    below = low - 1e-3 if real else low - 1
    above = {None: [], 3: [4], 999: [1000], 1e6: [1.1e6, 1e10], 2**32 - 1: [2**70]}.get(high, [1.5])
    for value in [below, *above, *([math.nan, math.inf] if real else [])]:
        end = "any larger number" if high is None else high
        assert complaints(changed(path, value))[0] == f"{path}={value!r}: allowed is {low} to {end}"
    for value in filter(None, (low, high)):  # 0 of the temperature has a check of its own
        config = changed(path, value)
        config.update_from_flattened_dict(
            {name: given for name, given in READ_WITH.get(path, {}).items() if name != path}
        )
        assert [line for line in _quiet_complaints(config) if line.startswith(f"{path}=")] == []


def test_every_fraction_has_a_range():
    """Of a number that is not finite none allows anything (`test_ranges`)."""
    base = base_config()
    assert {path for path in flat(base) if isinstance(field(base, path), float)} <= set(RANGES)


def _quiet_complaints(config):
    try:
        validate(config)
    except ValueError as error:
        return [line.strip() for line in str(error).split("\n")[1:]]
    return []


@pytest.mark.parametrize("path, value, kind", [
    ("train.steps", "3", "int"), ("train.steps", 2.5, "int"), ("train.steps", True, "int"),
    ("train.lr", "fast", "float"), ("train.normalise", 1, "bool"), ("model", None, "str"),
    ("team.agents", "main", "tuple"), ("team", 3, "ConfigDict"),
])  # fmt: skip
def test_types(path, value, kind):
    assert complaints(changed(path, value)) == [f"{path}={value!r}: must be of type {kind}"]


def test_an_int_may_stand_for_a_float_and_nothing_may_lack():
    validate(changed("train.lr", 1))
    config = base_config()
    del config.train.lr
    del config.save
    assert set(complaints(config)) == {"train.lr is missing", "save is missing"}


@pytest.mark.parametrize("fields, message", [
    ({"team.agents": ()}, r"team.agents=\(\): allowed are one or more different names"),
    ({"team.agents": ("a", "a")}, r"team.agents=\('a', 'a'\): allowed are"),
    ({"team.agents": ("('main'",)}, r"team.agents=.*: \"\('main'\" is not allowed: names are made"),
    ({"team.agents": ("a", "")}, r"team.agents=\('a', ''\): '' is not allowed: names are made of letters"),
    ({"team.agents": ("a/b",)}, r"team.agents=\('a/b',\): 'a/b' is not allowed"),
    ({"team.agents": ("ä",)}, "team.agents=.*: 'ä' is not allowed"),
    ({"team.agents": (1, 2)}, r"team.agents=\(1, 2\): 1 is not allowed"),
    ({"team.agents": ("aux", "train")}, "team.agents=.*: 'train' is what other metrics begin with, choose"),
    ({"sampling.stop": (3,)}, r"sampling.stop=\(3,\): allowed are texts that are not empty"),
    ({"sampling.stop": ("\n", "")}, r"sampling.stop=\('\\n', ''\): allowed are texts that are not empty"),
    *(({"sampling.widths": widths}, rf"sampling.widths=\(.*\): {message}") for widths, message in (
        ((512, 256, 1024), "allowed are numbers of tokens, each larger"), ((256, 256, 1024), "allowed are numbers"),
        ((0, 1024), "allowed are numbers of tokens"), (("256", 1024), "allowed are numbers of tokens"),
        ((256, 512), "prompts may have sampling.max_prompt_tokens=1024; allowed is a last width of at least that"),
    )),
    ({"model": ""}, "model='': allowed are bundled names, folders, .gguf files and hub ids"),
    ({"team.models": ("", "x")}, r"team.models=\('', 'x'\): allowed are bundled names"),
    ({"team.targets": ()}, r"team.targets=\(\): allowed are one or more of q, k, v, o, gate, up, down"),
    ({"team.agents": ("a", "b", "c", "d"), "task.kind": "arxiv"},
     "team.agents=.*: task.kind='arxiv' with task.prompts='examples' allows 1 to 3 names"),
    ({"team.agents": tuple("abcdef"), "task.kind": "tldr", "task.prompts": "published"},
     "team.agents=.*: task.kind='tldr' with task.prompts='published' allows 1 to 5 names"),
    ({"lessons.encoder": "foo"}, "lessons.encoder='foo': allowed are policy, ngrams, or the dotted name"),
    ({"train.clip": 0.2, "train.clip_high": 0.1},
     "train.clip_high=0.1: allowed is 0, or any number from train.clip=0.2"),
    ({"team.models": ("x",)}, r"team.models=\('x',\): allowed is one model per agent \(2\), or none"),
    ({"train.minibatches": 3}, "train.minibatches=3: must divide train.prompts=4"),
    ({"train.minibatches": 0}, "train.minibatches=0: allowed is 1"),
    ({"train.minibatches": 2},
     "train.minibatches=2: from the second one on, answers were drawn by a policy .* correct for it with train"),
    ({"train.minibatches": 2, "train.clip": 0.2, "train.prompts_per_microbatch": 4},
     "train.prompts_per_microbatch=4: must divide the 2 problems of a minibatch"),
    ({"sampling.dtype": "bfloat16"},
     "sampling.dtype='bfloat16': the sampler differs .* correct for it with train.importance_cap"),
    ({"policy.dtype": "float16"}, "policy.dtype='float16': small gradients .* allowed are float32 and bfloat16"),
    ({"train.overlap": True}, "train.overlap=True: answers come from the policy before an update"),
    ({"train.overlap": True, "train.clip": 0.2, "mesh.data": 2}, "train.overlap=True: two programs at once"),
    ({"train.rollout_parts": 3}, "train.rollout_parts=3: allowed are divisors of train.prompts=4"),
    ({"train.rollout_parts": 2, "mesh.data": 2}, "train.rollout_parts=2: two rollouts at once need a device alone"),
    ({"train.rollout_parts": 2, "seeds": (0, 1)}, "train.rollout_parts=2: several seeds draw together"),
    ({"train.rollout_parts": 2, "tools.of_task": True}, "train.rollout_parts=2: tools are called by one rollout"),
    ({"train.rollout_parts": 2, "team.models": ("HuggingFaceTB/SmolLM2-135M-Instruct", "expert:x")},
     "train.rollout_parts=2: allowed is 1 where agents or their engine answer elsewhere"),
    ({"mesh.agent": 0}, "mesh.agent=0: allowed is 1 to any larger number"),
    ({"train.importance_cap": 2.0, "train.clip": 0.2}, "train.importance_cap=2.0: .*allowed is 0"),
    ({"train.kl_coef": 0.1, "train.kl_kind": "k1"}, "train.kl_kind='k1': allowed are k2, k3"),
    ({"train.clip_high": 0.3}, "train.clip_high=0.3: train.clip is 0, so nothing is clipped, allowed is 0"),
    ({"train.dual_clip": 3.0}, "train.dual_clip=3.0: train.clip is 0"),
    ({"train.clip": 0.2, "train.dual_clip": 1.0}, "train.dual_clip=1.0: allowed is 0, or any number above 1"),
    ({"train.drop_truncated": True, "train.comlrl_compat": True, "task.cooperation": "paper",
      "task.parsing": "paper"},
     "train.drop_truncated=True: train.comlrl_compat trains all completions, allowed is False"),
    *(({"train.normalise": True, "train.baseline": baseline},
       f"train.baseline='{baseline}': normalising by group takes .* the same as 'mean', say that")
      for baseline in ("leave_one_out", "max", "none")),
    *(({"train.normalise": True, "train.system": system},
       f"train.system='{system}': is train.system='magrpo' with train.normalise=True: .*, say that")
      for system in ("marloo", "maremax", "mareinforce")),
    ({"train.system": "at_grpo", "train.baseline": "max"}, "train.baseline='max': normalising by group"),
    ({"train.normalise": True, "train.normalise_by": "agent", "train.baseline": "none"},
     "train.normalise_by='agent': needs a baseline, train.baseline is 'none'"),
    ({"train.normalise": True, "train.normalise_by": "agent", "train.system": "mareinforce"},
     "train.normalise=True: train.system='mareinforce' compares with nothing, allowed is False"),
    ({"train.system": "iac", "train.baseline": "max"}, "train.baseline='max': train.system='iac' allows"),
    ({"train.system": "maac", "train.normalise": True}, "train.normalise=True: with a critic train"),
    ({"train.system": "iac", "team.mode": "frozen"}, "train.system='iac': team.mode='frozen' learns nothing"),
    ({"train.system": "iac", "train.group": 1, "critic.form": "q"},
     "train.group=1: critic.form='q' compares the answers of a group, allowed is 2 to any larger number"),
    ({"train.system": "iac", "critic.shared": True, "critic.updates": 4},
     "critic.updates=4: with critic.shared=True agent and head learn together, allowed is 1"),
    ({"train.system": "iac", "critic.shared": True, "critic.warmup": 2},
     "critic.warmup=2: with critic.shared=True agent and head learn together, allowed is 0"),
    ({"train.system": "maac", "critic.warmup": 5, "train.steps": 5},
     "critic.warmup=5: must be below train.steps=5"),
    ({"critic.updates": 0}, "critic.updates=0: allowed is 1 to any larger number"),
    ({"train.system": "maac", "critic.shared": True},
     "critic.shared=True: the critic of train.system='maac'"),
    ({"train.system": "iac", "critic.shared": True, "train.minibatches": 2, "train.clip": 0.2},
     "train.minibatches=2: with critic.shared=True agent and head make one step"),
    ({"train.normalise_by": "agent"}, "train.normalise_by='agent': does nothing without train.normalise"),
    ({"train.normalise": True, "train.normalise_by": "agent", "train.baseline": "leave_one_out"},
     "train.baseline='leave_one_out': is G/.* the same as 'mean', say that"),
    ({"train.backup": "max"}, "train.backup='max': with train.turns=1 there is nothing to back up"),
    ({"train.backup": "last", "train.turns": 2, "train.hand_on": "best"},
     "train.backup='last': with train.hand_on='best' .* share what follows: only the last turn would learn"),
    ({"train.backup": "max", "train.turns": 2, "train.hand_on": "random"},
     "train.backup='max': with train.hand_on='random' .* share what follows: it is the same as 'mean'"),
    ({"sampling.temperature": 0.0}, "sampling.temperature=0: .*above 0"),
    ({"train.turn_weights": ("1",)}, r"train.turn_weights=\('1',\): allowed are numbers from 0"),
    ({"train.turn_weights": (-1.0,)}, r"train.turn_weights=\(-1.0,\): allowed are numbers from 0"),
    ({"engine.kind": "completions", "train.importance_cap": 2.0},
     r"engine.servers=\(\): engine.kind='completions' needs one or more"),
    *((SERVED | {"engine.servers": servers}, message) for servers, message in (
        (("gpu1:8000",), "engine.servers=.*: 'gpu1:8000' is no address; allowed: http://<host>:<port>"),
        (("http://gpu1:x",), "engine.servers=.*'http://gpu1:x' is no address"),
        ((8000,), "engine.servers=.*: 8000 is no address"),
        *(((f"http://{host}",), "engine.servers=.* is no address; allowed: http://<host>:<port>") for host in (
            "[::1:8000", "[x]:8000", ".x:80", "gpu1..cluster:80", "a" * 70 + ":8000", "gpu 1:8000", "gpu1:8000\n",
            "gpu1:8000\t", "\x00y:80", " gpu1:8000", ":8000", "gpu1:0", "gpu1:65536",
        )),
        ((" http://gpu1:8000",), "engine.servers=.* is no address"),
        (("http://gpu1:8000/v1",), "engine.servers=.*/v1' has a path; allowed is the address without /v1"),
        (("http://me:Zq81@gpu1:8000",), "engine.servers: an address holds a user[^Z]*$"),
        *((servers, "engine.servers=.*: allowed are different ones") for servers in (
            ("http://gpu1:8000",) * 2, ("http://gpu1", "http://gpu1:80"), ("https://GPU1:443", "https://gpu1"),
        )),
    )),
    (SERVED | {"engine.timeout_seconds": 1e10}, r"engine.timeout_seconds=1\w*.*: allowed is 0.001 to 1"),
    (SERVED | {"train.importance_cap": 0.0},
     "engine.kind='completions': servers compute in another way .* correct for it with train.importance_cap"),
    (SERVED | {"team.mode": "full"}, "team.mode='full': engine.kind='completions' sends adapters"),
    (SERVED | {"team.mode": "frozen"}, "team.mode='frozen': engine.kind='completions' sends adapters"),
    (SERVED | {"team.models": ("x", "y")}, r"team.models=\('x', 'y'\): .* servers of one model, allowed is one"),
    (SERVED | {"mesh.data": 2}, r"mesh=\(1, 2, 1\): engine.kind='completions' goes with one device here"),
    (SERVED | {"sampling.dtype": "float32"}, "sampling.dtype='float32': engine.kind='completions' draws nothing"),
    (SERVED | {"model_options.quantize": "nf4"},
     "model_options.quantize='nf4': engine.kind='completions' draws from the servers' weights, .* allowed is ''"),
    (SERVED | {"sampling.top_k": 5, "sampling.top_p": 0.9},
     "sampling.top_k=5, sampling.top_p=0.9: engine.kind='completions' allows one of top_k, top_p and min_p"),
    (SERVED | {"engine.key_variable": "sk-test-Zq81"}, "engine.key_variable: allowed are nothing, or [^Z]*$"),
    (SERVED | {"train.comlrl_compat": True, "train.importance_cap": 0.0, "task.cooperation": "paper",
               "task.parsing": "paper"},
     "engine.kind='completions': servers compute in another way"),
    ({"expert.key_variable": "sk-test-Zq81"}, "expert.key_variable: allowed are auto, nothing, or [^Z]*$"),
])  # fmt: skip
def test_contradictions(fields, message):
    config = base_config()
    config.update_from_flattened_dict(fields)
    (line,) = complaints(config)
    assert re.match(message, line), line


def test_what_a_run_with_critics_has_saved_can_be_read_again():
    config = base_config()
    config.train.system = "iac"
    validate(config_dict.ConfigDict(json.loads(json.dumps(config.to_dict()))))


@pytest.mark.parametrize("baseline, normalise, by", [
    # Four methods; normalised by group they are one, by agent two (test_credit_advantages.py).
    *((baseline, False, "group") for baseline in CHOICES["train.baseline"]),
    ("mean", True, "group"), ("mean", True, "agent"), ("max", True, "agent"),
])  # fmt: skip
def test_baselines_that_differ_are_allowed(baseline, normalise, by):
    config = base_config()
    config.train.update(baseline=baseline, normalise=normalise, normalise_by=by)
    validate(config)


def test_all_that_is_wrong_is_told_at_once():
    config = base_config()
    config.update_from_flattened_dict({"train.group": 1, "train.decay": "step", "train.minibatches": 3})
    assert [line.split("=")[0] for line in complaints(config)] == [
        "train.decay", "train.group", "train.minibatches",
    ]  # fmt: skip


def test_every_field_is_explained():
    for path, each in FIELDS.items():
        assert each.about.endswith((".", ":")), path


def test_the_page_of_all_fields_is_the_one_that_the_code_writes():
    assert (ROOT / "docs/config.md").read_text() == reference.page()
    assert set(re.findall(r"^\| `([\w.]+)` \|", reference.page(), re.MULTILINE)) == set(FIELDS)


def flat(config, prefix=""):
    """Dotted names of all fields; an empty section holds a dict."""
    for name, value in config.items():
        if isinstance(value, config_dict.ConfigDict) and len(value):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


# A value of each that nothing reads in the base config, and what makes it read.
UNREAD = {
    "distil.weight": (0.1, DISTILLED), "distil.fuse": ("avg_ce", DISTILLED), "distil.cost": ("token", DISTILLED),
    "distil.align": ("edits", DISTILLED),
    "sft.source": ("rows.jsonl", {"train.system": "sft"}),
    "sft.prompts": ("rollout", {"train.system": "sft"}),
    "critic.form": ("q", {"train.system": "maac"}),
    "critic.shared": (True, {"train.system": "iac"}),
    "preference.selection": ("random", {"train.system": "marlhf"}),
    "preference.replay": ("current", {"train.system": "marlhf_iter"}),
    "train.kl_kind": ("k2", {"train.kl_coef": 0.1}),
    "train.ratio_level": ("sequence", {"train.clip": 0.2}),
    "team.targets": (("q", "v"), {"team.mode": "adapters"}),
    "model_options.date": ("2026-11-26", {"model_options.chat": True}),
    "model_options.quantize": ("nf4", {"team.mode": "adapters"}),
    "train.reduce": ("sum", {"train.joint_mode": "cross"}),
    "train.importance_bound": (0.05, {"policy.dtype": "bfloat16"}),
    "train.hand_on": ("best", {"train.turns": 2}),
    "train.discount": (0.5, {"train.turns": 2}),
    "train.stop_above": (1.0, {"train.turns": 2}),
    "task.cooperation": ("observed", {"task.kind": "coding"}),
    "task.prompts": ("published", {"task.kind": "coding"}),
    "task.parsing": ("paper", {"task.kind": "coding"}),
    "task.bad_rows": ("drop", {"task.kind": "generation"}),
    "task.held_back": (0.5, {"task.kind": "generation"}),
    "task.bands": ("arxiv_later", {"task.kind": "arxiv"}),
    "task.matching": ("corrected", {"task.kind": "tldr"}),
    "task.column": ("post", {"task.kind": "tldr"}),
    "mesh.fsdp": (True, {"mesh.data": 2}),
    "log.transcript_tokens": (True, {"log.transcripts_every": 1}),
    "engine.servers": (("http://gpu1:8000",), SERVED),
    "engine.adapter_folder": ("/shared/adapters", SERVED),
    "engine.key_variable": ("ENGINE_KEY", SERVED),
    "train.turn_loss": ("mean", {"train.turns": 2}),
    "train.later_samples": (1, {"train.turns": 2}),
    "task.drop_easier_than": (0.5, {"task.kind": "reasoning"}),
    "tools.agents": (("aux",), {"tools.functions": ("my.tool",)}),
    "tools.calls": (5, {"tools.functions": ("my.tool",)}),
    "tools.place": ("sandbox", {"tools.functions": ("my.tool",)}),
    "tools.allowed": (("add",), {"tools.servers": ("server",)}),
    "tools.key_variables": (("KEY",), {"tools.servers": ("server",)}),
    "qstar.model": ("runs/values", QSTAR | {"qstar.value": "fitted"}), "qstar.expansions": (30, QSTAR),
    **{f"qstar.{name}": (value, QSTAR) for name, value in {
        "samples": 2, "depth": 4, "answers": 2, "step_tokens": 8, "weight": 0.5, "value": "random", "process": "tokens",
        "aggregate": "min", "labels": "best_rollout", "discount": 0.5, "rollouts": 4, "rounds": 3, "updates": 5,
        "batch": 8, "lr": 0.01,
    }.items()},
    "search.by_budget": (True, QSTAR),
    "router.kind": ("cascade", ROUTED | {"train.turns": 2}),
    "router.agent": ("main", ROUTED | FIXED),
    "router.confidence": (-1.0, ROUTED | CASCADE),
    "router.costs": ((0.1, 0.2), ROUTED),
    "router.token_prices": (((0.1, 0.2), (0.0, 1.0)), ROUTED),
    "router.change": (0.5, ROUTED),
    "router.encoder": ("policy", ROUTED),
    "router.discount": (0.5, ROUTED),
    "router.gae_lambda": (0.5, ROUTED),
    "advice.every": (3, ADVICE),
    "commits.examples": (3, COMMITS), "commits.max_diff_tokens": (99, COMMITS), "commits.reward": ("bleu", COMMITS),
    "commits.copy_share": (0.5, COMMITS), "commits.rule": ("random", RETRIEVED),
    "commits.encoder": ("my.encode", RETRIEVED | {"commits.rule": "cosine"}),
    "advice.shuffled": (True, ADVICE),
    "train.group_by": ("prompt", {"train.turns": 2}),
    "train.later_prompts_per_microbatch": (8, {"train.turns": 2, "train.later_samples": 1}),
    "task.remember": (True, {"task.kind": "world", "train.turns": 2}),
    "task.share_views": (True, {"task.kind": "world", "train.turns": 2}),
    "gate.eps": (0.1, GATED), "gate.retries": (3, GATED), "gate.mode": ("joint", GATED), "gate.q": ("permuted", GATED),
    "gate.discount": (0.5, GATED), "gate.planner": (0.5, GATED), "gate.waits": (0.5, GATED),
    "gate.episodes": (10, LEARNED), "gate.encoder": ("policy", LEARNED),
    "mlpo.peer_answers": (4, MLPO),
    "maporl.horizon": ("last", MAPORL),
    "maporl.share": ("individual", MAPORL),
    "maporl.value_model": (True, MAPORL),
    "maporl.verifier": (True, MAPORL),
    "maporl.gae_lambda": (0.5, VALUED),
    "maporl.kl_reward": (0.1, VALUED),
    "task.total": ("last", {"task.kind": "reasoning"}),
    "task.grades": ((1, 3), {"task.kind": "reasoning"}),
    "task.shown_score": ("my.verifier", SCORED),
    "eval.vote": ("last", {"task.kind": "reasoning"}),
    "eval.until_agreed": (True, SCORED),
    "task.feedback": ("passed", {"train.turns": 2}),
    "task.revealed_tests": (2, {"train.turns": 2}),
    "train.grade_every": (2, {"task.kind": "game"}),
    "preference.reference": (True, {"train.system": "madpo"}),
    "preference.nll": (0.1, {"train.system": "dpo"}),
    "sweet.privileged": (False, SWEET),
    "expert.model": ("teacher", {"train.turns": 2, "task.feedback": "expert_edits"}),
    "task.reward_workers": (2, {"task.reward": "my.reward"}),
    "task.reward_place": ("processes", {"task.reward": "my.reward", "task.reward_workers": 2}),
    "expert.kind": ("anthropic", ASKED),
    "expert.base_url": ("http://localhost:8000/v1", ASKED),
    "expert.cache": ("answers", ASKED),
    "expert.offline": (True, ASKED | {"expert.cache": "answers"}),
    "search.plans": (1, TIMED | {"train.protocol": "mapcoder"}),
    "search.problems": (2, SEARCHED),
    "search.stop_when_solved": (True, SEARCHED),
    "search.prices": ((("smollm2-135m-instruct", 1.0, 2.0),), SEARCHED),
    "lessons.shown": (2, LESSONL),
    "lessons.select": ("random", LESSONL),
    "lessons.control": (1, LESSONL | {"lessons.select": "dealt"}),
    "lessons.factor": ("off", LESSONL),
    "lessons.step": (0.2, LESSONL),
    "lessons.gate": (1.2, LESSONL),
    "lessons.encoder": ("ngrams", LESSONL),
    "lessons.bank": ("run", LESSONL),
    "lessons.keep": (9, LESSONL),
    **{f"experience.{name}": (value, EXPERIENCE) for name, value in {
        "bank": "none", "select": "random", "examples": 2, "encoder": "ngrams", "threshold": 0.1, "shortcuts": 3,
        "end": "last", "keep": 9,
    }.items()},
    "timing.min_pairs": (9, TIMED),
    "timing.max_pairs": (23, TIMED),
    "timing.width": (0.2, TIMED),
    "timing.cap": (5.0, TIMED),
    "timing.seconds": (9.0, TIMED),
    "timing.min_seconds": (0.1, TIMED),
    "timing.remember": (False, TIMED),
}


READ_BY_CODING = (
    "task.cooperation", "task.parsing", "task.bad_rows", "task.held", "task.prompts", "train.grade_every",
)


@pytest.mark.parametrize("path", READ)
def test_what_nothing_reads_is_refused(path):
    value, read = UNREAD[path]
    config = changed(path, value)
    unlike = {
        "team.targets": {"team.mode": "full"}, "model_options.date": {"model_options.chat": False},
        "model_options.quantize": {"team.mode": "full"}, "log.transcript_tokens": {"log.transcripts_every": 0},
    }  # fmt: skip
    config.update_from_flattened_dict(unlike.get(path, {}))
    if path.startswith(READ_BY_CODING):
        config.task.kind = "tldr"
    if path == "task.prompts":
        config.task.kind = "game"
    (line,) = complaints(config)
    default = field(base_config(), path)
    assert line.startswith(f"{path}={value!r}: ") and line.endswith(f", allowed is {default!r}")
    config.update_from_flattened_dict(read)
    validate(config)


def test_minibatches_are_stale_without_a_ratio():
    """Where the original's loss is mimicked they may be, as there; else something has to correct for it."""
    for allowed in ({"clip": 0.2}, {"importance_cap": 2.0}, {"loss": "m.f"}, {"comlrl_compat": True}):
        config = changed("train.minibatches", 2)
        config.train.update(allowed)
        if "comlrl_compat" in allowed:
            config.task.cooperation = config.task.parsing = "paper"
        validate(config)


def test_a_system_of_ones_own_reads_what_it_likes():
    config = changed("train.reduce", "sum")
    config.train.update(system="my_module.assign", discount=0.5)
    validate(config)


def test_a_team_that_learns_nothing_is_not_trained():
    config = changed("team.mode", "frozen")
    validate(config)  # it may search, and be evaluated
    with pytest.raises(ValueError, match="cannot be trained: team.mode=.frozen.: no agent learns; "):
        check_training(config)


def variants():
    """(file, text after the colon) of every option of every config file, alone and with smoke."""
    for path in sorted((ROOT / "configs").glob("*.py")):
        module = importlib.import_module(f"configs.{path.stem}")
        if not hasattr(module, "get_config") or path.stem == "compare":  # which has a test of its own
            continue
        text = " ".join(module.__doc__.partition("Variants")[2].split())
        names = [name for name in re.findall(r"[a-z]\w+", text) if name in path.read_text()]
        for name in dict.fromkeys(["", *names]):
            yield from ((path.stem, name), (path.stem, f"{name},smoke"))


def test_every_config_file_and_option_can_be_used():
    used = 0
    for stem, arg in variants():
        try:
            config = importlib.import_module(f"configs.{stem}").get_config(arg.strip(",") or None)
        except ValueError:  # a word that is no option, or one that needs another
            continue
        validate(config)
        used += 1
    assert used > 60


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.py")), ids=lambda path: path.stem)
def test_config_files_tell_command_result_and_cost(path):
    """Those with a `get_config`; `common` and `__init__` are parts of them."""
    module = importlib.import_module(f"configs.{path.stem}")
    if hasattr(module, "get_config"):
        assert f"--config=configs/{path.name}" in module.__doc__
        assert "Result:" in module.__doc__ and "Cost:" in module.__doc__


def test_configs_bring_in_no_jax():
    code = (
        "import sys\nfrom configs import coding\nfrom jaxmarl_llm.config import validate\n"
        "validate(coding.get_config('smoke'))\n"
        "print(sorted({'jax', 'numpy', 'flax'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


@pytest.mark.parametrize(
    "arg", [None, "tldr", "arxiv", "tldr,small", "arxiv,small", "smoke", "arxiv,small,smoke"]
)
def test_writing_variants(arg):
    config = writing.get_config(arg)
    validate(config)
    for name in filter(None, (arg or "").split(",")):
        assert name in writing.__doc__
    kind = "arxiv" if "arxiv" in (arg or "") else "tldr"
    assert config.task.kind == kind and len(config.team.agents) == 2
    assert (config.task.source == {"tldr": "sample_posts", "arxiv": "sample_abstracts"}[kind]) == (
        arg in (None, "smoke") or "small" in arg
    )


@pytest.mark.parametrize("smoke", ["", "smoke"])
@pytest.mark.parametrize(
    "arg", ["", "scripted", "cpp", "scripted,cpp", "generation", "train", "train,cpp", "train,generation"]
)
def test_lessonl_variants(arg, smoke):
    config = lessonl.get_config(",".join(filter(None, (arg, smoke))) or None)
    validate(config)
    assert (config.model == "random-tiny") == (smoke == "smoke")
    assert config.task.kind == ("generation" if "generation" in arg else "optimisation")
    assert (config.team.mode == "frozen") == ("train" not in arg)


def test_writing_has_one_turn():
    config = writing.get_config()
    config.train.turns = 2
    assert "task.kind='tldr' has one turn" in complaints(config)[0]


def test_fields_that_contradict_each_other():
    config = base_config()
    config.train.protocol, config.train.joint_mode = "pipeline", "cross"
    wanted = "train.protocol='pipeline': needs train.joint_mode='aligned', it is 'cross'"
    assert wanted in complaints(config)[0]
    config = base_config()
    config.task.centralised = True
    assert "task.centralised allows one, who writes all roles" in complaints(config)[0]
    config = base_config()
    config.train.turn_weights = (1.0, 2.0)
    assert complaints(config) == ["train.turn_weights=(1.0, 2.0): allowed is one per turn (1), or none"]


@pytest.mark.parametrize("fields, message", [
    ({"task.feedback": "plain", "train.turns": 2, "task.revealed_tests": 3}, "task.revealed_tests=3: only"),
    ({"team.agents": ("solo",), "task.cooperation": "observed"}, "task.cooperation='observed': only"),
    (LESSONL | {"train.turns": 2, "task.feedback": "passed"}, "task.feedback='passed': no turn follows"),
    ({"train.system": "dr_mas", "train.baseline": "leave_one_out"}, "train.system='dr_mas' divides that out"),
    ({"train.system": "dr_mas", "train.baseline": "none"}, "train.system='dr_mas': needs a baseline"),
    ({"train.system": "at_grpo", "train.local_weight": 1.0, "task.kind": "tldr"}, "no agent earns by itself"),
    ({"train.system": "sft", "sft.prompts": "rollout", "sft.source": "rows.jsonl"},
     "sft.prompts='rollout': sft.source='rows.jsonl' has prompts of its own, allowed is 'given'"),
    ({"train.system": "sft", "sft.prompts": "rollout", "team.agents": ("main",), "tools.functions": ("my.add",)},
     "sft.prompts='rollout': demonstrations are of answers, and agents have tools; allowed is 'given'"),
    ({"train.system": "sft", "train.budget_tokens": 9}, "train.budget_tokens=9: train.system='sft' allows 0"),
    ({"train.system": "sft", "train.turns": 2, "train.hand_on": "best"}, "train.hand_on='best': train."),
    ({"train.comlrl_compat": True, "task.cooperation": "paper", "train.clip": 0.2}, "train.clip=0.2: train"),
    ({"train.system": "marlhf", "preference.pairs": 0, "preference.selection": "random"}, "all pairs are"),
    (TIMED | {"task.reward": "m:f", "timing.cap": 5.0}, "timing.cap=5.0: only"),
    ({"train.system": "ccpo", "train.counterfactual": "sample", "train.protocol": "pipeline"}, "say 'solo'"),
    ({"train.turns": 2, "train.comlrl_compat": True}, "train.turn_loss='return': train.comlrl_compat has"),
    ({"train.importance_bound": 0.05}, "train.importance_bound=0.05: nothing is weighed by it"),
    ({"train.importance_bound": 0.05, "train.clip": 0.2, "policy.dtype": "bfloat16"}, "nothing is weighed by it"),
    ({"train.reduce": "sum", "train.joint_mode": "cross", "train.normalise": True}, "the same as 'mean', say that"),
    ({"train.reduce": "sum", "train.joint_mode": "cross", "train.system": "dr_mas"}, "the same as 'mean', say that"),
    ({"train.turns": 2, "train.turn_weights": (0, 0)}, "train.turn_weights=(0, 0): nobody would learn"),
    ({"team.mode": "frozen", "warm_up.steps": 3}, "warm_up.steps=3: team.mode='frozen' learns nothing"),
    (LESSONL | {"warm_up.steps": 3}, "warm_up.protocol='': demonstrations have no lessons"),
    (TIMED | {"task.centralised": True, "team.agents": ("t",)}, "task.centralised=True: task.kind="),
])  # fmt: skip
def test_settings_that_come_to_nothing_in_their_company(fields, message):
    config = base_config()
    config.update_from_flattened_dict(fields)
    assert any(message in line for line in complaints(config))


@pytest.mark.parametrize("fields", [
    {"train.system": "c3", "train.protocol": "tree", "train.reduce": "sum"},
    {"task.kind": "m:Task", "task.prompts": "published", "task.held_back": 0.5, "task.column": "text"},
    {"task.kind": "m:Task", "task.cooperation": "paper", "task.revealed_tests": 3},
    {"train.protocol": "m:Protocol", "train.hand_on": "best", "train.stop_above": 1.0},
    {"train.system": "sft", "train.minibatches": 2},
    {"train.system": "sft", "sampling.dtype": "bfloat16"},
])  # fmt: skip
def test_what_somebody_may_read_is_allowed(fields):
    config = base_config()
    config.update_from_flattened_dict(fields)
    validate(config)


def test_a_team_that_begins_elsewhere_is_not_read_without_its_run():
    for path, value in (("warm_up.steps", 3), ("team.begin", "runs/x")):
        config = changed(path, value)
        check_read(config, "runs/y")
        with pytest.raises(ValueError, match=f"{path}=.*without --workdir the untrained team would answer"):
            check_read(config, "")
