"""The costs of a training (tokens drawn, answers judged), and whether its budgets are reached.

Methods are compared at equal budgets. The maximum cost of an iteration says little, since completions end
early, so actual numbers are counted. Evaluations are not counted: they are the same for every method.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that do not import JAX read the names below
    from jaxmarl_llm.forest import Forest
    from jaxmarl_llm.systems.types import Credit

NAMES = TOKENS, ANSWERS, LEARNED = "spent/tokens", "spent/answers", "spent/optimizer_tokens"
# Summary entries: the test evaluation at the end of the iteration in which that budget was reached.
MARKS = {"at_tokens": ("budget_tokens", TOKENS), "at_answers": ("budget_answers", ANSWERS)}


class Spending:
    """Running totals of a run.

    ``totals``: by metric name, completion tokens drawn, joint answers judged, and completion tokens that the
    optimizer has learned from (those of agents that learn, counted once per use).

    Args:
      config: ``train.budget_tokens`` and ``train.budget_answers`` are the budgets, 0 for none. Each of the
        ``train.epochs`` passes counts as learned from.
      agents: those that learn.
      rows: the rows of metrics of the iterations that are done.
    """

    def __init__(self, config, agents: Collection[str], rows: Sequence[Mapping[str, float]] = ()):
        self._agents = frozenset(agents)
        self._epochs = config.train["epochs"]  # passes over what is learned from
        self._budgets = {mark: config.train[field] for mark, (field, _) in MARKS.items()}
        counted = [row for row in rows if TOKENS in row]
        self.totals = {name: counted[-1][name] if counted else 0.0 for name in NAMES}

    def add(self, forest: "Forest | None", credit: "Credit") -> dict[str, float]:
        """Count an iteration that drew ``forest``, if any; returns the totals so far, as metrics."""
        from jaxmarl_llm.forest import metrics

        if forest is not None:
            self.totals[TOKENS] += metrics.tokens(forest)
            self.totals[ANSWERS] += metrics.answers(forest)
        if credit.learn and credit.forest is not None:
            self.totals[LEARNED] += self._epochs * metrics.learned_tokens(credit.forest, self._agents)
        return dict(self.totals)

    def expected_steps(self, done: int, limit: int) -> int:
        """Iterations of the whole training, at most ``limit``, if all cost as much as the ``done`` ones."""
        spent = {budget: self.totals[MARKS[mark][1]] for mark, budget in self._budgets.items() if budget}
        if not spent or not all(spent.values()):
            return limit
        return min(limit, max(done, *(math.ceil(done * budget / each) for budget, each in spent.items())))

    def reached(self) -> list[str]:
        """The marks whose budget is spent, in the order of `MARKS`."""
        return [
            mark
            for mark, (_, name) in MARKS.items()
            if self._budgets[mark] and self.totals[name] >= self._budgets[mark]
        ]

    def over(self) -> bool:
        """Whether there are budgets and all of them are reached."""
        given = [mark for mark, budget in self._budgets.items() if budget]
        return bool(given) and self.reached() == given
