"""Let several trained agents write one answer together, and compare this with each agent alone.

  python -m experiments.together --workdirs=runs/x --together=mean_logits
  python -m experiments.together --workdirs=runs/a,runs/b --together=switch --value=head
  python -m experiments.together --workdirs=runs/x --together=switch --value=rollouts --every=line

The members are the agents of the run folders (or exported teams): adapters or copies of one base model. Only
a switch between lines or whole answers may use different models. Together they answer the test problems of
the first run, or of --config, as one agent, with fresh draws. docs/decoding.md has the equations. Prints
returns, tokens, forward passes and judged rollouts per answer, and writes them to --out as JSON, beside a
folder with every answer.
"""

import pathlib

from absl import flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.config.task import EVALUATED
from jaxmarl_llm.decoding import settings as settings_lib
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST

from .evaluate import cells

FIT = {"problems": "training problems", "samples": "answers of each member to each of them", "updates": "updates",
       "batch": "answers of each member in an update"}  # fmt: skip


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config(False, "Config file of the problems, by default that of the first run")
    flags.DEFINE_list(
        "workdirs", None, "Run folders or exported teams, with commas between them.", required=True
    )
    flags.DEFINE_list("agents", [], "Agents that are members, in this order; default: all of all folders.")
    flags.DEFINE_enum("step", LATEST, [LATEST, BEST], "State of each run.")
    flags.DEFINE_enum(
        "together", None, list(settings_lib.MODES), "How they choose what is written.", required=True
    )
    flags.DEFINE_list(
        "weights", [], "Of a mixture: a weight for each member, adding up to 1; default: equal ones."
    )
    flags.DEFINE_float(
        "plausible", 0.1, "Of a contrast: least probability of a token, as a share of the likeliest's."
    )
    flags.DEFINE_enum("value", "confidence", list(settings_lib.VALUES), "What a switch goes by.")
    flags.DEFINE_enum("every", "token", list(settings_lib.EVERY), "After what a switch may hand over.")
    flags.DEFINE_integer("candidates", 1, "Pieces that each member proposes.")
    flags.DEFINE_integer("rollouts", 2, "Roll-outs for the value of a candidate.")
    flags.DEFINE_integer("horizon", 0, "Longest roll-out in tokens; 0: a whole answer.")
    flags.DEFINE_enum("continue", "own", list(settings_lib.CONTINUE), "Who writes roll-outs.")
    flags.DEFINE_float("alpha", 0.0, "Weight of a member's KL from the mean of all, in reward per nat.")
    for name, what in FIT.items():
        flags.DEFINE_integer(f"fit_{name}", 0, f"Of --value=head: {what}; 0: the default.", lower_bound=0)
    flags.DEFINE_float("fit_lr", 0.0, "Of --value=head: learning rate; 0: the default.", lower_bound=0)
    flags.DEFINE_string(
        "heads", "", "Of --value=head: folder that keeps the heads; those that are there are taken."
    )
    flags.DEFINE_enum("split", "test", list(EVALUATED), "Problems to answer.")
    flags.DEFINE_integer("samples", 0, "Answers per problem; 0: as the config says.", lower_bound=0)
    flags.DEFINE_bool("alone", True, "Evaluate each member alone too.")
    flags.DEFINE_string("out", "", "JSON file to write; default: together.json in the first folder.")


def read_settings(args) -> settings_lib.Settings:
    """The settings that the flags give. UserError for impossible settings or those without effect."""
    weights = entry.numbers("weights", args.weights)
    names = ("plausible", "value", "every", "candidates", "rollouts", "horizon", "alpha")
    own = {name: args[name].value for name in names} | {"goes_on": args["continue"].value}
    settings = settings_lib.Settings(args.together, weights, **own)
    given = [n for n in ("weights", *names) if args[n].present] + ["goes_on"] * bool(args["continue"].present)
    settings_lib.check(settings, given)
    for name in (*(f"fit_{name}" for name in (*FIT, "lr")), "heads"):
        if args[name].present and (settings.mode, settings.value) != ("switch", "head"):
            raise UserError(f"--{name}={args[name].value} would do nothing: only --value=head is fitted")
    return settings


def show(report: dict) -> None:
    """Print returns and costs: a row for the members together and one for each member alone."""
    rows = []
    for name, own in {"together": report["together"], **report["alone"]}.items():
        returns = [text for mode in ("sampled", "greedy") for text in cells(own[mode]["scores"]["return"])]
        tokens = own["sampled"]["answer_tokens"]
        ledger = own.get("ledger", {"forward_passes": tokens, "drawn_tokens": tokens, "judged": 0})
        costs = (ledger["drawn_tokens"], ledger["forward_passes"], ledger["judged"])
        rows.append((name, *returns, f"{tokens:.1f}", *(f"{cost:.1f}" for cost in costs)))
    headers = ("0..100", "sampled", "95 %", "greedy", "95 %", "tokens", "drawn", "passes", "judged")
    title = f"{report['settings']['mode']}, on {report['problems']} {report['split']} problems, fresh draws; per answer"
    console.table(rows, headers, title)
    ledger = report["together"]["ledger"]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in ledger["shares"].items())
    print(f"tokens by member: {shares}; switches per answer: {ledger['switches']:.2f}")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    settings = read_settings(args)
    out = pathlib.Path(args.out or pathlib.Path(args.workdirs[0]) / "together.json")
    files.ensure_writable(out, "give --out=<file> in a folder that you may write to")
    print(f"reading {', '.join(args.workdirs)}", flush=True)
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm.evaluation import results
    from jaxmarl_llm.factory import members, together, value_heads

    configs = [run_folder.load_run(workdir) for workdir in args.workdirs]
    if args.config is not None:
        validate(args.config)
        refuse_seeds(args.config, "an evaluation")
    members.check_runs(args.workdirs, configs)
    own = {name: args[f"fit_{name}"].value for name in (*FIT, "lr") if args[f"fit_{name}"].value}
    by_mode, report = together.evaluate(
        configs[0],
        members.origins(args.workdirs, configs, args.agents),
        settings,
        args.step,
        answering=args.config,
        samples=args.samples,
        split=args.split,
        fit=value_heads.Fit(**own),
        heads=args.heads,
        alone=args.alone,
    )
    show(report)
    results.write(out, by_mode, report)
    print(f"written to {out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
