"""Combine searches with the same method and different seeds.

Every problem counts once, with its mean over the seeds, so that intervals and p-values are over problems, as
for one seed: another seed is not another problem.
"""

from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.analysis.search import metrics as search_metrics
from jaxmarl_llm.analysis.search.results import SearchResult, comparison_key


def over_seeds(results: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """A row for each method and team, for the tables of `report.search_tables`; [] if none has two seeds.

    The first search's method is the baseline. Keys are as in `results.to_json`, except that seed names all
    seeds, problems holds only names, and data of a single search (ledger, bank) are left out.
    """
    groups: dict[tuple, list[SearchResult]] = {}
    for result in results:
        team = tuple(sorted(result.models.items()))
        groups.setdefault((result.method, team, comparison_key(result)), []).append(result)
    if max(map(len, groups.values()), default=1) == 1:
        return []
    all_groups = list(groups.values())
    return [_row(group, _baseline(group, all_groups)) for group in all_groups]


def _baseline(group: Sequence[SearchResult], groups: Sequence[Sequence[SearchResult]]):
    """Searches of the baseline to compare with; None if there are none, and for the baseline itself."""
    method = groups[0][0].method
    if group[0].method == method:
        return None
    same = (
        other
        for other in groups
        if other[0].method == method and comparison_key(other[0]) == comparison_key(group[0])
    )
    return next(same, None)


def _row(group: Sequence[SearchResult], baseline: Sequence[SearchResult] | None) -> dict[str, Any]:
    measure, problems = group[0].measure, _problems(group)
    means, curve = search_metrics.means(problems, measure), search_metrics.progress(problems, measure)
    against = {}
    if baseline:
        differences = search_metrics.differences(problems, _problems(baseline), measure)
        metrics = {name: difference._asdict() for name, difference in differences.items()}
        against = {"method": baseline[0].method, "seed": _seeds(baseline), "metrics": metrics}
    return {
        "method": group[0].method,
        "task": group[0].task,
        "seed": _seeds(group),
        "models": group[0].models,
        "measure": measure,
        "problems": list(dict.fromkeys(problem.item for problem in problems)),
        "metrics": {
            category: {name: mean._asdict() for name, mean in row.items()} for category, row in means.items()
        },
        "progress": [{"executed": executed} | mean._asdict() for executed, mean in curve],
        "against": against,
    }


def _problems(group: Sequence[SearchResult]) -> list[search_metrics.ItemResult]:
    return [problem for result in group for problem in result.problems]


def _seeds(group: Sequence[SearchResult]) -> str:
    return ", ".join(str(result.seed) for result in group)
