"""A team: named agents, grouped into stacks of one architecture that share all compiled programs.

To the user a team is a dict by agent name. Inside, agents with the same model form a `Stack`, whose arrays
have a leading agent axis N. In ``adapters`` mode the base model exists once and only the low-rank adapters
are per agent; in ``full`` mode every agent has its own copy. ``frozen`` agents answer but never learn;
neither do ``remote`` agents, whose texts come from an `experts.Expert`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_llm import adapters
from jaxmarl_llm.byte_tokenizer import ByteTokenizer
from jaxmarl_llm.policy import Policy, Product
from jaxmarl_llm.policy.fused import choice
from jaxmarl_llm.sharding import ONE_DEVICE, Layout
from jaxmarl_llm.stop_texts import StopText
from jaxmarl_llm.utils import dtypes, quantised
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import LoadedModel

MODES = ("adapters", "full", "frozen")
REMOTE = "remote"  # mode of agents that are not local models


@dataclasses.dataclass(frozen=True)
class Stack:
    """The static, hashable part of a group of agents; programs are compiled for it.

    Attributes:
      agents: names, in the order of the agent axis.
      policy: the shared Linen module; None in ``remote`` mode.
      eos_ids: every token id that ends a completion.
      mode: one of `MODES`, or `REMOTE`.
      adapter_scale: alpha / rank in ``adapters`` mode.
      stops: texts that end a completion as an EOS does.
      sampler: the module used to draw completions (see `decode`): its dtype, and whether its layers are
        separate; None: ``policy``.
      layout: placement of its arrays.
      leaves_rows: whether sampling continues with only the unfinished rows once most have ended, see
        `on_platform`.
    """

    agents: tuple[str, ...]
    policy: Policy | None
    eos_ids: tuple[int, ...]
    mode: str
    adapter_scale: float = 1.0
    stops: tuple[StopText, ...] = ()
    sampler: Policy | None = None
    layout: Layout = ONE_DEVICE
    leaves_rows: bool = True

    @property
    def learns(self) -> bool:
        """Whether its agents have parameters of their own."""
        return self.mode in ("adapters", "full")

    def bind(self, base: Any, trainable: Any) -> tuple[dict, Any]:
        """Linen variables for ``policy.apply`` and their ``vmap`` axes over the agents."""
        if self.mode == "adapters":
            variables = {**base, "lora": adapters.scaled(trainable, self.adapter_scale)}
            return variables, {**dict.fromkeys(base), "lora": 0}
        if self.mode == "full":
            return trainable, 0
        return base, None

    def subset(self, agents: tuple[str, ...], trainable: Any) -> tuple["Stack", Any]:
        """The stack of some of its agents, in the order of the stack, and their slice of the parameters."""
        if agents == self.agents:
            return self, trainable
        index = jnp.array([self.agents.index(agent) for agent in agents])
        part = dataclasses.replace(self, agents=agents, layout=self.layout.for_stack(len(agents)))
        return part, jax.tree.map(lambda x: x[index], trainable)

    def bind_reference(self, base: Any, reference: Any = None) -> tuple[dict, Any]:
        """Variables of the reference policy and their ``vmap`` axes over the agents.

        It is the base with adapters off, shared by all agents; or, with ``reference``, the initial parameters
        of the team (leading axis N) applied on the base.
        """
        return (base, None) if reference is None else self.bind(base, reference)


def on_platform(stack: Stack, platform: str, base_quantised: bool = False) -> Stack:
    """The stack with its sampler adapted to a platform (`jax.Device.platform`).

    A CPU copies a layer out of stacked arrays at every token. A TPU's compiler reads it in place and compiles
    the scan over layers faster; a GPU's compiler may copy it, and launches a loop's kernels one by one. For
    few rows a CPU multiplies faster with transposed kernels (`policy.dense.Product`), which cost nothing if
    layers are separate anyway. On a CPU fewer rows are less work. Elsewhere a step takes as long as reading
    the weights, so loops with fewer rows would only cost compilation and copies of the prompts' keys.

    Layers of a quantised base always stay stacked: with separate layers XLA holds the dequantised weights of
    all layers at the same time, while from a stack it reads and dequantises each layer when needed.
    """
    apart = platform in ("cpu", "gpu") and not base_quantised
    turned = (
        apart and platform == "cpu" and stack.layout.mesh is None
    )  # a mesh shards kernels in the policy's layout
    product = Product.TURNED if turned else Product.ROWS_FIRST
    sampler = (stack.sampler or stack.policy).clone(apart=apart, product=product)
    return dataclasses.replace(stack, sampler=sampler, leaves_rows=platform == "cpu")


@dataclasses.dataclass
class Member:
    """A stack with its arrays and its host-side tokenizer.

    ``base`` holds frozen Linen variables (None in ``full`` mode without a reference), ``trainable`` the
    per-agent tree with a leading axis N (None when frozen). A ``remote`` member has neither: its texts come
    from ``expert``, which may be None if no texts are needed. ``reference``: the reference policy's
    parameters, with a leading axis N, if the team started from another run's; None: the base. ``generate``
    replaces `sampling.generate`, with the same arguments, for several runs that draw together.
    """

    stack: Stack
    base: Any
    trainable: Any
    tokenizer: Any
    model_name: str
    expert: Any = None
    reference: Any = None
    generate: Callable | None = None

    @property
    def remote(self) -> bool:
        """Whether its agents are behind an endpoint, not local models."""
        return self.stack.mode == REMOTE

    def agent_variables(self, agent: str) -> dict:
        """Build one agent's plain policy variables, adapters merged in."""
        index = self.stack.agents.index(agent)
        if self.stack.mode == "frozen":
            return self.base
        own = jax.tree.map(lambda x: x[index], self.trainable)
        return own if self.stack.mode == "full" else adapters.merge(self.base, own, self.stack.adapter_scale)


@dataclasses.dataclass
class Team:
    """The stacks of a run; ``team[agent]`` is the `Member` that holds the agent."""

    members: tuple[Member, ...]

    @property
    def agents(self) -> tuple[str, ...]:
        """Agent names, stack by stack."""
        return tuple(agent for member in self.members for agent in member.stack.agents)

    def __getitem__(self, agent: str) -> Member:
        for member in self.members:
            if agent in member.stack.agents:
                return member
        raise KeyError(f"no agent named {agent!r}; the team is {self.agents}")

    def local(self, feature: str) -> "Team":
        """The members that are local models. ValueError, naming the feature, if there are none."""
        members = tuple(member for member in self.members if not member.remote)
        if not members:
            self.require_local(feature)
        return Team(members)

    def require_local(self, feature: str) -> None:
        """Raise ValueError for the first agent that is not a local model, naming the feature."""
        for member in self.members:
            if member.remote:
                agent, name = member.stack.agents[0], member.model_name
                raise UserError(f"{feature} needs a model of ours; agent {agent!r} speaks through {name!r}")


def copies(params: Any, agents: int, layout: Layout, dtype) -> Any:
    """Copy a tree for every agent, with a leading agent axis, in the given dtype."""
    params = dtypes.cast(params, dtype)
    if layout.mesh is not None:
        return layout.place(params, copies=agents)
    return jax.tree.map(lambda x: jnp.stack([x] * agents), params)


def attending(
    policy, sampling_dtype, implementation: str, device: jax.Device, layout: Layout = ONE_DEVICE
) -> tuple:
    """The policy and its sampler in another dtype, with a device's kernels; see `policy.fused.choice`."""
    choose = functools.partial(choice.choose, implementation, policy.config, device=device, mesh=layout.mesh)
    policy = policy.clone(kernel=choose(policy.dtype))
    if sampling_dtype == policy.dtype:
        return policy, policy
    return policy, policy.clone(dtype=sampling_dtype, kernel=choose(sampling_dtype))


def build(
    models: dict[str, LoadedModel],
    agent_models: dict[str, str],
    key: jax.Array,
    *,
    mode: str = "adapters",
    rank: int = 16,
    alpha: float = 32.0,
    targets: tuple[str, ...] = adapters.TARGETS,
    keep_reference: bool = False,
    param_dtype: str = "float32",
    stop: tuple[str, ...] = (),
    sampling_dtype: str | None = None,
    layout: Layout = ONE_DEVICE,
    experts: Mapping[str, Any] | None = None,
    attention: str = "auto",
) -> Team:
    """Group agents by model and give them parameters.

    Args:
      models: loaded models by name; with a mesh, their parameters are best on the host or in files.
      agent_models: agent name -> model name, in the order the agents are listed.
      key: random key for the adapters.
      mode: one of `MODES`, for every agent.
      rank, alpha, targets: see `adapters.init`; the addition is scaled by alpha / rank.
      keep_reference: in ``full`` mode, also keep the initial parameters, for a KL term.
      param_dtype: dtype of the trained parameters; the base keeps its own.
      stop: texts that end a completion as an EOS does; their tokens count and are trained.
      sampling_dtype: dtype of weights and computation while sampling; None: the policy's dtype.
      layout: placement of the arrays; each stack gets its own by number of agents and heads.
      experts: by model name, the `experts.Expert` that answers instead of a model; None if it is not needed,
        for example if only local agents are exported.
      attention: attention implementation, see `policy.fused.choice.choose`.

    Raises:
      ValueError: for an unknown mode, an empty team, an unknown model or one without a tokenizer, and a quantised
        model if agents should train copies of it.
    """
    if mode not in MODES:
        raise UserError(f"team.mode={mode!r} is not one of {MODES}")
    if not agent_models:
        raise UserError("a team needs at least one agent")
    groups: dict[str, list[str]] = {}
    for agent, name in agent_models.items():
        groups.setdefault(name, []).append(agent)
    experts = experts or {}
    options = dict(
        mode=mode,
        rank=rank,
        alpha=alpha,
        targets=targets,
        keep_reference=keep_reference,
        param_dtype=param_dtype,
        stop=stop,
        sampling_dtype=sampling_dtype,
        layout=layout,
        attention=attention,
    )
    members = []
    for i, (name, agents) in enumerate(groups.items()):
        if name in experts:
            members.append(_remote_member(name, tuple(agents), experts[name]))
            continue
        if name not in models:
            known = sorted({*models, *experts})
            raise UserError(f"agents {agents} use model {name!r}, which is not among {known}")
        members.append(_member(name, models[name], tuple(agents), jax.random.fold_in(key, i), **options))
    return Team(tuple(members))


def _remote_member(name: str, agents: tuple[str, ...], expert) -> Member:
    """The agents that an expert answers for."""
    tokenizer = ByteTokenizer()
    return Member(Stack(agents, None, tokenizer.eos_ids, REMOTE), None, None, tokenizer, name, expert)


def _member(
    name: str,
    model: LoadedModel,
    agents: tuple[str, ...],
    key: jax.Array,
    *,
    mode: str,
    rank: int,
    alpha: float,
    targets: tuple[str, ...],
    keep_reference: bool,
    param_dtype: str,
    stop: tuple[str, ...],
    sampling_dtype: str | None,
    layout: Layout,
    attention: str,
) -> Member:
    """The agents of one model, see `build`."""
    if model.tokenizer is None:
        raise UserError(f"model {name!r} has no tokenizer; agents {list(agents)} need one")
    stack_layout = layout.for_stack(len(agents), model.policy.config)
    base, trainable, scale = model.params, None, 1.0
    if mode == "adapters":
        options = dict(params=base, agents=len(agents), rank=rank, targets=targets, dtype=param_dtype)
        trainable = stack_layout.init(functools.partial(adapters.init, **options), key)
        scale = alpha / rank
    elif mode == "full":
        if kind := quantised.kind_of(base):
            raise UserError(
                f"team.mode='full': model {name!r} is quantised ({kind}), and rounded weights cannot learn; "
                "allowed is team.mode='adapters'"
            )
        trainable = copies(base, len(agents), stack_layout, param_dtype)
        base = base if keep_reference else None
    stops = model.tokenizer.stop_texts(stop) if stop else ()
    dtype = jnp.dtype(sampling_dtype or model.policy.dtype)
    unused_ids = model.tokenizer.unused_ids(model.policy.config.vocab_size)
    device = jax.devices()[0] if layout.mesh is None else layout.mesh.devices.flat[0]
    policy = stack_layout.policy(model.policy).clone(unused_ids=unused_ids)
    policy, sampler = attending(policy, dtype, attention, device, layout)
    eos_ids = tuple(model.tokenizer.eos_ids)
    stack = Stack(agents, policy, eos_ids, mode, scale, stops, sampler, stack_layout)
    kept = mode == "adapters" and quantised.kind_of(base)
    stack = on_platform(stack, jax.default_backend(), bool(kept))
    base = base if stack_layout.mesh is None else stack_layout.place(base)
    return Member(stack, base, trainable, model.tokenizer, name)
