"""Run a search for programs with one method: rounds for a batch of problems at a time, saved when they end.

Not a command: `experiments.evaluate` runs one search, `experiments.ablate` several. The folder of a search
holds

- ``config.json``
- ``journal/<batch>/``: completions and measurements, step by step; a stopped search resumes from them
- ``tests/<problem>/``: completions of the agent that writes tests, if any
- ``results.json``: see `jaxmarl_llm.analysis.search.results`
- ``lessons/`` or ``experience/``: what is kept for later problems after all batches, if anything
"""

import contextlib
import dataclasses
import functools
import pathlib
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from jaxmarl_llm import checkpoint, resume_checks, saved_agents
from jaxmarl_llm.analysis.search import ledger
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search.ledger import Ledger
from jaxmarl_llm.analysis.search.metrics import ItemResult
from jaxmarl_llm.analysis.search.results import SearchResult
from jaxmarl_llm.config import experience, programs, qstar
from jaxmarl_llm.config.team import check_read
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.factory import (
    experts,
    inputs,
    protocols,
    randomness,
    rollouts,
    step_search,
    tasks,
    teams,
    training,
)
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.memory import Item, Relevance
from jaxmarl_llm.protocols import item_name
from jaxmarl_llm.protocols.lessons.bank import Entry
from jaxmarl_llm.protocols.single import Single
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.runs import journals, lock
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import compile_times, console, distributed, files, formats
from jaxmarl_llm.utils.errors import UserError

MEASURES = dict(zip((*programs.KINDS, "reasoning"), ("speed-up", "tests", "answers"), strict=True))
RESULTS = "results.json"


@dataclasses.dataclass(frozen=True)
class Searchers:
    """What searches share: the team with its parameters, the executor, and the relevance of lessons.

    step: number of iterations that the team was trained for.
    lessons: lessons or experience from these iterations, if kept for later problems (``lessons.bank=run``,
      ``experience.bank=run``).
    """

    team: Team
    trainables: Sequence[Any]
    executor: Executor
    relevance: Relevance | None
    step: int = 0
    lessons: Sequence[Entry] | Sequence[Item] = ()


@contextlib.contextmanager
def open_searchers(config, workdir="", which=checkpoint.BEST) -> Iterator[Searchers]:
    """Build the `Searchers` of a config, untrained or from a checkpoint of the run in ``workdir``."""
    check_read(config, workdir)
    with tasks.build_executor(config) as executor:
        items = tasks.build_task(config, executor, "test").items
        team = teams.build_team(config, speakers=experts.build(config, items, workdir))
        meta, lessons = {"step": 0}, ()
        if workdir:
            team, meta = saved_agents.restore_team(workdir, which, team)
            lessons = protocols.saved_memory(config, workdir, meta["step"], team)
        trainables = [member.trainable for member in team.members]
        relevance = protocols.relevant(config, team)
        yield Searchers(team, trainables, executor, relevance, meta["step"], lessons)


def search(config, folder, by: Searchers, task, method: str = "", like: Sequence = ()) -> SearchResult:
    """Search with a team for the best program of every problem of the task, and measure these again.

    For questions, the most frequent answer is chosen.

    Args:
      config: the protocol, its number of rounds (one chain per problem), and how tokens are sampled.
      folder: folder of this search; steps that an earlier process saved there are not repeated.
      by: the team that searches, with those of its agents that the task has.
      task: see `jaxmarl_llm.tasks.programs.task`.
      method: name of the method in tables; '' for the protocol's name.
      like: folders of other searches by the same team; equal first steps are taken from there.

    Raises:
      ValueError: if the folder belongs to another search, and what the task's judge raises.
    """
    if qstar.of(config):
        step_search.check(config, by.team, task)
    folder = pathlib.Path(folder)
    with lock.held(folder, "wait for it, or give this search another folder"):
        return _search(config, folder, by, task, method, like)


def _search(config, folder: pathlib.Path, by: Searchers, task, method: str, like: Sequence) -> SearchResult:
    """`search`, while the folder is locked."""
    size = config.search.problems
    claim(folder, config, by.step)
    now = inputs.of_run(config, {"test": task}, by.team)
    inputs.check(folder, now, advice="give this search another folder")
    if distributed.is_main():
        inputs.keep(folder, now)
    memory = protocols.memory(config, task, by.lessons)
    make = maker(config, by)
    problems, bank, cost = [], [], ledger.Ledger()
    shown = console.ProgressDisplay(len(task.items), label="problems", compiles=compile_times.of_process())
    with shown as display:
        for n, start in enumerate(range(0, len(task.items), size)):
            ids = range(start, min(start + size, len(task.items)))
            place = pathlib.Path("journal") / f"{n:04d}"
            remember = functools.partial(journals.known, task, ids)
            places = [pathlib.Path(each) / place for each in (folder, *like)]
            journal = Journal(places[0], places[1:], remember)
            lessons = memory if protocols.remembers(config) else ()
            batch_task, test_cost = with_tests(config, by, task, ids, folder, like)
            protocol = make(batch_task, tuple(lessons))
            key = jax.random.fold_in(randomness.stream(config, "search"), n)
            forest = rollout(config, protocol, by, batch_task, ids, key, journal)
            batch_results, batch_cost = results_of(config, task, protocol, forest, journal)
            problems += batch_results
            cost += batch_cost + test_cost
            bank += lesson_rows(protocol, forest)
            if protocols.remembers(config):
                memory.add(forest)
            display.print(batch_line(n, batch_results, len(problems), len(task.items)))
            display.update(len(problems), {}, repeated=not journal.added)
    if protocols.remembers(config):
        with memory.kept_in(folder, 1):
            memory.save(len(problems))
    speakers = config.team.agents if qstar.of(config) or experience.of(config) else task.agents
    models = {agent: by.team[agent].model_name for agent in speakers}
    fields = (
        method or config.train.protocol,
        config.task.kind,
        config.seed,
        models,
        MEASURES[config.task.kind],
    )
    prices = {name: tuple(numbers) for name, *numbers in config.search.prices}
    result = SearchResult(*fields, tuple(problems), cost.as_dict(models, prices or None), tuple(bank))
    search_results.write([result], folder / RESULTS)
    return result


def results_of(
    config, task, protocol, forest: Forest, journal: Journal
) -> tuple[tuple[ItemResult, ...], Ledger]:
    """The results of a batch of problems, and the costs of the batch."""
    choose = search_results.voted if config.task.kind == "reasoning" else search_results.best_of
    reads, held_out = getattr(protocol, "reads", ()), []

    def measure(items: Sequence, texts: Sequence[str]) -> list:
        held_out.extend(remeasured(task, journal, items, texts))
        return held_out

    results = search_results.item_results(forest, measure, choose, config.search.by_budget, reads)
    values = [tokens for *_, tokens in reads]
    return results, ledger.forest_costs(forest, held_out, values, config.team.agents[-1])


def maker(config, by: Searchers) -> Callable[..., Any]:
    """(task, lessons of earlier problems) -> the protocol of a batch of problems."""
    if not qstar.of(config):
        return lambda task, lessons: protocols.rounds(config, task, by.relevance, 1, lessons, ends=True)
    values = step_search.values_of(config, by.team)
    return lambda task, lessons: step_search.build(config, task, values)


def claim(folder: pathlib.Path, config, step: int, free: Sequence[str] = ()) -> None:
    """Reserve the folder for a search with this config and a team trained for ``step`` iterations.

    ``free``: fields whose values may differ from before. If the folder belongs to another search, ValueError
    names the differences (`resume_checks.check_same_run`).
    """
    path, current = folder / "config.json", {"config": config.to_dict(), "step": step}
    if path.is_file():
        saved = formats.read(path)
        before = config.copy_and_resolve_references()
        for section, name in (field.split(".") for field in free):
            before[section][name] = saved["config"][section].get(name, before[section][name])
        try:
            resume_checks.check_same_run(saved["config"], before.to_dict())
        except ValueError as error:
            raise UserError(f"{folder}: {error}") from error
        if saved["step"] != step:
            raise UserError(
                f"{folder}: the search in this folder is of the team after {saved['step']} iterations, "
                f"this one after {step}; give it another folder"
            )
    if distributed.is_main():
        formats.write(path, current)


def with_tests(config, by: Searchers, task, ids, folder: pathlib.Path, like: Sequence = ()):
    """The task with the tests used to search a batch of its problems, and the cost of writing them.

    The first agent writes tests now, unless ``task.tests`` is 'given'. They are kept in the search's folder,
    and taken from the folders in ``like`` if they exist there. Each problem has its own request
    with its own random key, so all methods of an ablation have the same tests for any batch size.
    """
    if config.task.tests == "given":
        return task, ledger.Ledger()
    author = task.of_agents(task.agents[:1])  # other agents must not change the rollout
    protocol, answers, cost = Single(task.agents[0], task.test_prompt), {}, ledger.Ledger()
    for i in ids:
        name = item_name(task.items[i])
        place = pathlib.Path("tests") / urllib.parse.quote(name, safe="", errors="surrogatepass")
        places = [pathlib.Path(each) / place for each in (folder, *like)]
        key = jax.random.fold_in(
            randomness.stream(config, "tests"), zlib.crc32(name.encode("utf-8", "surrogatepass"))
        )
        forest = rollout(config, protocol, by, author, [i], key, Journal(places[0], places[1:]))
        answers[i] = forest.turns[0].text
        cost += ledger.forest_costs(forest)
    return task.tested(answers), cost


def rollout(config, protocol, by: Searchers, task, ids, key, journal: Journal) -> Forest:
    """Run the rounds of one batch of problems."""
    scorer = TaskScorer.of_team(task, by.team, "aligned")
    params = training.sampling_params(config)
    options = dict(
        params=step_search.sampling(config, params) if qstar.of(config) else params,
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts=config.sampling.long_prompts,
    )
    return rollouts.run(protocol, by.team, by.trainables, scorer, list(ids), key, journal=journal, **options)


def remeasured(task, journal: Journal, items: Sequence, texts: Sequence[str]) -> list:
    """Outcomes of programs on held-out inputs, also saved in the journal."""
    request = ([item.task_id for item in items], list(texts))
    outcomes = journal.once("held_out", request, lambda: task.remeasure(items, texts))
    task.know(items, outcomes, held_out=True)
    return outcomes


def lesson_rows(protocol, forest: Forest) -> list[dict]:
    """The lessons of a batch as JSON data, see `results.bank_rows`; [] for methods without lessons."""
    if not hasattr(protocol, "banking"):
        return []
    banks = protocol.banking.banks(forest).values()
    return search_results.bank_rows([entry for bank in banks for entry in bank if entry.id >= 0], forest)


def batch_line(batch: int, results: Sequence[ItemResult], done: int, of: int) -> str:
    """The results of a batch as one line of text."""
    right = sum(result.held_out.status == "ok" for result in results)
    best = max(results, key=lambda result: result.held_out.score)
    text = f"{right} of {len(results)} programs right, best {best.held_out.score:.2f} ({best.item})"
    if missing := sum(result.tests == "fallback" for result in results):
        text += f", {missing} searched by given tests as none were written"
    return f"batch {batch + 1}: {text}; {done} of {of} problems"


def show(results: Sequence[SearchResult], path: pathlib.Path, title: str) -> list[pathlib.Path]:
    """Print the tables of some searches, the baseline first; write them as JSON, Markdown and a page.

    ``path`` is the path of the JSON file; the others are beside it.
    """
    # Imported here because they import matplotlib: searches start without waiting for it.
    from jaxmarl_llm.analysis.report import budget_tables, search_page, search_tables

    data = search_results.to_json(results)
    tables = [*search_tables.summaries(data), search_tables.against(data)]
    tables = [*(table for table in tables if table is not None), *budget_tables.tables(data)]
    for table in (*tables, *search_tables.by_category(data, intervals=False)):  # narrow enough for a console
        console.table(table.rows, table.headers, f"\n{table.title}")
    tables += search_tables.by_category(data)
    text = "\n".join(console.markdown(table.rows, table.headers, table.title) for table in tables)
    return [
        search_results.write(results, path),
        files.atomic_write_text(path.with_suffix(".md"), text),
        search_page.write(data, path.with_suffix(".html"), title),
    ]
