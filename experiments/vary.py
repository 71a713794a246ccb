"""Compare several values of one config field on the same problems, paired by problem.

Command: python -m experiments.vary --config=configs/commits.py:study,rebuilder --workdir=runs/examples \\
           --field=commits.examples --values=0,1,3 --samples=3

Evaluates the config's team once for every value, each in its own process (`experiments.evaluate`). Prints
every score of sampled and greedy answers with its 95 % interval, and its difference to the first value's
score with the interval of the bootstrap over problems. An interval that contains 0 shows nothing. vary.json
and vary.md in the workdir have both. If it is stopped, the same command continues: what is evaluated is not
evaluated again.
"""

import json
import math
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

from jaxmarl_llm import transcripts
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import ConfigDict, sweeps, validate
from jaxmarl_llm.config.options import leaves, no_such_field
from jaxmarl_llm.runs.results import run
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics.bootstrap import interval

RESULT = "evaluation.json"
TOTAL = "total"
MODES = ("sampled", "greedy")


def command(
    config: str, shared: Sequence[str], field: str, value: str, out: pathlib.Path, samples: int
) -> list[str]:
    """The command that evaluates a value."""
    more = [f"--samples={samples}"] if samples else []
    own = [f"--config={config}", *shared, f"--config.{field}={value}", f"--out={out}"]
    return [sys.executable, "-m", f"{__package__}.evaluate", *own, *more]


def path_of(workdir: pathlib.Path, value: str) -> pathlib.Path:
    """The result file of a value; every value has its own folder."""
    return workdir / value.replace("%", "%25").replace("/", "%2F") / RESULT


def scores(path: pathlib.Path, mode: str = MODES[0]) -> dict[str, dict[str, float]]:
    """Means of every part and the total over a mode's last answers to each problem, times 100.

    {name: {problem: mean}}. With several turns the last one counts, as in `experiments.evaluate`.
    """
    held: dict[str, dict[str, list[float]]] = {}
    folder = path.with_suffix("") / mode
    actions = transcripts.read(folder, transcripts.steps(folder)[-1])
    continued = {action.follows for action in actions}
    for action in (action for i, action in enumerate(actions) if i not in continued):
        for name, value in {**action.parts, TOTAL: action.total}.items():
            if value is not None:
                held.setdefault(name, {}).setdefault(action.item, []).append(100 * value)
    return {name: {item: float(np.mean(own)) for item, own in items.items()} for name, items in held.items()}


def compared(by_value: Mapping[str, Mapping[str, Mapping[str, float]]], mode: str = MODES[0]) -> list[dict]:
    """A row per score and value of one mode: mean, difference to the first value, both with interval ends.

    Differences are paired, over the problems that have the score at both values; problems are resampled.
    """
    first, *_ = by_value
    rows = []
    for name in by_value[first]:
        for value, of_value in by_value.items():
            own, base = of_value.get(name, {}), by_value[first][name]
            both = [item for item in base if item in own]
            change = interval([own[item] - base[item] for item in both]) if both and value != first else None
            rows.append({"score": name, "mode": mode, "value": value, "problems": len(own)}
                        | _ends("", interval(list(own.values())))
                        | (_ends("difference_", change) if change else {}))  # fmt: skip
    return rows


def unchanged(by_mode: Mapping[str, Mapping[str, Mapping]]) -> bool:
    """Whether all values have the same scores in every problem; of each mode, value and score, as `scores`."""
    for by_value in by_mode.values():
        first, *others = by_value.values()
        if any(other != first for other in others):
            return False
    return True


def _ends(prefix: str, ends) -> dict[str, float | None]:
    return {f"{prefix}{k}": float(x) if math.isfinite(x) else None for k, x in ends._asdict().items()}


def table(rows: Sequence[Mapping], field: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """Lines and headers."""
    lines = [
        (row["score"], row["mode"], row["value"], _shown(row, ""), _shown(row, "difference_", "+"))
        for row in rows
    ]  # fmt: skip
    return lines, ["score, times 100", "answers", field, "mean, 95 %", "difference to the first, 95 %"]


def _shown(row: Mapping, prefix: str, sign: str = "") -> str:
    numbers = [row.get(f"{prefix}{name}") for name in ("mean", "low", "high")]
    if numbers[0] is None:
        return ""
    mean, *ends = [f"{number:{sign}.1f}" for number in numbers if number is not None]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def check_values(config: str, shared: Sequence[str], field: str, values: Sequence[str]) -> None:
    """Check the config at every value before the first one is evaluated.

    Args:
      config: as given to ``--config``. shared: the flags that change other fields of it.

    Raises:
      UserError: a value of another type than the field, or one that the config cannot have.
    """
    configs = {}
    for value in values:
        name, flag = f"{field}={value}", f"--config.{field}={value}"
        try:
            configs[name] = _parsed([f"--config={config}", *shared, flag])
        except (flags.Error, TypeError, ValueError) as error:
            reason = str(error).removeprefix(f"flag {flag}: ")
            raise UserError(f"--values={','.join(values)}: {name} cannot be used: {reason}") from error
        validate(configs[name], f"the config with {name}")
    from jaxmarl_llm.factory import user_code  # imports JAX

    user_code.check_all(configs)


def _parsed(own: Sequence[str]) -> ConfigDict:
    """The config of other flags than those of this process."""
    values, argv = flags.FlagValues(), sys.argv
    entry.define_config(flag_values=values)
    sys.argv = [argv[0], *own]  # where ml_collections looks for the fields that flags change
    try:
        values(sys.argv)
    finally:
        sys.argv = argv
    return values["config"].value


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config()
    flags.DEFINE_string("workdir", None, "Folder with a folder per value.", required=True)
    flags.DEFINE_string("field", None, "The field of the config, such as commits.examples.", required=True)
    flags.DEFINE_list(
        "values",
        None,
        "Its values, with commas between them; the first is compared with. A value that has commas itself "
        "stands in double quotes.",
        required=True,
    )
    flags.DEFINE_integer("samples", 0, "Answers per problem; 0: as the config says.", lower_bound=0)


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args, flag = flags.FLAGS, flags.FLAGS["config"]
    if args.field not in (known := list(leaves(args.config))):
        raise UserError(f"--field={args.field}: {no_such_field(args.field, known, {})}")
    if len(args.values) < 2 or len(set(args.values)) < len(args.values):
        raise UserError(f"--values={','.join(args.values)}: allowed are two or more that differ")
    workdir = pathlib.Path(args.workdir)
    files.ensure_writable(workdir / "vary.json", "give another --workdir")
    shared = sweeps.as_flags(flag.override_values)
    check_values(flag.config_filename, shared, args.field, args.values)
    paths = {value: path_of(workdir, value) for value in args.values}
    run({
        path: command(flag.config_filename, shared, args.field, value, path, args.samples)
        for value, path in paths.items()
    })  # fmt: skip
    by_mode = {mode: {value: scores(path, mode) for value, path in paths.items()} for mode in MODES}
    rows = [row for mode, by_value in by_mode.items() for row in compared(by_value, mode)]
    lines, headers = table(rows, args.field)
    title = f"{args.field} of {flag.config_filename}, {rows[0]['problems']} problems"
    console.table(lines, headers, f"\n{title}")
    if unchanged(by_mode):
        print(f"\nAll values have the same scores in every problem: evaluations may not read {args.field}.")
    files.atomic_write_text(workdir / "vary.json", json.dumps(rows, indent=1) + "\n")
    files.atomic_write_text(workdir / "vary.md", console.markdown(lines, headers, title) + "\n")
    print(f"vary.md and vary.json are in {workdir}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
