"""Searches of the scripted team of configs/lessonl.py on two problems."""

import dataclasses

from configs import lessonl
from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.factory import tasks

PROBLEMS = "python[:2]"
AGENTS, ROUNDS, BATCHES = 3, 3, 2
STEPS = 2 * ROUNDS - 1  # of a batch: programs, and lessons between them
FIELDS = {"task.test_source": PROBLEMS, "train.turns": ROUNDS, "search.problems": 1}


def config_of(**changes):
    config = lessonl.get_config("scripted")
    fields = FIELDS | {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(fields)
    return config


def run(folder, step=0, **changes):
    config = config_of(**changes)
    with search.open_searchers(config) as by:
        task = tasks.build_task(config, by.executor, "test")
        return search.search(config, folder, dataclasses.replace(by, step=step), task)


def text_of(folder):
    return (folder / search.RESULTS).read_text()
