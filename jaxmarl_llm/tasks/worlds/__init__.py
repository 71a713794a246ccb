"""Worlds: environments in which a team acts turn by turn, and the task that lets agents play in them."""

from jaxmarl_llm.tasks.worlds.types import Start, Step, World

__all__ = ["Start", "Step", "World"]
