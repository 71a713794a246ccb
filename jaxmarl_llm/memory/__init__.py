"""A memory of texts: items with search keys, rules that select items, and files that store them.

It stores lessons, peers' answers, experience with programs and examples of commits. It needs no JAX.
"""

from jaxmarl_llm.memory.index import RULES, Index
from jaxmarl_llm.memory.items import Item, Kept, check_task, greatest, numbered
from jaxmarl_llm.memory.relevance import Encoder, Relevance, checked, ngrams, words
from jaxmarl_llm.memory.store import Store, saved

__all__ = [
    "RULES",
    "Encoder",
    "Index",
    "Item",
    "Kept",
    "Relevance",
    "Store",
    "check_task",
    "checked",
    "greatest",
    "ngrams",
    "numbered",
    "saved",
    "words",
]
