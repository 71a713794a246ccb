"""A kitchen for two cooks: one passes ingredients over a counter; the other cooks and serves.

The first cook stands at the shelf of ingredients, the second at the pot and the window; between them is a
counter with room for one thing. Both see the orders. Serving the soup that is ordered next earns an equal
share of 1; any other soup earns nothing and is lost. (After the relays of arXiv 2405.14314 and the forced
coordination of Overcooked, arXiv 1910.05789, but not identical to either.)
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxmarl_llm.tasks.worlds.types import Start, Step
from jaxmarl_llm.utils.errors import UserError

KINDS = ("onion", "tomato")
NOTHING = "nothing"
MOST_ORDERS = 2  # soups per episode


class Places(NamedTuple):
    """What the cooks hold, what is on the counter and in the pot, and the remaining orders.

    The pot's content is an ingredient during the turn in which it cooks, then a soup. ``ordered`` is the
    number of soups ordered at the start.
    """

    first: str = NOTHING
    counter: str = NOTHING
    second: str = NOTHING
    pot: str = NOTHING
    orders: tuple[str, ...] = ()
    ordered: int = 1


def soup(kind: str) -> str:
    """What an ingredient becomes in the pot."""
    return f"{kind} soup"


class Kitchen:
    """Two cooks. One order takes seven turns, two take twelve, since fetching overlaps with cooking."""

    wait, best = "wait", 1.0

    def __init__(self, agents: Sequence[str]):
        self.agents = tuple(agents)
        if len(self.agents) != 2:
            raise UserError(f"kitchen: agents is {self.agents!r}; allowed are two")

    def starts(self) -> list[Start]:
        """One for each list of one or two orders."""
        lists = [orders for n in range(1, MOST_ORDERS + 1) for orders in itertools.product(KINDS, repeat=n)]
        return [Start(f"kitchen/{'_'.join(orders)}", orders) for orders in lists]

    def reset(self, start: Start) -> Places:
        """Hands, counter and pot are empty."""
        return Places(orders=tuple(start.start), ordered=len(start.start))

    def rules(self, agent: str) -> str:
        """The cook's place, aim and actions."""
        if agent == self.agents[0]:
            return (
                "You fetch ingredients for soups, in the order of the orders. Say onion or tomato to fetch one, put to "
                "put it on the counter, or wait."
            )
        return (
            "You cook soups, in the order of the orders. Say take to take from the counter, put to put it back, cook "
            "to put it into the pot, fill to take the soup out, serve, or wait."
        )

    def show(self, state: Places, agent: str) -> str:
        """The orders, the counter, what the cook holds, and for the second cook the pot."""
        hand = state.first if agent == self.agents[0] else state.second
        orders = ", then ".join(state.orders) or NOTHING
        text = f"Orders: {orders}. Counter: {state.counter}. You hold {hand}."
        return text if agent == self.agents[0] else f"{text} Pot: {state.pot}."

    def legal(self, state: Places, agent: str) -> tuple[str, ...]:
        """What hands, counter and pot allow."""
        if agent == self.agents[0]:
            allowed = {
                "onion": state.first == NOTHING,
                "tomato": state.first == NOTHING,
                "put": state.first != NOTHING and state.counter == NOTHING,
            }
        else:
            allowed = {
                "take": state.second == NOTHING != state.counter,
                "put": state.second != NOTHING and state.counter == NOTHING,
                "cook": state.second in KINDS and state.pot == NOTHING,
                "fill": state.second == NOTHING and state.pot in map(soup, KINDS),
                "serve": state.second in map(soup, KINDS),
            }
        return (*(action for action, possible in allowed.items() if possible), self.wait)

    def step(self, state: Places, actions: Mapping[str, str]) -> Step:
        """Both act at once on the previous state; what is in the pot is cooked by the next turn.

        If both put something on the counter, the second cook keeps its thing.
        """
        first, second = (actions[agent] for agent in self.agents)
        new = state._replace(pot=soup(state.pot) if state.pot in KINDS else state.pot)
        if first in KINDS:
            new = new._replace(first=first)
        elif first == "put":
            new = new._replace(first=NOTHING, counter=state.first)
        if second == "take":
            new = new._replace(second=state.counter, counter=NOTHING)
        elif second == "put" and first != "put":
            new = new._replace(second=NOTHING, counter=state.second)
        elif second == "cook":
            new = new._replace(second=NOTHING, pot=state.second)
        elif second == "fill":
            new = new._replace(second=new.pot, pot=NOTHING)
        reward = 0.0
        if second == "serve":
            right = state.second == soup(state.orders[0])
            reward = right / state.ordered
            new = new._replace(second=NOTHING, orders=state.orders[1:] if right else state.orders)
        return Step(new, reward, not new.orders)
