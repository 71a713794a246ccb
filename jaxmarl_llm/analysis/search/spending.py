"""Costs of a search for one problem after each of its rounds, from its forest."""

from collections.abc import Sequence

from jaxmarl_llm.analysis.search.ledger import expansions
from jaxmarl_llm.analysis.search.metrics import Spent
from jaxmarl_llm.forest import Forest

Read = tuple[int, int, int]  # item, round, tokens that a value model read


def spent_by_round(
    forest: Forest, item: int, executed: Sequence[int], solved: Sequence[bool], reads: Sequence[Read] = ()
) -> tuple[Spent, ...]:
    """The costs of an item up to the end of each round; turns and texts count in the round that sampled them.

    Args:
      forest: forest of the search.
      item: index of the item.
      executed, solved: see `Spent`, for each round.
      reads: texts that a value model read.
    """
    own, rows = [turn for turn in forest.turns if turn.item == item], []
    for t, (programs, right) in enumerate(zip(executed, solved, strict=True)):
        turns = [turn for turn in own if turn.turn <= t]
        prompts = {turn.request: turn.tokens[0] for turn in turns}
        valued = sum(tokens for i, place, tokens in reads if i == item and place <= t)
        drawn, read = sum(turn.tokens[1] for turn in turns), sum(prompts.values()) + valued
        rows.append(Spent(len(expansions(turns)), programs, drawn, read, bool(right)))
    return tuple(rows)
