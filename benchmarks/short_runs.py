"""Training runs of a few iterations in a temporary folder, to measure their time."""

import argparse
import importlib
import json
import pathlib
import tempfile

from ml_collections import config_dict

from experiments import train
from jaxmarl_llm.metrics import FILE_NAME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` and ``--iterations``."""
    parser.add_argument("--config", default="configs/coding.py", help="as of training, with its options")
    parser.add_argument("--iterations", type=int, default=4, help="that count, after one that does not (4)")


def make_config(name: str, iterations: int) -> config_dict.ConfigDict:
    """The config ``path/of/file.py:options``: ``iterations`` after the first one, without evaluation."""
    path, _, options = name.partition(":")
    config = importlib.import_module(path.removesuffix(".py").replace("/", ".")).get_config(options)
    config.train.steps = iterations + 1
    config.eval.before, config.eval.every, config.save.every = False, 0, iterations + 1
    config.task.eval_source = config.task.test_source = f"{config.task.source.partition('[')[0]}[:1]"
    return config


def run(config) -> list[dict]:
    """Train; returns the metrics of all iterations but the first, which compiles."""
    with tempfile.TemporaryDirectory() as folder:
        train.train(config, folder)
        lines = (pathlib.Path(folder) / FILE_NAME).read_text().splitlines()
    return [row for row in map(json.loads, lines) if "seconds" in row][1:]
