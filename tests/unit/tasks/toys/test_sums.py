"""tasks/toys/sums.py: problems of three splits, and the rewards of all programs that the tiny model writes."""

import itertools

import pytest

from configs import coding
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.factory import teams
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.split_overlap import check_disjoint
from jaxmarl_llm.tasks.toys import sums

HELPER, MAIN = "def aux(a, b):\n    return ", "def total(a, b):\n    return "


def test_four_problems_of_each_split():
    of_splits = {split: data_files.load_items("sums", split) for split in ("train", "validation", "test")}
    assert {split: [item.task_id for item in items] for split, items in of_splits.items()} == {
        "train": ["sums/apples", "sums/boats", "sums/coins", "sums/doors"],
        "validation": ["sums/eggs", "sums/flags", "sums/gates", "sums/hats"],
        "test": ["sums/keys", "sums/lamps", "sums/maps", "sums/nuts"],
    }
    assert data_files.load_items("sums[1:3]", "train") == of_splits["train"][1:3]
    for one, two in itertools.combinations(of_splits.values(), 2):
        check_disjoint(one, two)
    with pytest.raises(ValueError, match="'sums\\[9:\\]', split 'train' holds no problems"):
        data_files.load_items("sums[9:]", "train")


@pytest.mark.parametrize("aux, main, total", [
    (HELPER + "b", MAIN + "a + aux(a, b)", 4.0),  # what the runs find: all the reward there is
    (HELPER + "a + b", MAIN + "aux(a, b)", 4.0),
    (HELPER + "a * b", MAIN + "a + b", 2.5),  # the helper makes no difference
    (MAIN + "a", MAIN + "aux(a, b)", 1.1),  # no helper
    (HELPER + "a", HELPER + "b", 0.4),  # no main function
    ("", "", 0.0),
])
def test_rewards_by_hand(aux, main, total):
    (item, *_) = data_files.load_items("sums", "train")
    with Executor(1) as executor:
        (judgement,) = CodingTask([item], executor).judge([item], {"aux": [aux], "main": [main]})
    assert judgement.total == pytest.approx(total)


def test_the_model_reads_the_prompts_and_writes_the_lines():
    config = coding.get_config("toy")
    tokenizer = teams.load_model(config, "code-tiny").tokenizer
    assert len(sums.lines()) == 10
    for line in sums.lines():
        assert len(tokenizer.encode(line)) == 1
    for split in ("train", "validation", "test"):
        items = data_files.load_items("sums", split)
        task = CodingTask(items, None, prompts=config.task.prompts)
        lengths = [len(tokenizer.encode_chat(m)) for item in items for m in task.prompts(item).values()]
        assert max(lengths) <= config.sampling.max_prompt_tokens
