"""What draws completions: the sampler of this process (`local`), or servers elsewhere (`completions`).

An `Engine` gets a member's parameters by `publish` and draws from them by `draw`; `rollout.run` uses nothing
else of it. Servers get adapters as PEFT folders (`adapter_store`) and are called over HTTP (`calls`). Their
answers are always checked before use (`answers`, `agreement`).
"""

from jaxmarl_llm.rollout.engines.local import LOCAL, LocalEngine
from jaxmarl_llm.rollout.engines.types import Drawn, Engine, Published

__all__ = ["LOCAL", "Drawn", "Engine", "LocalEngine", "Published"]
