"""Rows of the zoo: teams that read each other's texts, and their rewards for it. Read by configs/zoo.py."""

from jaxmarl_llm.config.zoo import (
    COMPARE,
    GRADIENT,
    NOT_SHOWN,
    NOTHING_TO_COMPARE,
    SAME,
    SMOL,
    STARTER,
    Published,
    Result,
    Row,
    evaluated,
    trained,
)

SECOND_HAND, ABSTRACT = "second-hand", "abstract"
VARY = (
    "python -m experiments.vary --config=configs/commits.py:study,rebuilder --field=commits.examples --values=0,1,3 "
    '--samples=3 --config.task.test_source="mutants[::6]" --config.sampling.max_prompt_tokens=768 '
    "--workdir=runs/examples"
)
TINY = "two layers, random at first"
ANSWER = "whether the answer is right"
LAST = "--config.task.total=last"
FIVE, FOUR = "('first','second','third','fourth','judge')", "('first','second','third','fourth')"
COREX = Published(
    "GPT-3.5 and GPT-4, five agents",
    "StrategyQA",
    "accuracy",
    "more than 6 points above",
    "ComplexCoT",
    SECOND_HAND,
)
COREX_COMMANDS = {
    agents: "python -m experiments.vary --config=configs/reasoning.py --field=train.protocol "
    f'--values=simultaneous,{values} --config.team.agents="{agents}" --config.warm_up.steps=0 '
    f"--config.task.total=last --config.eval.vote= --samples=2 --workdir=runs/{number}"
    for agents, number, values in ((FIVE, "five", "teams,review"), (FOUR, "four", "retrieve"))
}


def corex(
    title: str, how: str, protocol: str, agents: str, vote: str, right: str, majority: str, differences: str
) -> Row:
    """One of Corex's three protocols, untrained. ``right``: its share; ``majority``: the share without it."""
    team = f"--config.team.agents={agents}"
    flags = (f"--config.train.protocol={protocol}", LAST, team, f"--config.eval.vote={vote}")
    return Row(
        title=title, source="arXiv 2310.00280", trained="nobody (MAGRPO can train it)", protocol=how,
        credit="none", loss="none", level="text", page="reasoning.md#who-reads-what",
        test="unit/protocols/test_protocols_answers.py", covers=(f"train.protocol={protocol}",),
        run=(evaluated("reasoning.py", *flags),), smoke=(evaluated("reasoning.py:smoke", *flags),), published=COREX,
        ours=(
            Result(
                SMOL, "sums, 70 questions", "right, %, sampled", "nothing is trained", right, f"majority {majority}",
                f"{differences}, over the questions", "0", f"{agents.count(',') + 1} answers a question, both",
                COREX_COMMANDS[agents], "reasoning.md", NOT_SHOWN,
            ),
        ),
        differs="a model of 135M parameters, sums in place of StrategyQA; published beside one chain of thought",
    )  # fmt: skip


ROWS = {
    "pipeline": Row(
        title="Pipeline", source="baseline of arXiv 2508.04652", trained="every agent",
        protocol="in order, each reads those before it", credit="return less its mean", loss=GRADIENT, level="text",
        page="comparison.md#coding", test="training/test_methods_run.py", covers=("train.protocol=pipeline",),
        run=(trained("coding.py", "--config.train.joint_mode=aligned", "--config.train.protocol=pipeline"),),
        smoke=(
            trained("coding.py:smoke", "--config.train.joint_mode=aligned", "--config.train.protocol=pipeline"),
        ),
        published=Published(
            "two Qwen2.5-Coder-3B, untrained", "HumanEval", "return, 0..100", "62.5", "side by side 63.1", SECOND_HAND,
        ),
        ours=(
            Result(
                SMOL, STARTER, "return, sampled", "nothing is trained", "36.4 [35.6, 37.3]",
                "side by side 36.2 [35.3, 37.1]", "+0.2 [-0.6, +1.1], over the problems", "0", "four answers a problem",
                COMPARE, "comparison.md", NOT_SHOWN,
            ),
            Result(
                SMOL, STARTER, "return, sampled", "36.4 [35.6, 37.3]", "37.4 (34.6, 40.2) [36.6, 38.2], trained",
                "side by side, trained 38.4 [37.3, 39.4]", "gain +1.0 (-1.8, +3.7) [+0.1, +1.8]", "0, 1, 2",
                "16,000 tokens, both", COMPARE, "comparison.md", NOT_SHOWN,
            ),
            Result(
                SMOL, "starter, after a warm-up", "pass@1, sampled", "the warmed-up team 17.9 (9.3, 26.5)",
                "17.3 (16.0, 18.5) [11.6, 23.2]", "side by side, trained 17.3 (10.9, 23.7)",
                "gain -0.7 (-8.4, +7.1)", "3", "16,000 tokens, both", COMPARE, "comparison.md", NOT_SHOWN,
            ),
        ),
        differs="published untrained; here it is trained as well",
    ),
    "discussion": Row(
        title="Discussion", source="baseline of arXiv 2508.04652", trained="every agent",
        protocol="all answer, read each other, and answer again", credit="return less its mean", loss=GRADIENT,
        level="text", page="turns.md", test="unit/protocols/test_protocols.py",
        covers=("train.protocol=discussion",),
        run=(trained("coding.py", "--config.train.joint_mode=aligned", "--config.train.protocol=discussion"),),
        smoke=(
            trained("coding.py:smoke", "--config.train.joint_mode=aligned", "--config.train.protocol=discussion"),
        ),
        published=Published(
            "two Qwen2.5-Coder-3B, untrained", "HumanEval", "return, 0..100", "57.5", "side by side 63.1", SECOND_HAND,
        ),
        ours=(
            Result(
                SMOL, STARTER, "return, sampled", "nothing is trained", "5.7 [3.6, 7.9]",
                "side by side 36.2 [35.3, 37.1]", "-30.5 [-32.6, -28.3], over the problems", "0",
                "one answer a problem, side by side four", COMPARE, "comparison.md", SAME,
            ),
        ),
        differs="published untrained as here; this small model answers the second round without functions",
    ),
    "maporl": Row(
        title="MAPoRL", source="arXiv 2502.18439", trained="every agent", level="text",
        protocol="all at once in turns; each reads the others' last answers",
        credit="own score and, discounted, the mean score of all in later turns; bonuses for changes",
        loss="PPO with value models, or group means", page="reasoning.md#riddles", test="unit/systems/test_maporl.py",
        run=(trained("reasoning.py:clues"),), smoke=(trained("systems.py:maporl,smoke"),),
        covers=("train.system=maporl", "train.protocol=relay"),
        published=Published(
            "Phi-3-mini", "GSM8K, trained on ANLI", "accuracy in turns 1, 2, 3", ".677, .712, .720",
            "untrained .677, .688, .640", SECOND_HAND,
        ),
        ours=(
            Result(
                TINY, "riddle clues, a scripted partner", "return, sampled", "29.3, 26.8, 21.9", "98.7, 96.1, 98.9",
                "paid for its own answers alone 66.2, 55.6, 65.5",
                "[98.0, 99.3], [93.9, 98.0], [98.4, 99.4]; alone [50.1, 82.7], [37.8, 73.5], [50.4, 80.7]; over the "
                "questions", "0, 1, 2", "160 iterations each",
                "python -m experiments.train --config=configs/reasoning.py:clues", "reasoning.md", SAME,
            ),
        ),
        differs="a riddle made for influence, a tiny model, a script as partner, the test asks the training questions; "
        "no verifier. Of sums one seed is measured (comparison.md, Questions), of words nothing",
    ),
    "mlpo": Row(
        title="MLPO", source="arXiv 2507.08960", trained="the leader", level="text",
        protocol="peers answer at once, the leader reads them and answers",
        credit="reward less the mean of the leader's answers after the same peer answers", loss=GRADIENT,
        page="systems.md#a-leader-over-peers", test="unit/systems/test_mlpo.py",
        run=(trained("reasoning.py:trust"),), smoke=(trained("systems.py:mlpo,smoke"),),
        covers=("train.system=mlpo", "train.protocol=leader"),
        published=Published(
            "Qwen2.5-7B leader", "BBH, MATH, MMLU", "accuracy", baseline="single models, untrained teams: above both",
            known_from=f"{ABSTRACT}; its rows were not read",
        ),
        ours=(
            Result(
                TINY, "riddle trust, three scripted peers", "return, sampled", "26.4, 15.8, 14.4", "98.8, 98.4, 97.7",
                "after the warm-up, before rewards 51.4, 50.3, 51.4", "[97.6, 99.8], [97.4, 99.3], [96.4, 99.0], over "
                "the questions", "0, 1, 2", "100 iterations after the warm-up",
                "python -m experiments.train --config=configs/reasoning.py:trust", "reasoning.md",
                NOTHING_TO_COMPARE,
            ),
        ),
        differs="a riddle in which the peers' majority is right once in six, a tiny leader, peers that are scripts; "
        "after the warm-up greedy answers are all right already",
    ),
    "corex_discuss": corex(
        "Corex, discuss", "two teams refine, a judge decides", "teams", FIVE, "judge",
        "2.9 [0.7, 5.7]", "8.6 [3.6, 14.3]",
        "to one alone +0.0 [-3.6, +3.6], to the majority -5.7 [-11.4, -0.7]",
    ),
    "corex_review": corex(
        "Corex, review", "in order, each edits the last version", "review", FIVE, "last",
        "4.3 [1.4, 7.9]", "8.6 [3.6, 14.3]",
        "to one alone +1.4 [-2.1, +5.0], to the majority -4.3 [-9.3, +0.7]",
    ),
    "corex_retrieve": corex(
        "Corex, retrieve", "half answer, half give each a score, the best counts", "retrieve", FOUR, "best",
        "6.4 [2.9, 10.7]", "9.3 [4.3, 15.0]",
        "to one alone +2.9 [-0.7, +6.4], to the majority -2.9 [-5.7, -0.7]",
    ),
    "malt": Row(
        title="MALT", source="arXiv 2412.01928", trained="generator, verifier and refiner, one after the other stage",
        protocol="in order, a tree of n answers after each", credit="mean of the final rewards through an answer; "
        "pairs of siblings", loss="cross-entropy on the good ones, then DPO", level="text",
        page="systems.md#trees-of-labelled-answers", test="unit/systems/test_malt.py",
        run=(trained("reasoning.py:lock3"),), smoke=(trained("systems.py:malt,smoke"),),
        covers=("train.system=malt",),
        published=Published(
            "Llama-3.1-8B", "MATH, GSM8K, CSQA", "accuracy, relative gain", "+15.66 %, +7.42 %, +9.40 %",
            "the untrained model", ABSTRACT,
        ),
        ours=(
            Result(
                TINY, "riddle lock3", "return, sampled", "27.1, 19.3, 14.1", "94.3, 92.7, 98.4",
                "after the warm-up 37.5, 47.9, 42.2", "[93.8, 95.3], [85.9, 98.4], [96.9, 100.0], over the questions",
                "0, 1, 2", "30 iterations of trees, 40 of imitation, 200 of preferences",
                "python -m experiments.train --config=configs/reasoning.py:lock3", "reasoning.md", SAME,
            ),
        ),
        differs="a riddle of three questions, a tiny model; it begins from demonstrations that hand on in 60 %; "
        "where nothing can be learned, a third are right as before",
    ),
    "sweet": Row(
        title="SWEET-RL", source="arXiv 2503.15478", trained="a critic, then the agent that asks",
        protocol="a dialogue with a partner who has read a hidden text", credit="mean log-ratio of a critic that reads "
        "the hidden text; pairs of turns", loss="Bradley-Terry, then DPO and likelihood", level="text",
        page="systems.md#turns-ranked-by-a-privileged-critic", test="unit/systems/test_sweet.py",
        run=(trained("reasoning.py:guess"),), smoke=(trained("systems.py:sweet,smoke"),),
        covers=("train.system=sweet", "train.protocol=dialogue"),
        published=Published(
            "Llama-3.1-8B", "ColBench", "success and win rate", "6 points above", "other methods for several turns",
            ABSTRACT,
        ),
        ours=(
            Result(
                TINY, "riddle guess", "return, sampled", "22.9, 21.9, 22.9, warmed up", "62.5, 65.5, 66.5",
                "a critic that has not read the pair 62.5, 56.8, 54.5",
                "difference of the means +6.9 (-8.5, +22.3), over the seeds", "0, 1, 2",
                "30 iterations of dialogues, 20 of the critic, 300 of preferences, both",
                "python -m experiments.train --config=configs/reasoning.py:guess", "reasoning.md", NOT_SHOWN,
            ),
        ),
        differs="a riddle whose exact credit is known, a tiny model after a warm-up, a script as partner",
    ),
    "commits": Row(
        title="Commit messages", source="arXiv 2404.14824", trained="nobody, or writer and rebuilder", level="text",
        protocol="a writer reads a diff and examples; a rebuilder reads the message and the program before",
        credit="tests that the rebuilt program passes, less those that passed before", loss=GRADIENT,
        page="commits.md", test="unit/tasks/commits/test_commit_task.py",
        run=(trained("commits.py"),), smoke=(trained("commits.py:smoke"),),
        published=Published(
            "GPT-3.5, Gemini, LLaMA-2 7B and 13B", "MCMDEval+, eight languages",
            "accuracy, integrity, readability, applicability, by hand", baseline="earlier generators: below",
            known_from="abstract and repository",
        ),
        ours=(
            Result(
                SMOL, "62 commits of mutants", "METEOR, times 100, sampled", "9.2 [7.5, 11.1], no example",
                "13.5 [11.2, 16.2], three examples", "no example 9.2 [7.5, 11.1]",
                "difference +4.4 [+1.8, +7.0], over the commits", "0", "three messages a commit, both", VARY,
                "commits.md", NOTHING_TO_COMPARE,
            ),
            Result(
                SMOL, "62 commits of mutants", "round trip, times 100, sampled", "-22.9 [-33.7, -12.4], no example",
                "-23.0 [-33.7, -13.1], three examples", "no example -22.9 [-33.7, -12.4]",
                "difference -0.2 [-1.7, +1.4], over the commits", "0", "three messages a commit, both", VARY,
                "commits.md", NOT_SHOWN,
            ),
            Result(
                TINY, "six mutants, after a warm-up on two mixed conventions", "programs restored, %, sampled",
                "48.7, 47.7, 50.3, warmed up", "99.5, 99.5, 99.0", "demonstrations alone 47.4, 46.4, 50.8",
                "[99.0, 100.0], [99.0, 100.0], [98.4, 99.5], over the commits", "0, 1, 2",
                "300 iterations of MAGRPO; 300 more of demonstrations",
                "python -m experiments.train --config=configs/commits.py:tiny", "commits.md", NOTHING_TO_COMPARE,
            ),
        ),
        differs="mutants in place of commits of people; messages are judged by text metrics and by rebuilding",
    ),
}  # fmt: skip
