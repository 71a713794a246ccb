"""Write docs/zoo.md from the rows: `make zoo_page`. No JAX."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from jaxmarl_llm.analysis.zoo.checks import counts
from jaxmarl_llm.config.zoo import NOT_FOUND, NOT_MEASURED, NOT_SHOWN, NOTHING_TO_COMPARE, Row
from jaxmarl_llm.utils.console import markdown

HEAD = f"""# The zoo

Every system of this project, what was published of it, and what was measured here. This page is written from
[configs/zoo.py](../configs/zoo.py) and the files that it names: `make zoo_page`.

```
python -m experiments.zoo                                   # the list
python -m experiments.zoo --row=maporl                      # runs a system
python -m experiments.zoo --row=maporl --smoke              # its form that takes seconds
python -m experiments.zoo --smoke --workdir=runs/zoo        # those of all systems, one after the other
python -m experiments.zoo --check                           # is a config, page, test or number missing
```

A smoke form proves that a system runs, and nothing about what it learns. A system that is finished in a `--workdir`
is not run again. To add a system, add a row: `Row` in [config/zoo.py](../jaxmarl_llm/config/zoo.py) says what it has.

How to read the tables:

- **{NOT_FOUND}**: no source that was read has it. Most published numbers are second-hand, from those who read the
  papers.
- **{NOT_MEASURED}**: no page reports a number of ours yet. **{NOT_SHOWN}**: there is one, and its interval, or its
  page's p or bound for several comparisons, does not tell the system from what it is compared with.
  **{NOTHING_TO_COMPARE}**: ours has a sign, and none was found to compare it with.
- An interval is of 95 % unless it says otherwise.
- Ours are of far smaller models and other problems than those published: a sign may be compared, a number may not.
- A system is what agents learn from, or the order in which they answer. Options of a loss (DAPO, GSPO, PPO's clip)
  are no rows: [howto.md](howto.md#algorithms-and-credit).
"""
KINDS = ("system", "trained", "protocol", "credit", "loss", "level")
PLACES = ("system", "source", "page", "test", "config", "smoke form")
PUBLISHED = ("system", "model", "data", "metric", "number", "baseline", "known from")
OURS = (
    "system",
    "model",
    "data",
    "metric",
    "before",
    "after",
    "compared with",
    "interval",
    "seeds",
    "budget",
)
OURS += ("same sign", "command")


def page(families: Mapping[str, Mapping[str, Row]]) -> str:
    """The page as Markdown: for every family its systems, published results, our results and differences."""
    rows = {name: row for own in families.values() for name, row in own.items()}
    missing = _names(rows, NOT_MEASURED)
    parts = [HEAD, f"{counts(rows)}.{f' Not measured are: {missing}.' if missing else ''}\n"]
    for title, own in families.items():
        parts += [f"## {title}\n", *_family(own)]
    return "\n".join(parts)


def _names(rows: Mapping[str, Row], state: str) -> str:
    return "; ".join(row.title for row in rows.values() if row.state == state)


def _family(rows: Mapping[str, Row]) -> list[str]:
    """The tables of a family, each with its heading line."""
    kinds = [(_title(n, r), r.trained, r.protocol, r.credit, r.loss, r.level) for n, r in rows.items()]
    places = [
        (r.title, r.source, f"[{r.page}]({r.page})", f"[{r.test}](../tests/{r.test})", *_configs(r))
        for r in rows.values()
    ]
    published = [
        (r.title, p.model, p.data, p.metric, p.number, p.baseline, p.known_from)
        for r in rows.values()
        for p in (r.published,)
    ]
    differs = [(r.title, r.state, r.differs) for r in rows.values()]
    return [
        markdown(kinds, KINDS),
        markdown(places, PLACES, "Where it is:"),
        markdown(published, PUBLISHED, "Published:"),
        markdown(list(_ours(rows)), OURS, "Ours:"),
        markdown(differs, ("system", "ours", "what differs"), "What differs:"),
    ]


def _title(name: str, row: Row) -> str:
    return f"{row.title} (`{name}`)"


def _configs(row: Row) -> tuple[str, str]:
    """The config files of a row and of its smoke run; a command without config file is given by its name."""
    return _of_commands(row.run), _of_commands(row.smoke)


def _of_commands(lines: Sequence[str]) -> str:
    named = []
    for line in lines:
        words = shlex.split(line)
        config = [word.removeprefix("--config=configs/") for word in words if word.startswith("--config=")]
        named.append(config[0].replace("={folder}/", "=") if config else words[0])
    return ", then ".join(dict.fromkeys(named))


def _ours(rows: Mapping[str, Row]) -> Iterable[Sequence[str]]:
    for row in rows.values():
        for r in row.ours:
            numbers = (r.before, r.after, r.baseline, r.interval, r.seeds, r.budget)
            where = f"`{r.command}`, [{r.page}]({r.page})"
            yield (row.title, r.model, r.data, r.metric, *numbers, r.sign, where)
        if not row.ours:
            yield (row.title, NOT_MEASURED, *("",) * (len(OURS) - 2))
