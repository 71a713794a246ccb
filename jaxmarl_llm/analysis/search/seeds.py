"""Searches with the same method and several seeds, as one.

Of every problem the mean over the seeds counts, so that intervals and p are over problems, as they are for
one seed: another seed is no other problem.
"""

from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.analysis.search import metrics as search_metrics
from jaxmarl_llm.analysis.search.results import SearchResult, asked


def over_seeds(results: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """A row for each method and team, for the tables of `report.search_tables`; [] where none has two seeds.

    The first search's method is the baseline. Keys as in `search_results.to_json`, but for seed (all of
    them), problems (their names) and what is of one search alone.
    """
    groups: dict[tuple, list[SearchResult]] = {}
    for result in results:
        team = tuple(sorted(result.models.items()))
        groups.setdefault((result.method, team, asked(result)), []).append(result)
    if max(map(len, groups.values()), default=1) == 1:
        return []
    found = list(groups.values())
    return [_row(own, _baseline(own, found)) for own in found]


def _baseline(own: Sequence[SearchResult], groups: Sequence[Sequence[SearchResult]]):
    """What a method is compared with, None for the baseline itself."""
    method = groups[0][0].method
    if own[0].method == method:
        return None
    same = (each for each in groups if each[0].method == method and asked(each[0]) == asked(own[0]))
    return next(same, None)


def _row(own: Sequence[SearchResult], baseline: Sequence[SearchResult] | None) -> dict[str, Any]:
    measure, every = own[0].measure, _problems(own)
    means, curve = search_metrics.means(every, measure), search_metrics.progress(every, measure)
    against = {}
    if baseline:
        found = search_metrics.differences(every, _problems(baseline), measure)
        metrics = {name: difference._asdict() for name, difference in found.items()}
        against = {"method": baseline[0].method, "seed": _seeds(baseline), "metrics": metrics}
    return {
        "method": own[0].method,
        "task": own[0].task,
        "seed": _seeds(own),
        "models": own[0].models,
        "measure": measure,
        "problems": list(dict.fromkeys(problem.item for problem in every)),
        "metrics": {
            group: {name: mean._asdict() for name, mean in row.items()} for group, row in means.items()
        },
        "progress": [{"executed": executed} | mean._asdict() for executed, mean in curve],
        "against": against,
    }


def _problems(group: Sequence[SearchResult]) -> list[search_metrics.ItemResult]:
    return [problem for result in group for problem in result.problems]


def _seeds(group: Sequence[SearchResult]) -> str:
    return ", ".join(str(result.seed) for result in group)
