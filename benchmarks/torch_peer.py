"""The torch side of the benchmarks: a `peers.Peer` in a separate environment (torch, no JAX).

    python torch_peer.py SETTINGS

SETTINGS is JSON, made by contest.py. Two systems do the same work on the same weights, prompts and numbers of
tokens, in the dtype of the settings. ``comlrl`` is CoMLRL 1.4.3's own trainer. ``torch`` is simple code
without it: `transformers.generate` for all samples of a prompt, one forward and backward pass over them,
AdamW. With mode ``adapters`` both train LoRA adapters of `peft`: CoMLRL gets two models with one adapter
each, ``torch`` has one base with two adapters.
"""

import collections
import contextlib
import json
import os
import sys
import time

import torch
from comlrl.trainers.reinforce.magrpo import MAGRPOConfig, MAGRPOTrainer
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from jaxmarl_llm.utils.errors import UserError


class Clock:
    """Seconds by phase, including device work."""

    def __init__(self, device: str):
        self._device, self.seconds = device, collections.Counter()

    def now(self) -> float:
        """Seconds since a fixed moment, after the device is idle."""
        if self._device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextlib.contextmanager
    def phase(self, name: str):
        """Add the time of the block to a phase."""
        start = self.now()
        yield
        self.seconds[name] += self.now() - start


def load(settings: dict) -> torch.nn.Module:
    """The model on the device, in the dtype of the computation."""
    dtype = getattr(torch, settings["dtype"])
    return AutoModelForCausalLM.from_pretrained(settings["folder"], dtype=dtype).to(settings["device"])


def lora(settings: dict) -> LoraConfig:
    """Adapters as our side has them."""
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    targets = [names.get(target, f"{target}_proj") for target in settings["targets"]]
    return LoraConfig(r=settings["rank"], lora_alpha=settings["alpha"], target_modules=targets)


class Plain:
    """Plain batched torch."""

    def __init__(self, settings: dict):
        self._settings = settings
        self._agents = range(len(settings["prompts"]))
        if settings["mode"] == "adapters":
            self._base = get_peft_model(load(settings), lora(settings), adapter_name="agent_0")
            for n in self._agents[1:]:
                self._base.add_adapter(f"agent_{n}", lora(settings))
        else:
            self._models = [load(settings) for _ in self._agents]
        # The fused optimizer reads and writes every array once; it is torch's fastest.
        self._optimizers = [
            torch.optim.AdamW(self._learned(n), lr=settings["lr"], fused=True) for n in self._agents
        ]

    def _use(self, n: int) -> torch.nn.Module:
        """Agent n's model; with adapters, the base with the agent's adapter switched on."""
        if self._settings["mode"] != "adapters":
            return self._models[n]
        self._base.set_adapter(f"agent_{n}")
        return self._base

    def _learned(self, n: int) -> list[torch.nn.Parameter]:
        return [p for p in self._use(n).parameters() if p.requires_grad]

    def _sample(self, n: int, new_tokens: int) -> torch.Tensor:
        """Prompt and completion of every row, (G, P + C)."""
        prompt = torch.tensor([self._settings["prompts"][n]], device=self._settings["device"])
        model = self._use(n).eval()
        with torch.inference_mode():
            rows = model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                num_return_sequences=self._settings["group"],
                min_new_tokens=new_tokens,  # no completion ends early
                max_new_tokens=new_tokens,
                do_sample=True,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                pad_token_id=0,
            )
        if rows.shape[1] != prompt.shape[1] + new_tokens:
            raise UserError(f"asked for {new_tokens} tokens, got {rows.shape[1] - prompt.shape[1]}")
        return rows

    def _backward(self, n: int, rows: torch.Tensor) -> None:
        """Gradients of -mean(A * log p(completion)) over the group."""
        length = rows.shape[1] - len(self._settings["prompts"][n])
        # inference_mode's tensors cannot be saved for the backward pass
        rows, model = rows.clone(), self._use(n).train()
        logits = model(input_ids=rows[:, :-1], use_cache=False, logits_to_keep=length).logits
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), rows[:, -length:], reduction="none"
        )
        advantages = torch.tensor(self._settings["advantages"], device=rows.device)
        (advantages * losses.sum(1)).mean().backward()

    def _step(self, n: int) -> None:
        self._use(n)
        torch.nn.utils.clip_grad_norm_(self._learned(n), 1.0)
        self._optimizers[n].step()
        self._optimizers[n].zero_grad()

    def iteration(self, clock: Clock, new_tokens: int) -> None:
        """One problem: every agent samples, then learns."""
        rows = self.generate(clock, new_tokens)
        with clock.phase("update"):
            for n in self._agents:
                self._backward(n, rows[n])
                self._step(n)

    def generate(self, clock: Clock, new_tokens: int) -> list[torch.Tensor]:
        """Sample only."""
        with clock.phase("generate"):
            return [self._sample(n, new_tokens) for n in self._agents]

    def gradients(self, clock: Clock, new_tokens: int) -> None:
        """Forward and backward pass over random completions."""
        shape = self._settings["group"], new_tokens
        for n in self._agents:
            prompt = torch.tensor(self._settings["prompts"][n], device=self._settings["device"])
            drawn = torch.randint(self._settings["vocabulary"], shape, device=prompt.device)
            rows = torch.cat([prompt.expand(shape[0], -1), drawn], dim=1)
            with clock.phase("gradients"):
                self._backward(n, rows)
            self._optimizers[n].zero_grad()


class Reference:
    """CoMLRL's own trainer on one problem, with its phases timed."""

    def __init__(self, settings: dict):
        models = [load(settings) for _ in settings["prompts"]]
        if settings["mode"] == "adapters":
            models = [get_peft_model(model, lora(settings)) for model in models]
        tokenizer = AutoTokenizer.from_pretrained(settings["folder"])
        for text, ids in zip(settings["texts"], settings["prompts"], strict=True):
            if tokenizer(text).input_ids != ids:
                raise UserError(f"the tokenizers differ on {text!r}")
        self._trainer = _Timed(
            agents=models,
            num_agents=len(models),
            tokenizer=[tokenizer] * len(models),
            train_dataset=[{}],
            reward_func=lambda *completions: settings["advantages"],
            formatters=[lambda item, text=text: text for text in settings["texts"]],
            wandb_config=None,
            args=MAGRPOConfig(
                num_train_epochs=1,
                agent_learning_rate=settings["lr"],
                num_agents=len(models),
                agent_devices=settings["device"],
                num_generations=settings["group"],
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                num_turns=1,
                eval_interval=0,
                rollout_buffer_size=1,
            ),
        )
        self._trainer.verbose = False  # no progress bar

    def iteration(self, clock: Clock, new_tokens: int) -> None:
        """One epoch over one problem."""
        self._trainer.clock, self._trainer.args.max_new_tokens = clock, new_tokens
        start = clock.now()
        self._trainer.train(min_new_tokens=new_tokens)
        clock.seconds["other"] = clock.now() - start - sum(clock.seconds.values())


class _Timed(MAGRPOTrainer):
    """CoMLRL's trainer, unchanged but for the timing of its phases."""

    def _generate_completions(self, *args, **kwargs):
        with self.clock.phase("generate"):
            return super()._generate_completions(*args, **kwargs)

    def _update_from_samples(self, *args, **kwargs):
        with self.clock.phase("update"):
            return super()._update_from_samples(*args, **kwargs)


def serve(settings: dict, requests, answers) -> None:
    """Answer every request: with the seconds of its phases if it names a unit, else with the device."""
    if settings["device"] == "cpu":
        name = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    else:
        torch.set_float32_matmul_precision("high")  # TF32, as JAX does by default
        name = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
    system = {"torch": Plain, "comlrl": Reference}[settings["system"]](settings)
    for line in requests:
        request = json.loads(line)
        answer = {"device": name}
        if "unit" in request:
            clock = Clock(settings["device"])
            getattr(system, request["unit"])(clock, request["new_tokens"])
            answer = clock.seconds
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # Libraries print: their standard output must not mix with the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(json.loads(sys.argv[1]), sys.stdin, out)
