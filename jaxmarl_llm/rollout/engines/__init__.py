"""What draws completions: the sampler of this process (`local`), or servers elsewhere (`completions`).

An `Engine` is given a member's parameters by `publish` and draws from them by `draw`; `rollout.run` knows no
more of it. Servers get adapters as PEFT folders (`adapter_store`), are called over HTTP (`calls`), and nothing
of their answers is believed before it was checked (`answers`, `agreement`).
"""

from jaxmarl_llm.rollout.engines.local import LOCAL, LocalEngine
from jaxmarl_llm.rollout.engines.types import Drawn, Engine, Published

__all__ = ["LOCAL", "Drawn", "Engine", "LocalEngine", "Published"]
