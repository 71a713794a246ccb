"""The CoMLRL 1.4.3 side of comlrl_parity.py; runs in that script's own environment (torch, no JAX).

    python comlrl_reference.py FOLDER

reads FOLDER/case.json, writes one random Llama per agent to FOLDER/agent_<n> and, per agent, the loss and
the gradients of CoMLRL's own trainer to FOLDER/agent_<n>.npz. The trainer is built by its constructor. The
loss of each node comes from `MAGRPOTrainer._compute_loss_with_gradients`; the gradients are those that the
whole update, `MAGRPOTrainer._update_from_samples`, leaves on the parameters (it clears them before it
accumulates).
"""

import json
import pathlib
import sys

import numpy as np
import torch
from comlrl.trainers.reinforce.magrpo import MAGRPOConfig, MAGRPOTrainer, NodeSample
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def random_llama(case: dict, seed: int) -> LlamaForCausalLM:
    """Two layers in float32; weights large enough that the distributions are far from uniform."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=case["vocab_size"],
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,
        tie_word_embeddings=False,
        eos_token_id=case["pad_id"],
        pad_token_id=None,  # torch's embedding gives no gradient to the row of a pad id; see docs/parity.md
    )
    return LlamaForCausalLM(config).float()


def make_trainer(case: dict, agents: list) -> MAGRPOTrainer:
    """The trainer with its defaults, but learning rate 0: updates do not change the weights."""
    words = {f"w{i}": i for i in range(case["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        eos_token=f"w{case['pad_id']}",
        pad_token=f"w{case['pad_id']}",
    )
    args = MAGRPOConfig(
        num_agents=len(agents),
        num_turns=1,
        num_generations=case["group_size"],
        rollout_buffer_size=len(case["returns"]),
        agent_learning_rate=0.0,
    )
    return MAGRPOTrainer(
        agents=agents,
        num_agents=len(agents),
        tokenizer=[tokenizer] * len(agents),
        reward_func=lambda *completions: [0.0] * len(completions[0]),
        formatters=lambda item: item["prompt"],
        args=args,
    )


def node_samples(case: dict, agent: int) -> list[NodeSample]:
    """One sample per prompt, as in the trainer's buffer; completions are padded as `generate` pads."""
    samples = []
    for node, returns in enumerate(case["returns"]):
        completions = case["completions"][agent][node]
        longest = max(len(c) for c in completions)
        padded = [torch.tensor(c + [case["pad_id"]] * (longest - len(c))) for c in completions]
        data = {
            "prompt_input_ids": torch.tensor([case["prompts"][agent][node]]),
            "completion_input_ids": [padded],
        }
        mean = float(np.mean(returns))
        samples.append(NodeSample(agent, 0, data, returns, mean, mean, node))
    return samples


def main(folder: pathlib.Path) -> None:
    """Run the trainer on the case and write what it computed."""
    case = json.loads((folder / "case.json").read_text())
    agents = [random_llama(case, seed) for seed in range(len(case["prompts"]))]
    for n, agent in enumerate(agents):
        agent.save_pretrained(folder / f"agent_{n}")
    trainer = make_trainer(case, agents)
    for n, agent in enumerate(trainer.agents):
        samples = node_samples(case, n)
        losses = [
            trainer._compute_loss_with_gradients(agent, s.completions_data, s.returns).item() for s in samples
        ]
        trainer._update_from_samples(n, list(samples))
        gradients = {name: p.grad.cpu().numpy() for name, p in agent.named_parameters()}
        np.savez(folder / f"agent_{n}.npz", __node_losses__=np.array(losses), **gradients)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
