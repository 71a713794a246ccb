"""Rows of the zoo: rounds of programs and searches. Read by configs/zoo.py."""

from jaxmarl_llm.config.zoo import (
    GRADIENT,
    NOT_SHOWN,
    NOTHING_TO_COMPARE,
    SAME,
    SMOL,
    Published,
    Result,
    Row,
    evaluated,
    made,
    trained,
)

SECOND_HAND = "second-hand"
PYTHON, RIGHT = "52 Python problems", "right, %"
PAREVAL, GEOMEAN = "ParEval, serial", "geometric mean of speed-ups"
ABLATION = "python -m experiments.ablate --config=configs/lessonl.py --workdir=runs/ablation"
SCRIPTED = "python -m experiments.ablate --config=configs/lessonl.py:scripted --workdir=runs/scripted0"
EXPERIENCE = "python -m benchmarks.experience --workdir=runs/experience --seeds 0 1 2 3 4 5 6 7 8 9"
EXPERIENCE_MODEL = (
    "python -m benchmarks.experience --workdir=runs/experience_model --model --seeds 0 "
    '--memory=runs/experience/seed0 --source="python[::4]" --turns 2 --tokens 96 --ways none random cosine'
)
MAGRPO, PLANS = "--config.train.system=magrpo", "--config.search.plans=2"
DIFFERS = "one run of a model that seldom writes a right program, Python in place of C++"


def default_model(after: str, difference: str, before: str = "13.5 [5.77, 23.1]", **own) -> Result:
    """A row of the default model's table in docs/lessonl.md, compared with repeated sampling."""
    rest = {"baseline": f"repeated sampling {before}", "budget": "12 programs a problem, both"} | own
    return Result(
        model=SMOL, data=PYTHON, metric=RIGHT, before="3.85 [0.00, 9.62], one program", after=after,
        interval=f"difference {difference}, over the problems", seeds="0", command=ABLATION, page="lessonl.md",
        sign=NOT_SHOWN, **rest,
    )  # fmt: skip


def rounds(title: str, source: str, how: str, protocol: str, **own) -> Row:
    """Another way to write programs in rounds; nothing is trained."""
    flags = (MAGRPO, *((PLANS,) if protocol == "mapcoder" else ()), f"--config.train.protocol={protocol}")
    rest = {"differs": DIFFERS, "level": "text"} | own
    return Row(
        title=title, source=source, trained="nobody", protocol=how, credit="none", loss="none",
        page="lessonl.md#what-it-does", test="unit/protocols/test_baselines.py",
        run=(evaluated("lessonl.py", *flags),), smoke=(evaluated("lessonl.py:smoke", *flags),),
        covers=(f"train.protocol={protocol}",), **rest,
    )  # fmt: skip


ROWS = {
    "lessonl": Row(
        title="LessonL", source="arXiv 2505.23946", trained="nobody", level="text",
        protocol="rounds of programs, each with a lesson; a bank's best lessons stand in the next prompts",
        credit="a lesson's benefit, by the programs written under it", loss="none",
        page="lessonl.md#what-it-does", test="unit/systems/test_lessonl.py", covers=("train.protocol=lessonl",),
        run=(evaluated("lessonl.py"),), smoke=(evaluated("lessonl.py:smoke"),),
        published=Published(
            "DeepSeek-Coder-7B, Qwen2.5-Coder-7B and 14B", PAREVAL, GEOMEAN, "2.16", "the same without lessons 1.95",
            SECOND_HAND,
        ),
        ours=(
            default_model("25.0 [13.5, 36.5]", "+11.5 [0.00, 23.1], p 0.11"),
            Result(
                "a scripted author", PYTHON, GEOMEAN, "1.10 [1.07, 1.15], one program", "5.21 [4.57, 5.95]",
                "without lessons 2.30 [2.04, 2.59]", "ratio 2.27 [1.96, 2.62], p <0.001, over the problems", "0, 1, 2",
                "12 programs a problem, both", SCRIPTED, "lessonl.md", SAME,
            ),
        ),
        differs="what is shown is of a scripted author, who knows rewrites and follows lessons; with a model that "
        "seldom writes a right program it is not shown",
    ),
    "experience": Row(
        title="Experiential Co-Learning", source="arXiv 2312.17025", trained="nobody", level="text",
        protocol="an instructor says what to change, an assistant writes the next version; both read examples of "
        "other problems",
        credit="a shortcut's gain: what running its later version gave, less its earlier one", loss="none",
        page="experience.md", test="unit/memory/test_shortcuts.py", covers=("train.protocol=experience",),
        run=(evaluated("experience.py"),), smoke=(evaluated("experience.py:smoke"),),
        published=Published(
            "GPT-3.5", "SRDD, 1200 descriptions of software", "quality", ".7304", "ChatDev .4267", SECOND_HAND
        ),
        ours=(
            Result(
                "a scripted author", PYTHON, GEOMEAN, "1.78 [1.64, 1.94], no examples",
                "2.48 [2.25, 2.74], cosine, the default", "no examples 1.78 [1.64, 1.94]",
                "ratio to no examples 1.39 [1.24, 1.58], at as many programs 1.27 [1.21, 1.35]; to random examples "
                "1.09 [0.97, 1.22], not shown; over the problems",
                "0 to 9", "4 versions a problem, all; 16 more fill the memory; as many: the better of all 20",
                EXPERIENCE, "experience.md", SAME,
            ),
            Result(
                SMOL, "13 Python problems", RIGHT, "15.4 [0, 38.5], no examples", "7.7 [0, 23.1]",
                "random examples 23.1 [0, 46.2]", "ratio of the speed-ups 1.00 [1.00, 1.00], over the problems", "0",
                "2 versions a problem, all", EXPERIENCE_MODEL, "experience.md", NOT_SHOWN,
            ),
        ),
        differs="versions are worth what running them gave; the author is scripted, and made so that an example of "
        "the same technique helps",
    ),
    "lessonl_learning": Row(
        title="Learning from lessons", source="ours, after arXiv 2505.23946", trained="every agent", level="text",
        protocol="LessonL, chains that are dealt different lessons",
        credit="mean reward of the programs written under a lesson less that of those without it",
        loss=GRADIENT, page="lessonl.md#learning-from-lessons",
        test="training/test_lock_run.py", covers=("train.system=lessonl",),
        run=(trained("lock.py"),), smoke=(trained("lessonl.py:train,generation,smoke"),),
        ours=(
            Result(
                "two layers, random at first", "a lock, a script as partner", "worth of lessons, mean reward",
                "0.04, 0.02, 0.01", "0.31, 0.31, 0.21", "the most that it can be 0.33",
                "± 0.02 each, a standard error over the lessons", "0, 1, 2", "300 iterations",
                "python -m experiments.train --config=configs/lock.py --config.seed=0 --workdir=runs/lock/seed0",
                "lessonl.md", NOTHING_TO_COMPARE,
            ),
            Result(
                SMOL, "starter, the easiest", "worth of lessons, share of the tests", "-0.07, -0.08, -0.06",
                "-0.16, -0.04, -0.22", "no lessons 0", "± 0.09, 0.05, 0.08, standard errors", "0, 1, 2",
                "30 iterations of eight chains",
                "python -m experiments.train --config=configs/lessonl.py:train,generation --config.seed=0 "
                "--workdir=runs/lessons/seed0",
                "lessonl.md", NOT_SHOWN,
            ),
        ),
        differs="the original trains nothing",
    ),
    "repeated": rounds(
        "Repeated sampling", "baseline of arXiv 2505.23946", "the same prompt again; the best program counts",
        "repeated", level="none",
        published=Published(
            "DeepSeek-Coder-7B, Qwen2.5-Coder-7B and 14B", PAREVAL, GEOMEAN, "1.95", "one program of the 14B 1.60",
            SECOND_HAND,
        ),
        ours=(
            default_model(
                "13.5 [5.77, 23.1]", "of one program to these -9.62 [-19.2, -1.92], p 0.13",
                baseline="one program 3.85 [0.00, 9.62]", budget="12 programs a problem; the other 1",
            ),
        ),
    ),
    "reflexion": rounds(
        "Reflexion", "arXiv 2303.11366", "a program, what came of it, a reflection, and again", "reflexion",
        level="none",
        published=Published(
            "Qwen2.5-Coder-14B", PAREVAL, GEOMEAN, known_from="as a rival in arXiv 2505.23946; its row was not read"
        ),
        ours=(default_model("17.3 [7.69, 26.9]", "+3.85 [-7.69, 15.4], p 0.75"),),
    ),
    "mapcoder": rounds(
        "MapCoder", "arXiv 2405.11403", "plans, a program for each, repairs", "mapcoder",
        published=Published(
            "Qwen2.5-Coder-14B", PAREVAL, GEOMEAN, "1.85", "one program 1.60", f"{SECOND_HAND}, in 2505.23946"
        ),
        ours=(
            default_model(
                "26.9 [15.4, 40.4], an earlier run", "+11.5 [-1.92, 25.0], p 0.18", "15.4",
            ),
        ),
    ),
    "mixture": rounds(
        "Mixture of agents", "arXiv 2406.04692", "proposals in layers, each reads those of the layer before", "mixture",
        published=Published(
            "three proposers, GPT-4o as aggregator", PAREVAL, GEOMEAN, "1.76", "GPT-4o alone 1.72",
            f"{SECOND_HAND}, in 2505.23946",
        ),
        ours=(default_model("13.5 [5.77, 23.1], an earlier run", "-1.92 [-9.62, 3.85], p 1.00", "15.4"),),
    ),
    "qstar": Row(
        title="Q*", source="arXiv 2406.14283", trained="a value model; the writer stays as it is", level="none",
        protocol="best-first search over the lines of an answer", credit="fitted Q, best roll-out, or completions",
        loss="squared error of Q", page="qstar.md", test="unit/protocols/test_step_search.py",
        covers=("train.protocol=qstar",),
        run=(
            made("values", config="qstar.py", to="values"),
            "ablate --config=configs/qstar.py:model={folder}/values --workdir={folder}/comparison",
        ),
        smoke=(
            made("values", config="qstar.py:smoke", to="values"),
            evaluated("qstar.py:smoke,model={folder}/values"),
        ),
        published=Published(
            "Llama-2-7B; DeepSeek-Math-7B; CodeQwen1.5-7B-Chat", "GSM8K; MATH; MBPP", "accuracy, %",
            "80.8; 55.4; 77.0", known_from=SECOND_HAND,
        ),
        ours=(
            Result(
                "SmolLM2-135M-Instruct", "45 Python problems", "pass@1, %", "4.44 [0.00, 11.1], one answer",
                "11.1 [2.22, 20.0]", "whole answers 11.1 [2.22, 20.0]",
                "difference +0.00 [-11.1, 11.1] (p 1.00), over the problems", "0",
                "4 programs a problem at most; 480 tokens drawn, whole answers 310",
                'python -m experiments.ablate --config=configs/qstar.py:model=runs/values --config.task.source='
                '"starter[::4]" --config.task.test_source="starter[::5]" --config.qstar.expansions=16 '
                '--config.qstar.depth=12 --config.search.problems=23 --members="best of N,random order,qstar" '
                "--workdir=runs/qstar",
                "qstar.md", NOT_SHOWN,
            ),
        ),
        differs="h is Q of the line that led to a text; whole answers are the roll-outs; the values explain nothing of "
        "their labels",
    ),
}  # fmt: skip
