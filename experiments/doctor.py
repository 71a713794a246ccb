"""Check whether a config is ready for a long training: one line per check, ok or what to change.

`python -m experiments.doctor --config=configs/coding.py` lets the team answer a few problems, and checks the
programs, reward, tokenizers, exports and machine that a training would use. Exit code: 1 if a check fails,
else 0. See docs/doctor.md.
"""

import json
import time
from collections import Counter

from absl import flags

from jaxmarl_llm.cli import entry


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config()
    flags.DEFINE_integer("problems", 2, "Most problems that the team answers.", lower_bound=1)
    flags.DEFINE_integer("tokens", 64, "Most tokens of a completion.", lower_bound=2)
    flags.DEFINE_enum("only", "", ["", "data"], "data: look at the problems alone and list their neighbours.")
    flags.DEFINE_bool("json", False, "Print one JSON list instead of lines.")


def main(argv) -> int:
    """Print the checks; 1 if one of them fails."""
    entry.refuse_arguments(argv)
    args, start, results = flags.FLAGS, time.perf_counter(), []
    if not args.json:
        print(f"examining {flags.FLAGS['config'].config_filename}", flush=True)
    from jaxmarl_llm.analysis.doctor import data, examination  # import JAX: --help does not wait for it

    neighbours = {}
    if args.only == "data":
        checked, neighbours = examination.examine_data(args.config)
    else:
        checked = examination.examine(args.config, args.problems, args.tokens)
    for result in checked:
        results.append(result)
        if not args.json:
            first, *more = result.sentence.split("\n")
            print(f"{result.status:<8}{result.name:<25}{first}", flush=True)
            print("".join(f"        | {line}\n" for line in more), end="", flush=True)
    counts = Counter(result.status for result in results)
    if args.json:
        print(json.dumps([result._asdict() for result in results], indent=2))
    else:
        counted = ", ".join(f"{number} {status}" for status, number in counts.items())
        print(f"{counted}; {time.perf_counter() - start:.0f} s", *data.table(neighbours), sep="\n")
    return int(counts["fail"] > 0)


if __name__ == "__main__":
    define_flags()
    entry.run(main)
