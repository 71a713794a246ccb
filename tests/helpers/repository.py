"""Where the repository lies, for tests that read its files or start its commands."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
HELPERS = ROOT / "tests/helpers"
