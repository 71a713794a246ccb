"""Names that other libraries have for our config fields: the error for an unknown field names the field with
the same meaning, not only one with a similar spelling.

The names are those of TRL, verl, OpenRLHF, transformers, peft and vLLM (`TrainingArguments`, `GRPOConfig`,
`LoraConfig`, `SamplingParams`, verl's and OpenRLHF's command lines).
"""

import difflib
import re
from collections.abc import Iterable, Mapping

WORKDIR = "--workdir"  # a flag of the commands, not a field
# Our field: the names that it has in other libraries.
_NAMES = {
    "model": "model_name_or_path model_name model_path base_model base_model_name_or_path pretrain pretrained "
    "pretrained_model_name_or_path actor_path tokenizer tokenizer_name tokenizer_name_or_path",
    "seed": "random_seed data_seed rng_seed",
    "policy.dtype": "bf16 fp16 torch_dtype compute_dtype mixed_precision",
    "device.memory_fraction": "gpu_memory_utilization vllm_gpu_memory_utilization mem_fraction_static",
    "policy.remat": "gradient_checkpointing enable_gradient_checkpointing activation_checkpointing",
    "model_options.quantize": "load_in_8bit load_in_4bit quantization quantization_config quantise bnb_4bit_quant_type",
    "model_options.chat": "apply_chat_template use_chat_template",
    "model_options.chat_template": "chat_template_kwargs enable_thinking chat_template_path",
    "team.agents": "num_agents n_agents agent_names",
    "team.mode": "use_peft use_lora lora full_finetuning finetuning_type",
    "team.rank": "lora_r lora_rank r lora_dim",
    "team.alpha": "lora_alpha",
    "team.targets": "lora_target_modules target_modules lora_modules",
    "team.begin": "init_from resume_from start_from checkpoint load_checkpoint",
    "task.kind": "task_name env env_name environment",
    "task.source": "dataset_name dataset dataset_path dataset_config data_path data train_files train_file "
    "train_data train_dataset prompt_data input_data",
    "task.train_split": "dataset_train_split dataset_split split prompt_split",
    "task.eval_source": "val_files val_file val_data eval_dataset eval_data validation_data",
    "task.eval_split": "dataset_test_split val_split validation_split",
    "task.test_source": "test_files test_file test_data test_dataset",
    "task.reward": "reward_funcs reward_func reward_function reward_fn reward_model reward_model_path rm_path "
    "reward_model_name_or_path custom_reward_function reward_weights",
    "task.prompts": "system_prompt prompt_template input_template",
    "sampling.temperature": "do_sample temp",
    "sampling.max_new_tokens": "max_completion_length max_response_length response_length max_tokens max_length "
    "generate_max_len max_gen_len max_completion_tokens max_output_tokens max_seq_len max_seq_length",
    "sampling.max_prompt_tokens": "max_prompt_length prompt_max_len prompt_length",
    "sampling.widths": "prompt_buckets bucket_sizes precompile_token_paddings prompt_widths",
    "sampling.long_prompts": "truncation filter_overlong_prompts truncate_prompt_tokens",
    "sampling.stop": "stop_sequences stop_strings stop_words stop_token_ids",
    "sampling.dtype": "rollout_dtype vllm_dtype inference_dtype",
    "train.steps": "num_train_epochs num_epochs epochs total_epochs max_epochs max_steps total_steps num_steps "
    "training_steps total_training_steps num_training_steps num_train_steps iterations num_episodes "
    "num_iters max_iters",
    "train.max_minutes": "max_time max_hours time_limit",
    "train.lr": "learning_rate actor_learning_rate actor_lr optim_lr lr_rate step_size",
    "critic.lr": "critic_learning_rate value_learning_rate value_lr",
    "train.warmup": "warmup_steps warmup_ratio lr_warmup_steps lr_warmup_steps_ratio lr_warmup_ratio",
    "train.decay": "lr_scheduler_type lr_scheduler scheduler lr_schedule warmup_style lr_decay",
    "train.weight_decay": "l2 wd",
    "train.grad_clip": "max_grad_norm max_norm clip_grad gradient_clipping gradient_clip_val grad_norm_clip",
    "train.prompts": "per_device_train_batch_size train_batch_size batch_size rollout_batch_size "
    "global_batch_size num_prompts prompts_per_step generation_batch_size unique_prompts",
    "train.group": "num_generations n rollout_n n_samples n_samples_per_prompt num_return_sequences group_size "
    "num_samples num_rollouts samples_per_prompt rollouts_per_example num_responses",
    "train.redraw": "dynamic_sampling filter_groups max_num_gen_batches dynamic_filtering active_sampling "
    "filter_zero_std_samples use_dynamic_sampling",
    "train.tokens_per_microbatch": "ppo_max_token_len_per_gpu max_token_len micro_train_batch_size "
    "ppo_micro_batch_size_per_gpu ppo_micro_batch_size micro_batch_size",
    "train.prompts_per_microbatch": "gradient_accumulation_steps grad_accum_steps accumulate_grad_batches "
    "gradient_accumulation",
    "train.epochs": "num_iterations ppo_epochs num_ppo_epochs",
    "train.minibatches": "ppo_mini_batch_size num_mini_batches "
    "mini_batch_size mu",
    "train.turns": "num_turns max_turns max_assistant_turns multi_turn n_turns",
    "train.discount": "gamma discount_factor",
    "train.system": "adv_estimator advantage_estimator algorithm algo trainer",
    "train.normalise": "scale_rewards norm_adv_by_std_in_grpo normalize normalize_advantages whiten_rewards "
    "whiten_advantages normalise_advantages normalize_advantage",
    "train.baseline": "use_baseline",
    "train.clip": "epsilon clip_ratio cliprange clip_range eps_clip clip_eps epsilon_low clip_ratio_low "
    "eps_clip_low ppo_clip clip_epsilon",
    "train.clip_high": "epsilon_high clip_ratio_high eps_clip_high",
    "train.dual_clip": "delta clip_ratio_c dual_clip_ratio",
    "train.ratio_level": "importance_sampling_level",
    "train.aggregation": "loss_agg_mode loss_type loss_aggregation loss_reduction",
    "train.drop_truncated": "mask_truncated_completions overlong_filter mask_overlong",
    "train.importance_cap": "vllm_importance_sampling_cap vllm_importance_sampling_correction tis_imp_ratio_cap "
    "rollout_is_threshold is_cap",
    "train.overlap": "async_rollout async_training one_step_off off_policy asynchronous",
    "train.kl_coef": "beta kl_loss_coef init_kl_coef kl_beta kl_weight kl_penalty_coef kl_coeff use_kl_loss "
    "kl_penalty kl_ctrl",
    "train.kl_kind": "kl_loss_type kl_estimator kl_type",
    "train.entropy_coef": "entropy_coeff ent_coef entropy_bonus entropy_weight entropy_loss_coef",
    "critic.coef": "vf_coef value_loss_coef value_coef vf_loss_coef",
    "critic.clip": "cliprange_value value_clip vf_clip clip_range_vf",
    "critic.warmup": "critic_warmup",
    "eval.every": "eval_steps test_freq eval_freq eval_interval evaluation_strategy val_check_interval "
    "eval_strategy",
    "eval.before": "val_before_train eval_on_start",
    "eval.samples": "eval_num_generations n_val",
    "save.every": "save_steps save_freq save_interval checkpoint_every save_strategy",
    "save.keep": "save_total_limit max_ckpt_to_keep max_to_keep keep_checkpoints max_ckpt_num",
    "log.wandb_project": "report_to wandb use_wandb project_name wandb_project_name project",
    "log.tensorboard": "use_tensorboard tensorboard_dir",
    "log.transcripts_every": "log_completions logging_steps log_every log_interval",
    "executor.workers": "num_workers reward_num_workers num_processes dataset_num_proc",
    "executor.cpu_seconds": "timeout time_limit_seconds exec_timeout",
    "executor.memory_mb": "memory_limit memory_limit_mb max_memory",
    "mesh.model": "tensor_parallel_size tensor_model_parallel_size vllm_tensor_parallel_size tp tp_size",
    "mesh.data": "data_parallel_size dp dp_size",
    "mesh.fsdp": "zero_stage deepspeed fsdp_size sharding_strategy fsdp_config",
    "engine.kind": "use_vllm vllm_mode rollout_engine rollout_backend inference_backend",
    "engine.servers": "vllm_server_base_url vllm_server_host vllm_servers",
    "engine.timeout_seconds": "vllm_server_timeout",
    "expert.base_url": "api_base openai_api_base",
    "expert.key_variable": "api_key openai_api_key",
    WORKDIR: "output_dir save_path default_local_dir logging_dir run_dir log_dir resume_from_checkpoint ckpt_path "
    "checkpoint_dir run_name experiment_name",
}  # fmt: skip
# A name that may mean several of our fields, in addition to fields of exactly this name.
SEVERAL = {"beta": ("train.kl_coef", "preference.beta")}


def _plain(name: str) -> str:
    """One form for all spellings of a name: ``LearningRate``, ``learning-rate``, ``learning_rate``."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


_MEANT = {_plain(name): (path,) for path, names in _NAMES.items() for name in names.split()} | SEVERAL


def of_other_libraries(path: str, known: Iterable[str]) -> list[str]:
    """The fields that an unknown dotted name means, by its last part; [] if that is no known synonym.

    A field of the name's own section excludes the others: ``critic.learning_rate`` is ``critic.lr``.
    """
    section, _, last = path.rpartition(".")
    known = list(known)
    spelled = _plain(last)
    if spelled not in _MEANT:
        spelled = next(iter(difflib.get_close_matches(spelled, _MEANT, 1, 0.85)), "")
    candidates = [each for each in _MEANT.get(spelled, ()) if each in known or each == WORKDIR]
    lasts = {each.rpartition(".")[2] for each in candidates}
    own = [
        each
        for each in known
        if section and each.rpartition(".")[0] == section and each.rpartition(".")[2] in lasts
    ]
    return own or candidates


_SAY_NOTHING = {
    "num",
    "number",
    "max",
    "min",
    "use",
    "per",
    "the",
    "each",
    "with",
    "size",
    "name",
    "type",
    "train",
}


def described(path: str, about: Mapping[str, str]) -> list[str]:
    """The field whose description has most of the words of a name's last part, [] if none has any.

    Among equals, a field of the name's own section comes first, then one with the words earlier.
    """
    section, _, last = path.rpartition(".")
    words = [word for word in _words(last) if len(word) > 2 and word not in _SAY_NOTHING]
    best: tuple = (0,)
    for name, sentence in about.items():
        places = [_place(word, _words(sentence)) for word in words]
        shared = [place for place in places if place is not None]
        rank = (len(shared), name.rpartition(".")[0] == section, -sum(shared))
        if shared and rank > best[:3]:
            best = (*rank, name)
    return list(best[3:])


def _words(text: str) -> list[str]:
    """The words of a text or name in lower case: ``maxTokens``, ``max_tokens``, ``max tokens``."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())


def _place(word: str, words: list[str]) -> int | None:
    """The index of a word, or of one with the same beginning, in a list; None if there is none."""
    start = word[:5]
    return next(
        (i for i, each in enumerate(words) if each.startswith(start) and len(each) < len(word) + 4), None
    )
