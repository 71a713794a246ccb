"""Protocols: the order in which agents answer, and what each of them sees. One file each."""

from jaxmarl_llm.protocols.discussion import Discussion
from jaxmarl_llm.protocols.pipeline import Pipeline
from jaxmarl_llm.protocols.simultaneous import Simultaneous
from jaxmarl_llm.protocols.tree import Tree
from jaxmarl_llm.protocols.types import Answer, Episode, Protocol, item_name

__all__ = ["Answer", "Discussion", "Episode", "Pipeline", "Protocol", "Simultaneous", "Tree", "item_name"]
