"""Draw the settings of a sweep with their final returns and intervals, best first, as a PNG.

  python -m experiments.ranking runs/game/sweep.json --out=ranking.png

The sweep's page has the same picture; this writes it to a file and needs only sweep.json.
"""

import pathlib

from absl import app, flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.utils import files


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("out", "", "Picture to write; default: ranking.png beside the file.")
    flags.FLAGS.set_gnu_getopt(True)  # flags may come after the file


def main(argv):
    """Command line entry."""
    if len(argv) != 2:
        raise app.UsageError("give the sweep.json of one sweep")
    from jaxmarl_llm.analysis.report import figures, sweep_ranking  # these import matplotlib

    source = pathlib.Path(argv[1])
    out = files.ensure_writable(
        flags.FLAGS.out or source.with_name("ranking.png"), "give --out=<picture> where you may write"
    )
    settings = sweep_ranking.read(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(figures.as_png(lambda: sweep_ranking.draw(settings)))
    print(f"written: {out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
