"""Place arrays on several devices: one mesh with the axes agent, data and model.

The rules are outside of the model, by the paths of parameters. Arrays are cut by the compiler (GSPMD): a
`Layout` fixes where arrays are placed between programs, the programs themselves are those of one device.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxmarl_llm.policy import Block, Cache, Policy
from jaxmarl_llm.utils.errors import UserError

AXES = ("agent", "data", "model")
# End of a parameter's path -> the cuts of its last axes: "heads", "kv_heads" and "model" the mesh axis model
# (the first two between heads only), "fsdp" the axis data if `Layout.fsdp`. Paths without a rule are not cut. Values
# and scales of a quantised kernel have fewer rows than it, and are each cut where they can be.
RULES = (
    (r"embed/embedding$", ("model", "fsdp")),
    (r"head/kernel$", ("fsdp", "model")),
    (r"\bq/(kernel|values|scales)$", ("fsdp", "heads")),
    (r"\b(k|v)/(kernel|values|scales)$", ("fsdp", "kv_heads")),
    (r"\b(gate|up)/(kernel|values|scales)$", ("fsdp", "model")),
    (r"\bo/(kernel|values|scales)$", ("heads", "fsdp")),
    (r"\bdown/(kernel|values|scales)$", ("model", "fsdp")),
    (r"\bq/(bias|b)$", ("heads",)),
    (r"\b(k|v)/(bias|b)$", ("kv_heads",)),
    (r"\b(gate|up)/b$", ("model",)),
    (r"\bo/a$", ("heads", None)),
    (r"\bdown/a$", ("model", None)),
    (r"\b(q|k|v|gate|up)/a$", ("fsdp", None)),
    (r"\b(o|down)/b$", ("fsdp",)),
)


def make_mesh(
    agent: int = 1, data: int = 1, model: int = 1, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """A mesh of all devices (default: those of all processes), its axes left to the compiler (GSPMD).

    Raises ValueError unless there are ``agent * data * model`` devices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = (agent, data, model)
    if min(sizes) < 1 or math.prod(sizes) != len(devices):
        named = " * ".join(f"mesh.{axis}={size}" for axis, size in zip(AXES, sizes, strict=True))
        raise UserError(f"{named} is a mesh of {math.prod(sizes)} devices, and there are {len(devices)}")
    # Devices communicate most along the last axis, so they stay in the order of the platform.
    return Mesh(np.array(devices).reshape(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


@dataclasses.dataclass(frozen=True)
class Layout:
    """The placement of one stack's arrays on a mesh; static, hashable. Without a mesh it changes nothing.

    An array axis whose size is not divisible by the number of its devices stays whole on each of them.

    Attributes:
      mesh: from `make_mesh`, or None: one device.
      fsdp: cut parameters (and with them the optimizer's state) along ``data`` too; each layer is gathered
        when it is used (ZeRO 3, arXiv 1910.02054).
      agents: N of the stack. If N does not divide by the mesh axis ``agent``, that axis cuts rows instead.
      heads, kv_heads: of the stack's policy, which ``model`` divides among devices.
    """

    mesh: Mesh | None = None
    fsdp: bool = False
    agents: int = 1
    heads: int = 1
    kv_heads: int = 1

    def for_stack(self, agents: int, policy_config: Any = None) -> "Layout":
        """The layout of a stack of so many agents, and of this policy if it is given."""
        c = policy_config
        heads = {} if c is None else {"heads": c.n_heads, "kv_heads": c.n_kv_heads}
        return dataclasses.replace(self, agents=agents, **heads)

    @property
    def _by_agent(self) -> bool:
        return self.agents % self.mesh.shape["agent"] == 0

    @property
    def rows(self) -> tuple[str, ...]:
        """Mesh axes that cut rows: prompts and samples."""
        return ("data",) if self._by_agent else ("agent", "data")

    @property
    def shards(self) -> int:
        """Parts that rows are cut into."""
        return 1 if self.mesh is None else math.prod(self.mesh.shape[axis] for axis in self.rows)

    @property
    def gathered(self) -> tuple[str, ...]:
        """Mesh axes that cut parameters with ``fsdp`` beside ``agent`` and ``model``; () where nothing does."""
        if self.mesh is None or not self.fsdp:
            return ()
        return tuple(axis for axis in self.rows if self.mesh.shape[axis] > 1)

    def spec(self, path: str, shape: tuple[int, ...], agents: bool) -> PartitionSpec:
        """The mesh axes that cut each axis of a parameter, or of a statistic of its shape; see `RULES`.

        Args:
          path: e.g. ``params/layers/attn/q/kernel``; only its end counts.
          shape: of the whole array.
          agents: whether its first axis is that of the agents.
        """
        cuts = next((cuts for pattern, cuts in RULES if re.search(pattern, path)), ())
        rank = len(shape) - agents
        cuts = (None,) * (rank - len(cuts)) + cuts if rank >= len(cuts) else (None,) * rank
        return self._spec(("agent", *cuts)[: len(shape)] if agents else cuts, shape)

    def shardings(self, tree, agents: bool):
        """`NamedSharding` of every leaf (arrays or shapes) of parameters or of an optimizer's state."""

        def one(path, x):
            return NamedSharding(self.mesh, self.spec(_name(path), x.shape, agents and x.ndim > 0))

        return jax.tree_util.tree_map_with_path(one, tree)

    def place(self, tree, copies: int = 0):
        """Place parameters from the host or from files (`weights.stored`) on the mesh; each device gets its
        part. Parts that no device of this process needs are not read.

        With ``copies`` every leaf gets an agent axis of that length in front, all agents alike.
        """

        def one(path, x):
            shape = (copies, *x.shape) if copies else x.shape
            return self._place(x, self.spec(_name(path), shape, agents=bool(copies)), copies)

        return jax.tree_util.tree_map_with_path(one, tree)

    def _place(self, x, spec: PartitionSpec, copies: int) -> jax.Array:
        shape, sharding = (copies, *x.shape) if copies else x.shape, NamedSharding(self.mesh, spec)

        def own(index) -> str:  # slices have no hash
            return str([one.indices(size) for one, size in zip(index, shape, strict=True)][bool(copies) :])

        indices = {own(index): index for index in sharding.addressable_devices_indices_map(shape).values()}
        wanted = [index[bool(copies) :] for index in indices.values()]
        read = x.parts(wanted) if hasattr(x, "parts") else [x[index] for index in wanted]
        parts = dict(zip(indices, read, strict=True))

        def part(index):
            cut = parts[own(index)]
            return np.broadcast_to(cut, (len(range(copies)[index[0]]), *cut.shape)) if copies else cut

        return jax.make_array_from_callback(shape, sharding, part)

    def init(self, function, *inputs):
        """Compute ``function(*inputs)``, a tree with agent axes, with every part on its device."""
        if self.mesh is None:
            return function(*inputs)
        shardings = self.shardings(jax.eval_shape(function, *inputs), agents=True)
        return jax.jit(function, out_shardings=shardings)(*inputs)

    def constrain(self, tree, agents: bool = True):
        """Lay out parameters, gradients or optimizer state as `shardings` says; in a jitted function."""
        return self._constrain(tree, lambda tree: self.shardings(tree, agents))

    def shard(self, tree, *axes: str | None):
        """Cut the first axes of arrays, by names (agent, rows, kv_heads or None); in a jitted function."""

        def one(x):
            return NamedSharding(
                self.mesh, self._spec(axes[: x.ndim] + (None,) * (x.ndim - len(axes)), x.shape)
            )

        return self._constrain(tree, lambda tree: jax.tree.map(one, tree))

    def replicate(self, tree):
        """Put arrays whole on every device, so that every process can read them; in a jitted function."""
        return self.shard(tree)

    def cache(self, cache: Cache) -> Cache:
        """Cut a cache of all agents, axes as in `cache.agent_axes`, by its rows; in a jitted function."""

        def block(b: Block) -> Block:
            layers = () if isinstance(b.k_YBKHS, tuple) else (None,)  # see `Cache.apart`
            keys = self.shard((b.k_YBKHS, b.v_YBKSH), *layers, "agent", "rows", "kv_heads")
            return Block(*keys, self.shard(b.positions_BS, "agent", "rows"))

        return cache.map_blocks(block)

    def policy(self, policy: Policy) -> Policy:
        """The policy for this layout: with ``fsdp`` parameters are gathered where they are used.

        Otherwise the compiler would cut features as the parameters are cut, and move rows between devices.
        """
        return policy.clone(fetch=self._fetch) if self.mesh is not None and self.fsdp else policy

    def _fetch(self, name: str, params):
        together = dataclasses.replace(self, fsdp=False)

        def one(path, x):
            return NamedSharding(self.mesh, together.spec(f"{name}/{_name(path)}", x.shape, agents=False))

        return self._constrain(params, lambda tree: jax.tree_util.tree_map_with_path(one, tree))

    def _constrain(self, tree, shardings):
        if self.mesh is None:
            return tree
        return jax.lax.with_sharding_constraint(tree, shardings(tree))

    def _spec(self, cuts, shape) -> PartitionSpec:
        """Names of cuts as mesh axes, without those that do not divide their axis of the array."""
        cut_axes = []
        for cut, size in zip(cuts, shape, strict=True):
            axes = self._axes(cut)
            counted = {"heads": self.heads, "kv_heads": self.kv_heads}.get(cut, size)
            parts = math.prod(self.mesh.shape[axis] for axis in axes)
            cut_axes.append(axes if parts > 1 and size % parts == 0 and counted % parts == 0 else None)
        return PartitionSpec(*(axes and (axes[0] if len(axes) == 1 else axes) for axes in cut_axes))

    def _axes(self, cut: str | None) -> tuple[str, ...]:
        """Mesh axes of a cut."""
        if cut is None or (cut == "fsdp" and not self.fsdp) or (cut == "agent" and not self._by_agent):
            return ()
        named = {"rows": self.rows, "fsdp": self.rows, "agent": ("agent",)}
        return named.get(cut, ("model",))


class Cuts(NamedTuple):
    """Numbers of parts into which a mesh cuts arrays of some agents: agents, rows, and along ``model``."""

    agent: int
    rows: int
    model: int

    def of_rows(self, rows: int) -> float:
        """Rows on one device: all of them where they cannot be cut evenly."""
        return rows / self.rows if rows % self.rows == 0 else rows


def cuts(layout: Layout, agents: int) -> Cuts:
    """Return how a layout cuts the arrays of ``agents`` agents."""
    if layout.mesh is None:
        return Cuts(1, 1, 1)
    layout = layout.for_stack(agents)
    of_agents = 1 if "agent" in layout.rows else layout.mesh.shape["agent"]
    return Cuts(of_agents, layout.shards, layout.mesh.shape["model"])


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


ONE_DEVICE = Layout()
