"""The decoder against torch's `transformers`: logits, gradients and greedy continuations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import sampling, weights
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.team import Stack
from jaxmarl_llm.weights import hf, model_files

SIZES = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=5e5,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32)
GEMMA3 = dict(
    head_dim=16, query_pre_attn_scalar=24, sliding_window=7, pad_token_id=0,
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
)  # fmt: skip
CONFIGS = {"Gemma3": "Gemma3TextConfig"}
MODELS = {
    "llama_tied": ("Llama", dict(tie_word_embeddings=True)),
    "llama3_rope": ("Llama", dict(rope_parameters=LLAMA3)),
    "llama_linear_rope": (
        "Llama",
        dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)),
    ),
    "llama_wide_heads": ("Llama", dict(head_dim=16, tie_word_embeddings=True)),
    "qwen2_bias": (
        "Qwen2",
        dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    ),
    "qwen2_yarn": ("Qwen2", dict(rope_parameters=YARN)),
    "qwen3_norms": ("Qwen3", dict(head_dim=16)),
    "mistral": ("Mistral", dict(sliding_window=None)),
    # Windows shorter than the prompt, another width of the scores than the heads', both bases of RoPE.
    "gemma3": ("Gemma3", GEMMA3),
    "gemma3_linear_rope": ("Gemma3", GEMMA3 | dict(rope_parameters=dict(
        full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
        sliding_attention=dict(rope_type="default", rope_theta=1e4),
    ))),
    "gemma3_without_windows": ("Gemma3", GEMMA3 | dict(layer_types=["full_attention"] * 3)),
}  # fmt: skip


def torch_model(family, options):
    """A random model of `transformers` with every parameter away from its initial zeros and ones."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, CONFIGS.get(family, f"{family}Config"))(
        **SIZES, **options, bos_token_id=None, eos_token_id=None
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def torch_logits(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def torch_greedy(model, ids, new):
    """Greedy continuation, written out so that no generation setting of the model takes part, and with no
    cache, whose calls change from release to release."""
    ids = list(ids)
    for _ in range(new):
        ids.append(int(torch_logits(model, ids)[-1].argmax()))
    return ids[-new:]


def torch_gradients(model, ids) -> dict[str, np.ndarray]:
    """Gradient of the mean negative log-probability of ``ids[1:]`` for every parameter."""
    import torch

    tokens = torch.tensor(ids)
    torch.nn.functional.cross_entropy(model(tokens[None]).logits[0, :-1], tokens[1:]).backward()
    return {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}


def greedy(policy, params, ids, new, **compiler_options):
    """Logits (L, V) of the prompt and the greedy continuation, through prefill, fan-out and the cache."""

    @functools.partial(jax.jit, compiler_options=compiler_options)
    def run(params):
        length = len(ids)
        logits, cache = policy.apply(params, jnp.asarray([ids]), jnp.arange(length)[None])
        first = logits[:, -1].argmax(-1).astype(jnp.int32)

        def step(carry, position):
            token, cache = carry
            ahead, cache = policy.apply(params, token[:, None], position[None, None], cache)
            return (ahead[:, 0].argmax(-1).astype(jnp.int32), cache), token[0]

        return logits[0], jax.lax.scan(step, (first, cache.fan_out(1, new)), length + jnp.arange(new))[1]

    logits, tokens = run(params)
    return np.asarray(logits), tokens.tolist()


@pytest.mark.torch
@pytest.mark.parametrize("name", MODELS)
def test_parity_with_transformers(name, tmp_path):
    model = torch_model(*MODELS[name])
    model.save_pretrained(tmp_path)
    loaded = weights.load(tmp_path)
    ids = (
        np.random.default_rng(1).integers(0, 97, 56).tolist()
    )  # longer than the original context of yarn, llama3
    # Products of one row by a large matrix take minutes in programs that are made fast and run slowly.
    fast = {"xla_backend_optimization_level": 2, "xla_llvm_disable_expensive_passes": False}
    ours, continuation = greedy(loaded.policy, loaded.params, ids, 64, **fast)
    theirs = torch_logits(model, ids)
    assert np.abs(theirs).max() > 1, "logits too small for the comparison to mean anything"
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert continuation == torch_greedy(model, ids, 64)


@pytest.mark.torch
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_transformers(name, tmp_path):
    """Of the mean log-probability of a text, for every parameter; the pad row as torch treats it."""
    model = torch_model(*MODELS[name])
    model.save_pretrained(tmp_path)
    loaded = weights.load(tmp_path)
    ids = np.random.default_rng(2).integers(0, 97, 40)
    ids[5] = 0  # GEMMA3's pad token
    wanted = torch_gradients(model, ids)
    policy, tokens_BL = loaded.policy.clone(pad_row_fixed=True), jnp.asarray(ids)[None]

    def loss(params):
        logits_BLV, _ = policy.apply(params, tokens_BL, jnp.arange(40)[None])
        logprobs_LV = jax.nn.log_softmax(logits_BLV[0, :-1])
        return -jnp.take_along_axis(logprobs_LV, tokens_BL[0, 1:, None], -1).mean()

    grads = hf.to_hf_tensors(policy.config, jax.jit(jax.grad(loss))(loaded.params))
    assert grads.keys() == wanted.keys()
    for parameter, theirs in wanted.items():
        assert np.abs(theirs).max() > 1e-3, f"{parameter}: too small for the comparison to mean anything"
        np.testing.assert_allclose(grads[parameter], theirs, atol=1e-4, err_msg=parameter)


@pytest.mark.torch
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", ["llama_tied", "gemma3"])
def test_sampled_texts_are_those_of_transformers(name, apart, tmp_path):
    """Greedy, by the sampler: prompts that begin alike are read once, and once for all samples of each."""
    model = torch_model(*MODELS[name])
    model.save_pretrained(tmp_path)
    policy, params = (loaded := weights.load(tmp_path)).policy, loaded.params
    rng = np.random.default_rng(3)
    begin = rng.integers(0, 97, 24).tolist()
    prompts = [begin + rng.integers(0, 97, n).tolist() for n in (3, 9)]
    tokens_NBP, lengths_NB, shared = pad_team([prompts])
    assert shared is not None
    stack = Stack(("a",), policy, (1000,), "frozen", sampler=policy.clone(apart=apart))
    inputs = stack, params, None, tokens_NBP, lengths_NB, jax.random.key(0)
    drawn = sampling.generate(*inputs, samples=2, params=SamplingParams(24, temperature=0.0), shared=shared)
    for b, prompt in enumerate(prompts):
        wanted = torch_greedy(model, prompt, 24)
        assert np.asarray(drawn.tokens_NRL)[0, 2 * b : 2 * b + 2].tolist() == [wanted] * 2


@pytest.mark.torch
@pytest.mark.model
def test_parity_on_the_default_model():
    transformers = pytest.importorskip("transformers")
    loaded = weights.load()
    model = transformers.AutoModelForCausalLM.from_pretrained(model_files.find(model_files.DEFAULT)).eval()
    ids = loaded.tokenizer.encode_chat(
        [{"role": "user", "content": "Write a Python function that adds 12 and 34."}]
    )
    ours, continuation = greedy(loaded.policy, loaded.params, ids, 64)
    theirs = torch_logits(model, ids)
    # The residual stream reaches 25,000 and logits 41: torch in float32 is itself up to 1.5e-4 from float64.
    errors = np.abs(ours - theirs)
    assert np.quantile(errors, 0.999) < 1e-4 and errors.max() < 1e-5 * np.abs(theirs).max()
    assert continuation == torch_greedy(model, ids, 64)
