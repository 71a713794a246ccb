"""All systems of this project: what each one is, what was published, what was measured here, how to run it.

List:    python -m experiments.zoo
One:     python -m experiments.zoo --row=maporl            (--smoke: its form that takes seconds)
All:     python -m experiments.zoo --smoke --workdir=runs/zoo
Checks:  python -m experiments.zoo --check
Page:    docs/zoo.md, written by `make zoo_page` from these rows

To add a system, add a `Row` to one of the files below (`jaxmarl_llm.config.zoo` explains its fields), or a
new file of rows to `FAMILIES`, and write the page again. Every number of ours must be in a page, with its
interval.
"""

from jaxmarl_llm.config.files import experiment

# Titles of the page, and the files with their rows.
FAMILIES = {
    "Credit for a shared reward": experiment("zoo_credit").ROWS,
    "Texts that agents read": experiment("zoo_text").ROWS,
    "Routes, tools and worlds": experiment("zoo_worlds").ROWS,
    "Rounds of programs and searches": experiment("zoo_programs").ROWS,
    "Logits and weights": experiment("zoo_models").ROWS,
}
ROWS = {name: row for rows in FAMILIES.values() for name, row in rows.items()}
