"""`benchmarks.fusion_halves`: its commands are those of the page, and its table is that of its reports."""

import json

import numpy as np
import pytest

from benchmarks import commands, fusion_halves
from configs import reasoning
from jaxmarl_llm.config import validate
from jaxmarl_llm.tasks.reasoning.generated import halves
from jaxmarl_llm.tasks.reasoning.load import load_items


def test_each_agent_learns_the_grades_that_are_called_its_half():
    for item in load_items("sums", "train"):
        (agent,) = halves(item)
        assert f"grade {item.grade}" in fusion_halves.HALVES[agent]


@pytest.mark.parametrize("smoke", [False, True])
def test_the_training_is_one_that_can_be_run(tmp_path, smoke):
    argv = fusion_halves.training(tmp_path, 2, smoke)
    config = reasoning.get_config()
    for flag in argv[4:]:
        if flag.startswith("--config."):
            name, value = flag.removeprefix("--config.").split("=")
            old = config.get_ref(name).get() if "." not in name else config[name.split(".")[0]][name.split(".")[1]]
            config.update_from_flattened_dict({name: value if isinstance(old, str) else type(old)(float(value))})
    validate(config)
    assert config.seed == 2 and argv[-1] == f"--workdir={tmp_path / 'team'}"


def test_only_the_weight_of_the_teachers_differs(tmp_path):
    (fused, out), (alone, other) = (fusion_halves.fusing(tmp_path, name, False) for name in fusion_halves.STUDENTS)
    assert [*fused[:-1], "--weight=0", f"--out={other}"] == alone and out != other


def written(folder, student, first):
    """A report of two texts of the first half and one of the second, of one byte, three and two."""
    rows = []
    for text, (group, size) in enumerate((("grade 1", 1), ("grade 3", 3), ("grade 2", 2))):
        for reader, nats in (("student", student), ("first", first)):
            rows.append(dict(text=text, group=group, reader=reader, bytes=size, nats=nats[text], student_nats=0.0))
    (folder / "fusion").mkdir(parents=True)
    (folder / "fusion" / "report_texts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_table_by_hand(tmp_path):
    for seed, more in ((0, 0.0), (1, 1.0)):
        written(tmp_path / f"{seed}" / "fused", [0.0, 1.0 + more, 3.0], [1.0, 1.0, 4.0])
        written(tmp_path / f"{seed}" / "texts_alone", [1.0, 2.0, 3.0], [1.0, 1.0, 4.0])
    made = [fusion_halves.read(tmp_path / f"{seed}") for seed in (0, 1)]
    assert list(made[0]) == ["first alone", "fused", "texts alone"]
    np.testing.assert_array_equal(made[0]["first alone"]["first"], [[1, 1], [1, 3]])
    headers, rows = fusion_halves.table(made[:1])
    by_name = {row[0]: row[1:] for row in rows}
    assert len(headers) == 5 and by_name["fused"] == ("0.250 [0.000, 0.333]", "1.500 [nan, nan]", "", "")
    assert by_name["texts alone"][2] == "-0.500 [-1.000, -0.333]"  # both texts: (0 + 1 - 1 - 2) / 4; each alone
    _, rows = fusion_halves.table(made)
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["fused"][0] == "0.375 [0.250, 0.500]"  # 1/4 and 2/4
    assert by_name["first alone"][3] == "-0.500 [-0.500, -0.500]"  # 3/2 less 4/2 with both seeds


def test_seeds_of_a_flag():
    assert commands.seeds("0,2") == [0, 2]
    with pytest.raises(ValueError, match="--seeds=0,x: allowed are whole numbers"):
        commands.seeds("0,x")
