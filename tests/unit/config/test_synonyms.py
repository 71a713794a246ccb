"""Fields that are not there are answered by what they mean: names of other libraries, other spellings, words."""

import pytest

from configs import coding
from jaxmarl_llm.config import base_config, sweeps, synonyms, validate
from jaxmarl_llm.config.base import ABOUT
from jaxmarl_llm.config.options import leaves, no_such_field

KNOWN = [*leaves(base_config()), "team.agent.main.lr", "team.agent.main.max_new_tokens"]


def meant(path):
    _, _, answer = no_such_field(path, KNOWN, ABOUT).partition("did you mean ")
    return answer.removesuffix("?")


@pytest.mark.parametrize("path, field", [
    # TRL and transformers
    ("train.learning_rate", "train.lr"), ("learning_rate", "train.lr"), ("num_generations", "train.group"),
    ("train.max_completion_length", "sampling.max_new_tokens"), ("train.beta", "train.kl_coef"),
    ("train.epsilon", "train.clip"), ("train.epsilon_high", "train.clip_high"),
    ("gradient_accumulation_steps", "train.prompts_per_microbatch"),
    ("per_device_train_batch_size", "train.prompts"), ("train.num_train_epochs", "train.steps"),
    ("model_name_or_path", "model"), ("dataset_name", "task.source"), ("temperature", "sampling.temperature"),
    ("lr_scheduler_type", "train.decay"), ("warmup_ratio", "train.warmup"), ("max_grad_norm", "train.grad_clip"),
    ("bf16", "policy.dtype"), ("gradient_checkpointing", "policy.remat"), ("save_steps", "save.every"),
    ("eval_steps", "eval.every"), ("report_to", "log.wandb_project"), ("output_dir", "--workdir"),
    ("reward_funcs", "task.reward"), ("scale_rewards", "train.normalise"), ("lora_r", "team.rank"),
    # verl and OpenRLHF
    ("kl_coef", "train.kl_coef"), ("algorithm.kl_ctrl.kl_coef", "train.kl_coef"),
    ("actor_rollout_ref.rollout.n", "train.group"), ("data.max_response_length", "sampling.max_new_tokens"),
    ("algorithm.adv_estimator", "train.system"), ("trainer.total_epochs", "train.steps"),
    ("actor_rollout_ref.actor.clip_ratio", "train.clip"), ("n_samples_per_prompt", "train.group"),
    ("tensor_model_parallel_size", "mesh.model"), ("gamma", "train.discount"),
    # spellings
    ("train.LearningRate", "train.lr"), ("train.learning-rate", "train.lr"), ("train.learnign_rate", "train.lr"),
    ("num_generation", "train.group"), ("KL-Coeff", "train.kl_coef"),
    # the section that it stands in
    ("critic.learning_rate", "critic.lr"), ("warm_up.learning_rate", "warm_up.lr"),
    ("team.agent.main.learning_rate", "team.agent.main.lr"), ("preference.beta_", "preference.beta"),
    ("team.agent.main.max_completion_length", "team.agent.main.max_new_tokens"),
    ("beta", "train.kl_coef or preference.beta"),
    # words of a field's sentence
    ("train.rate", "train.lr"), ("sampling.likeliest", "sampling.top_p"), ("executor.isolation", "executor.min_level"),
    # nothing is like it
    ("train.foo", ""), ("zzzz", ""),
])  # fmt: skip
def test_what_is_meant(path, field):
    assert meant(path) == field


def test_every_answer_is_a_field_and_no_synonym_is_one():
    fields = {*leaves(base_config())}
    answers = {path for paths in synonyms._MEANT.values() for path in paths}
    assert answers <= fields | {synonyms.WORKDIR}
    assert not {*synonyms._MEANT} & fields


def test_fields_that_a_config_file_adds_are_refused_by_their_meaning():
    config = coding.get_config("smoke")
    config.train.learning_rate = 1e-3
    config.num_generations = 8
    with pytest.raises(ValueError) as error:
        validate(config)
    assert "no config field 'train.learning_rate'; did you mean train.lr?" in str(error.value)
    assert "no config field 'num_generations'; did you mean train.group?" in str(error.value)


def test_a_task_of_ones_own_may_have_fields_of_its_own():
    config = coding.get_config("smoke")
    config.task.kind, config.task.depth = "own.Task", 3
    validate(config)


def test_fields_that_hold_dicts_may_hold_any_names():
    config = coding.get_config("smoke")
    config.model_options.chat_template.enable_thinking = True
    config.team.agent = {"main": {"lr": 1e-4}}
    validate(config)


def test_members_of_a_sweep():
    with pytest.raises(ValueError, match="no config field 'train.num_generations'; did you mean train.group"):
        sweeps.collect(lambda add: add({"train.num_generations": 4}), coding.get_config("smoke"))
