"""sharding.py on eight fake devices: what one device computes, cut in every way that there is."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_models
from jax.sharding import PartitionSpec as P

from benchmarks import hlo
from jaxmarl_llm import sampling, sharding, team, update
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.sharding import ONE_DEVICE, Layout, make_mesh
from jaxmarl_llm.systems import critics, verified
from jaxmarl_llm.systems.critics.shared_heads import Heads
from jaxmarl_llm.systems.preferences.reward_model import RewardModel
from jaxmarl_llm.update import LossConfig, gradient, packing
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.weights import LoadedModel, hf

pytestmark = pytest.mark.slow

# Agents and rows; agents, rows and tensors; more devices for agents than there are agents; tensors alone.
SHAPES = [(2, 4, 1), (2, 2, 2), (8, 1, 1), (1, 1, 8)]
# Everything divides by 8 but the key/value heads, and the agents, of whom there are two.
POLICY = Policy(
    PolicyConfig(
        vocab_size=64, d_model=32, d_ff=32, n_layers=2, n_heads=8, n_kv_heads=4, head_dim=4, max_positions=64
    ),
    remat="none",
)
PLAIN = SamplingParams(5, temperature=0.8)
# Compilation is most of these tests' time; how well one device computes its part is not their subject.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
FULL_SHAPES = [(2, 2, 2), (1, 8, 1)]


@functools.cache
def random_params(seed: int = 0) -> dict:
    """NumPy arrays, as `weights.load` gives them with ``on_host``."""
    random = np.random.default_rng(seed)
    tensors = {
        name: (0.16 * random.standard_normal(shape) + (len(shape) == 1)).astype(np.float32)
        for name, shape in hf.tensor_shapes(POLICY.config).items()
    }
    return hf.from_hf_tensors(POLICY.config, tensors)


def build(layout: Layout, mode: str, agents=tiny.AGENTS, quantise="", **options) -> team.Member:
    """A team of one stack whose agents differ from the base and from each other."""
    params = quantised.quantised(random_params(), quantise)
    models = {"m": LoadedModel(POLICY, jax.tree.map(np.asarray, params), tiny.Tokenizer())}
    actual = team.build(
        models, dict.fromkeys(agents, "m"), jax.random.key(0), mode=mode, rank=2, layout=layout, **options
    )
    member = actual.members[0]
    random = np.random.default_rng(1)

    def moved(x):
        noise = 0.1 * random.standard_normal((2, *x.shape[1:]), np.float32)  # an agent's is its own
        return jax.device_put(np.asarray(x) + noise[: len(agents)], x.sharding if layout.mesh else None)

    member.trainable = jax.tree.map(moved, member.trainable)
    return member


@functools.cache
def batch() -> packing.Batch:
    """Two agents, four prompts that begin alike, two samples; one group of each agent has no signal."""
    random = np.random.default_rng(2)
    begin = random.integers(7, 60, 16).tolist()
    prompts = [[begin + random.integers(7, 60, n).tolist() for n in (1, 4, 2, 7)] for _ in range(2)]
    prompts_NBP, lengths_NB, shared = pad_team(prompts)
    tokens_NRL = random.integers(0, 64, (2, 8, 5)).astype(np.int32)
    lengths_NR = random.integers(1, 6, (2, 8)).astype(np.int32)
    logprobs_NRL = -4 + random.random((2, 8, 5), np.float32)
    advantages_NR = 0.1 * random.standard_normal((2, 8), np.float32)
    advantages_NR[:, 2:4] = 0
    assert shared is not None
    return packing.Batch(prompts_NBP, lengths_NB, tokens_NRL, lengths_NR, logprobs_NRL, advantages_NR, shared)


@functools.cache
def compiled(layout: Layout, mode: str, agents=tiny.AGENTS, shards: int = 0, quantise: str = ""):
    """The gradient's program and its inputs; in full mode with a KL term towards the base."""
    member = build(layout, mode, agents, quantise, keep_reference=True)
    config = LossConfig(PLAIN, clip=0.2, kl_coef=0.1 if mode == "full" else 0.0)
    of_agents = jax.tree.map(lambda x: x[: len(agents)], batch())
    inputs = member.base, member.trainable, config.pack(of_agents, shards or member.stack.layout.shards)
    program = jax.jit(gradient.gradients, static_argnums=(0, 1))
    return program.lower(member.stack, config, *inputs).compile(QUICK), inputs


@functools.cache
def actual(layout: Layout, mode: str, agents=tiny.AGENTS, quantise: str = ""):
    program, inputs = compiled(layout, mode, agents, quantise=quantise)
    return jax.device_get(program(*inputs))


def assert_close(left, right, tolerance=1e-5):
    def one(path, a, b):
        where = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=where)

    jax.tree_util.tree_map_with_path(one, left, right)


def layout_of(shape, fsdp=False) -> Layout:
    return Layout(make_mesh(*shape), fsdp)


def per_device(tree) -> dict:
    """Bytes that each device holds."""
    held = dict.fromkeys(jax.devices(), 0)
    for leaf in jax.tree.leaves(tree):
        for shard in leaf.addressable_shards:
            held[shard.device] += shard.data.nbytes
    return held


def test_the_map_to_the_vocabulary_stays_cut_while_tokens_are_drawn():
    """What devices exchange at every token are logits of the rows, not the embedding of the whole vocabulary."""
    member = build(layout_of((2, 1, 4)), "adapters")
    prompts = np.full((2, 4, 3), 9, np.int32), np.full((2, 4), 3, np.int32), jax.random.key(0)
    lowered = sampling.generate.lower(
        member.stack, member.base, member.trainable, *prompts, samples=1, params=PLAIN
    )
    loop = hlo.token_loop(lowered.compile(QUICK).as_text())
    exchanged = [sizes for each in loop.instructions if each.operation == "all-gather" for _, sizes in each.shapes]
    rows, vocabulary, width = 4, POLICY.config.vocab_size, POLICY.config.d_model
    assert any(math.prod(sizes) == rows * vocabulary for sizes in exchanged)  # the logits are seen
    assert not [sizes for sizes in exchanged if math.prod(sizes) >= vocabulary * width]


def test_a_mesh_has_exactly_the_devices_there_are():
    mesh = make_mesh(2, 2, 2)
    assert dict(mesh.shape) == {"agent": 2, "data": 2, "model": 2}
    assert make_mesh(1, 2, 1, jax.devices()[:2]).size == 2
    with pytest.raises(ValueError, match="mesh.agent=3 .* mesh.model=1 is a mesh of 6 devices, and"):
        make_mesh(3, 2, 1)
    with pytest.raises(ValueError, match="mesh.data=0"):
        make_mesh(8, 0, 1)


def test_without_a_mesh_nothing_happens():
    x = jnp.zeros((2, 3))
    assert ONE_DEVICE.shards == 1
    for same in (ONE_DEVICE.shard(x, "agent", "rows"), ONE_DEVICE.constrain(x), ONE_DEVICE.replicate(x)):
        assert same is x


@pytest.mark.parametrize("path, shape, agents, fsdp, plain", [
    ("params/embed/embedding", (64, 32), False, P("model", "data"), P("model", None)),
    ("params/layers/attn/q/kernel", (2, 32, 32), False, P(None, "data", "model"), P(None, None, "model")),
    ("params/layers/attn/o/kernel", (2, 32, 32), False, P(None, "model", "data"), P(None, "model", None)),
    # Two key/value heads cannot be divided among four devices, though their width could.
    ("params/layers/attn/k/kernel", (2, 32, 16), False, P(None, "data", None), P(None, None, None)),
    ("params/layers/down/kernel", (2, 48, 30), False, P(None, "model", "data"), P(None, "model", None)),
    ("params/layers/attn_norm/scale", (2, 32), False, P(None, None), P(None, None)),
    ("params/layers/attn/q/kernel", (4, 2, 32, 32), True, P("agent", None, "data", "model"),
     P("agent", None, None, "model")),
    ("layers/gate/a", (4, 2, 32, 3), True, P("agent", None, "data", None), P("agent", None, None, None)),
    ("layers/gate/b", (4, 2, 3, 48), True, P("agent", None, None, "model"), P("agent", None, None, "model")),
    ("layers/attn/v/b", (4, 2, 3, 16), True, P("agent", None, None, None), P("agent", None, None, None)),
    ("opt_state/1/0/mu/layers/down/a", (4, 2, 48, 3), True, P("agent", None, "model", None),
     P("agent", None, "model", None)),
    ("opt_state/1/0/count", (4,), True, P("agent"), P("agent")),
    ("params/embed/embedding", (61, 31), False, P(None, None), P(None, None)),  # nothing divides
    ("quantised/layers/attn/q/values", (2, 64, 32), False, P(None, "data", "model"), P(None, None, "model")),
    ("quantised/layers/attn/q/scales", (2, 1, 32), False, P(None, None, "model"), P(None, None, "model")),
    ("quantised/layers/down/values", (2, 128, 30), False, P(None, "model", "data"), P(None, "model", None)),
    ("quantised/layers/down/scales", (2, 4, 30), False, P(None, "model", "data"), P(None, "model", None)),
])  # fmt: skip
def test_rules(path, shape, agents, fsdp, plain):
    mesh = jax.sharding.AbstractMesh((2, 2, 4), sharding.AXES)
    layout = Layout(mesh, True, agents=4, heads=8, kv_heads=2)
    assert layout.spec(path, shape, agents) == fsdp
    assert dataclasses.replace(layout, fsdp=False).spec(path, shape, agents) == plain


@pytest.mark.parametrize("config", tiny_models.VARIANTS.values(), ids=tiny_models.VARIANTS)
def test_every_matrix_of_every_family_has_a_rule(config):
    layout = layout_of((1, 2, 4), fsdp=True).for_stack(1, dataclasses.replace(config, n_heads=4, n_kv_heads=4))
    for path, leaf in jax.tree_util.tree_leaves_with_path(tiny_models.random_params(config)):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        spec = layout.spec(name, leaf.shape[:-1] + (64,) if "embed" not in name else (64, 64), False)
        assert ("model" in spec) == ("norm" not in name), name
        assert ("data" in spec) == ("norm" not in name and "bias" not in name), name


def test_agents_that_do_not_divide_leave_their_devices_to_the_rows():
    layout = layout_of((4, 2, 1), fsdp=True)
    assert layout.for_stack(8).shards == layout.for_stack(4).shards == 2
    assert layout.for_stack(2).shards == layout.for_stack(3).shards == 8
    assert layout.for_stack(3).spec("q/kernel", (3, 2, 32, 32), True) == P(None, None, ("agent", "data"), None)


@pytest.mark.parametrize("mode, held", [("full", 8), ("adapters", 4)])
def test_parameters_are_born_on_their_devices(mode, held):
    """Of two agents on 2 x 2 x 2 devices each holds an eighth, of what they share a quarter."""
    member, plain = build(layout_of((2, 2, 2), fsdp=True), mode), build(ONE_DEVICE, mode)
    for tree, same in ((member.base, plain.base), (member.trainable, plain.trainable)):
        assert_close(jax.device_get(tree), jax.device_get(same), 1e-6)
    part = member.trainable if mode == "full" else member.base
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(part))
    assert max(per_device(part).values()) < 1.05 * whole / held  # a little more: vectors are not cut


def test_placing_never_asks_for_the_whole():
    """What the host hands over piece by piece are the parts of the devices, agents' copies too."""
    asked = []

    class Watched(np.ndarray):
        def __getitem__(self, index):
            part = super().__getitem__(index)
            asked.append(part.size)
            return np.asarray(part)

    layout = layout_of((2, 2, 2), fsdp=True).for_stack(2, POLICY.config)
    array = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    placed = layout._place(array.view(Watched), layout.spec("embed/embedding", (2, 64, 32), True), copies=2)
    assert asked and max(asked) == 64 * 32 // 4
    np.testing.assert_array_equal(placed, np.stack([array] * 2))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_adapters_learn_alike_on_every_mesh(shape):
    assert_close(actual(layout_of(shape), "adapters"), actual(ONE_DEVICE, "adapters"))


@pytest.mark.parametrize("shape, fsdp", [((2, 2, 2), True), ((1, 2, 4), False)], ids=str)
@pytest.mark.parametrize("kind", quantised.KINDS)
def test_a_quantised_base_is_cut_like_its_kernels(kind, shape, fsdp):
    """Scales lie with their weights where both can be cut; where they cannot, the result is the same."""
    layout = layout_of(shape, fsdp=fsdp)
    member = build(layout, "adapters", quantise=kind)
    parts = member.base[quantised.COLLECTION]["layers"]
    for held in (parts["gate"], parts["attn"]["q"]):
        assert held["values"].sharding.spec == P(None, "data" if fsdp else None, "model")
        assert held["scales"].sharding.spec[-1] == "model"  # of their one row for 32 inputs no part can be had
    plain = actual(ONE_DEVICE, "adapters", quantise=kind)
    assert_close(actual(layout, "adapters", quantise=kind), plain)
    assert abs(plain[0]["layers"]["up"]["b"] - actual(ONE_DEVICE, "adapters")[0]["layers"]["up"]["b"]).max() > 1e-4


@pytest.mark.parametrize("shape", FULL_SHAPES, ids=str)
def test_full_copies_learn_alike_where_everything_is_cut(shape):
    layout = layout_of(shape, fsdp=True)
    assert_close(actual(layout, "full"), actual(ONE_DEVICE, "full"))


def test_devices_share_the_work():
    """Floating-point work of one device, by XLA's count, against one that does it all."""
    cut, _ = compiled(layout_of((2, 4, 1)), "adapters")
    whole, _ = compiled(ONE_DEVICE, "adapters", shards=4)
    assert cut.cost_analysis()["flops"] < whole.cost_analysis()["flops"] / 7


def test_rows_stay_where_they_are():
    """Agents and data need no more than sums of gradients; with fsdp parameters come to the rows."""
    for layout, mode in ((layout_of((2, 4, 1)), "adapters"), (layout_of((1, 8, 1), fsdp=True), "full")):
        text = compiled(layout, mode)[0].as_text()
        assert "all-reduce" in text and "all-to-all" not in text
        assert ("all-gather" in text) == layout.fsdp


def test_one_agent_on_a_mesh_for_two():
    """The devices for the second agent take half of the first one's prompts."""
    layout = layout_of((2, 4, 1))
    assert build(layout, "adapters", ("a",)).stack.layout.shards == 8
    both = actual(ONE_DEVICE, "adapters")
    assert_close(actual(layout, "adapters", ("a",)), jax.tree.map(lambda x: x[:1], both))


@functools.cache
def samples(layout: Layout) -> sampling.Samples:
    member, of_all = build(layout, "adapters"), batch()
    inputs = (member.base, member.trainable, of_all.prompts_NBP, of_all.prompt_lengths_NB, jax.random.key(3))
    greedy_NB = np.zeros((2, 4), bool)
    greedy_NB[1, 2] = True
    options = {"shared": of_all.shared, "greedy_NB": greedy_NB}
    stack = dataclasses.replace(member.stack, eos_ids=(1, 5, 9, 20, 33))
    params = SamplingParams(8, temperature=0.9, top_k=40, top_p=0.95)
    lowered = sampling.generate.lower(stack, *inputs, samples=2, params=params, **options)
    return jax.device_get(lowered.compile(QUICK)(*inputs, **options))


@pytest.mark.parametrize("shape", [(2, 2, 2), (8, 1, 1)], ids=str)
def test_samples_are_the_same_on_every_mesh(shape):
    drawn, plain = samples(layout_of(shape, fsdp=shape == (2, 2, 2))), samples(ONE_DEVICE)
    there_NRL = np.arange(8) < plain.lengths_NR[..., None]
    assert 8 > plain.lengths_NR.min() and plain.finished_NR.any()
    np.testing.assert_array_equal(drawn.lengths_NR, plain.lengths_NR)
    np.testing.assert_array_equal(drawn.finished_NR, plain.finished_NR)
    np.testing.assert_array_equal(drawn.tokens_NRL[there_NRL], plain.tokens_NRL[there_NRL])
    assert_close(drawn.logprobs_NRL[there_NRL], plain.logprobs_NRL[there_NRL])


OPTIMIZER = update.make_optimizer(lr=1e-2, steps=10, grad_clip=0.5)


def test_an_update_leaves_everything_where_it_was():
    """The state after a step: as on one device, optimizer and all, and laid out as before."""

    def step(layout):
        member = build(layout, "adapters")
        state = update.init_state(member.trainable, OPTIMIZER, member.stack.layout)
        inputs = member.base, state, (LossConfig(PLAIN).pack(batch(), member.stack.layout.shards),)
        lowered = update.train_step.lower(member.stack, LossConfig(PLAIN), OPTIMIZER, *inputs)
        before = jax.tree.map(lambda x: x.sharding, state)
        return member.stack.layout, before, *lowered.compile(QUICK)(*inputs)

    *_, plain, plain_metrics = step(ONE_DEVICE)
    layout, before, state, metrics = step(layout_of((2, 2, 2), fsdp=True))
    assert_close(jax.device_get(metrics), jax.device_get(plain_metrics), 1e-4)
    assert_close(jax.device_get(state), jax.device_get(plain), 1e-4)
    assert before == layout.shardings(state, agents=True)
    same = jax.tree.map(lambda x, was: x.sharding.is_equivalent_to(was, x.ndim), state, before)
    assert all(jax.tree.leaves(same))
    assert all(x.is_fully_replicated for x in jax.tree.leaves(metrics))
    matrices = [x for x in jax.tree.leaves(state) if x.ndim > 2]
    assert max(per_device(matrices).values()) <= sum(x.nbytes for x in matrices) / 4


def test_a_checkpoint_goes_on_on_another_mesh(tmp_path):
    def state(layout, fill):
        member = build(layout, "full")
        fresh = update.init_state(member.trainable, OPTIMIZER, member.stack.layout)
        leaves, tree = jax.tree.flatten(fresh)
        values = [np.full(x.shape, fill + i, x.dtype) for i, x in enumerate(leaves)]
        placed = [jax.device_put(value, x.sharding) for value, x in zip(values, leaves, strict=True)]
        return team.Team((member,)), {0: tree.unflatten(placed)}

    ours, saved = state(layout_of((2, 2, 2), fsdp=True), 1)
    with Checkpointer(tmp_path) as checkpoints:
        checkpoints.save(1, saved, ours, {})
        for layout in (layout_of((1, 4, 2), fsdp=True), layout_of((2, 1, 4)), ONE_DEVICE):
            theirs, other = state(layout, 100)
            wanted = jax.tree.map(lambda x: x.sharding, other)
            restored, _ = checkpoints.restore(1, theirs, other)
            assert_close(jax.device_get(restored), jax.device_get(saved), 0)
            assert jax.tree.map(lambda x: x.sharding, restored) == wanted


def texts_of(names) -> dict[str, dict[int, np.ndarray]]:
    """Five texts for each critic."""
    draw = np.random.default_rng(4).integers
    return {name: {9 * n + k: draw(7, 60, 3 + 5 * k) for k in range(5)} for n, name in enumerate(names)}


def read_and_learned(layout: Layout, mode: str, joint: bool):
    """What critics say before and after an update, its metrics, and the critics."""
    of_agents = team.Team((build(layout, mode),))
    own = critics.build(of_agents, jax.random.key(0), joint=joint, rank=2)
    made = critics.Critics(own, OPTIMIZER, rows=2)
    texts = texts_of(own.agents)
    targets = {number: number % 3 - 1.0 for read in texts.values() for number in read}
    first = made.values(texts)
    metrics = made.learn(texts, first, targets)
    return made, (first, metrics, made.values(texts))


@pytest.mark.parametrize("shape, mode, joint", [((2, 2, 2), "full", False), ((2, 4, 1), "adapters", True)])
def test_critics_read_and_learn_alike_on_a_mesh(programs_shared, shape, mode, joint):
    """A critic of each agent where everything is cut, and one of all, who leaves its devices to the rows."""
    made, actual = read_and_learned(layout_of(shape, fsdp=True), mode, joint)
    _, plain = read_and_learned(ONE_DEVICE, mode, joint)
    assert_close(actual, plain)
    assert any(abs(plain[0][k] - plain[2][k]) > 0.01 for k in plain[0])
    layout = made.team.members[0].stack.layout
    assert layout.shards == (8 if joint else 2)
    where = jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), made.states[0],
                         layout.shardings(made.states[0], agents=True))  # fmt: skip
    assert all(jax.tree.leaves(where))


def test_a_model_of_pairs_is_fitted_alike_on_a_mesh(programs_shared):
    """Six pairs of texts: a micro-batch of eight on eight devices is filled up."""
    draw = np.random.default_rng(5).integers

    def turn(length):
        return SimpleNamespace(prompt=draw(7, 60, length), completion=draw(7, 60, 2))

    pairs = [SimpleNamespace(winner=(turn(3 + k),), loser=(turn(8 - k),)) for k in range(6)]
    pool = SimpleNamespace(require=lambda: None, draw=lambda number, times: pairs)
    texts = {k: pair.winner[0].prompt for k, pair in enumerate(pairs)}

    def fitted(layout):
        own = critics.build(team.Team((build(layout, "adapters"),)), jax.random.key(0), joint=True, rank=2)
        sizes = dict(batch=6, updates=2, rows=1, loss=verified.label_loss, metric="verifier/loss")
        made = RewardModel(critics.Critics(own, OPTIMIZER, rows=1), OPTIMIZER, pool, **sizes)
        before = made.scores_of(texts)
        return before, made.fit(), made.scores_of(texts)

    plain, actual = fitted(ONE_DEVICE), fitted(layout_of((2, 4, 1), fsdp=True))
    assert_close(actual, plain)
    assert any(abs(plain[0][k] - plain[2][k]) > 1e-3 for k in texts)


def test_heads_on_the_agents_own_bodies_learn_alike_on_a_mesh(programs_shared):
    """What they say before and after, and the gradient for the agents, which lies as their parameters do."""

    def learned(layout):
        member, texts = build(layout, "adapters"), texts_of(tiny.AGENTS)
        bodies = [member.trainable]
        heads = Heads(team.Team((member,)), jax.random.key(0), lambda: bodies, OPTIMIZER, rows=2)
        first = heads.values(texts)
        of_bodies, *of_heads = heads.gradients(texts, first, {k: k % 3 - 1.0 for k in first}, 0.5)
        return member, of_bodies[0], (first, heads.learn(*of_heads), heads.values(texts))

    _, plain_grads, plain = learned(ONE_DEVICE)
    member, grads, actual = learned(layout_of((2, 2, 2), fsdp=True))
    assert_close((actual, jax.device_get(grads)), (plain, jax.device_get(plain_grads)))
    assert any(abs(plain[0][k] - plain[2][k]) > 1e-3 for k in plain[0])
    wanted = member.stack.layout.shardings(grads, agents=True)
    same = jax.tree.map(lambda x, sharding: x.sharding.is_equivalent_to(sharding, x.ndim), grads, wanted)
    assert all(jax.tree.leaves(same))
