"""Rows of the zoo: systems that differ in how agents learn from one shared reward. Read by configs/zoo.py.

What is published is second-hand where a row says so; cells without a source are `NOT_FOUND`.
"""

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
    trained,
)

SIMULTANEOUS = "all at once, nobody reads the others"
PREFERENCES = "DPO over joint answers"
GAME = "python -m experiments.sweep --config=configs/sweep_game.py --workdir=runs/game"
CONVENTION = (
    "python -m experiments.sweep --config=configs/sweep_convention.py --workdir=runs/convention --parallel=2"
)
SECOND_HAND = "second-hand"
WRITING = "TLDR, arXiv abstracts"


def game(after: str, difference: str, sign: str = NOT_SHOWN, spent: str = "96 judged answers") -> Result:
    """A trainer of docs/game.md against MAGRPO; ``sign``: by the page's bound for twenty comparisons."""
    return Result(
        model="two layers, random at first", data="six matrix games in words", metric="return, sampled",
        before="22.9", after=after, baseline="MAGRPO 81.2 [79.0, 83.4]",
        interval=f"difference {difference}, paired by seed", seeds="10",
        budget=f"60 iterations of {spent}; MAGRPO 96", command=GAME, page="game.md", sign=sign,
    )  # fmt: skip


def convention(after: str, credit: str, tokens: str, answers: str) -> Result:
    """A credit of docs/convention.md compared with `cross`; which is best is not shown there."""
    return Result(
        model=SMOL, data="convention, 24 problems", metric="joint success, %",
        before="38.2 (32.8, 43.6)", after=after, baseline="MAGRPO, cross 85.8 (66.7, 104.8)",
        interval=f"{after}, over the seeds", seeds="3",
        budget=f"{credit}: {tokens} tokens drawn, {answers} answers judged; cross 27,058 and 6,144",
        command=CONVENTION, page="convention.md", sign=NOT_SHOWN,
    )  # fmt: skip


def system(title: str, source: str, credit: str, test: str, **own) -> Row:
    """A row for a value of train.system that has its own config in configs/systems.py."""
    name = own.pop("name")
    rest = {
        "trained": "every agent", "protocol": SIMULTANEOUS, "loss": GRADIENT, "level": "none",
        "differs": "nothing is published of it by itself; measured on a toy with tiny models",
        "page": "systems.md", "run": (trained(f"systems.py:{name}"),),
        "smoke": (trained(f"systems.py:{name},smoke"),), "covers": (f"train.system={name}",),
    } | own  # fmt: skip
    return Row(title=title, source=source, credit=credit, test=test, **rest)


BY_HAND, RUN, PAIRS = (
    f"{name}.py"
    for name in (
        "unit/systems/test_recipes",
        "training/test_recipes_run",
        "training/test_recipes_preferences",
    )
)
ROWS = {
    "magrpo": Row(
        title="MAGRPO", source="arXiv 2508.04652", trained="every agent", protocol=SIMULTANEOUS,
        credit="return less the mean of the agent's samples; aligned, or crossed with the partner's",
        loss=GRADIENT, level="none", page="coding.md#what-is-measured", test="unit/systems/test_magrpo.py",
        run=(trained("coding.py"),), smoke=(trained("coding.py:smoke"),),
        covers=("train.system=magrpo", "train.protocol=simultaneous"),
        differs="a twentieth of the parameters, adapters, other problems, prompts and reward of cooperation; two of "
        "three seeds end without a helper that is used. At equal tokens beside one agent alone: not shown "
        "(docs/comparison.md)",
        published=Published(
            "two Qwen2.5-Coder-3B", "HumanEval, 1 turn", "return, 0..100", "83.7 (2 turns 85.8, later 86.7)",
            "the two untrained, side by side 63.1", SECOND_HAND,
        ),
        ours=(
            Result(
                SMOL, STARTER, "return, sampled", "36.3 (33.9, 38.8)",
                "41.5 (38.7, 44.3)", "the two untrained 36.3", "gain +5.2 (1.9, 8.4), over the seeds", "3",
                "46 iterations", "python -m experiments.train --config=configs/coding.py", "coding.md", SAME,
            ),
            Result(
                SMOL, "starter, after a warm-up", "return, sampled", "47.7 (44.9, 50.4)",
                "49.7 (45.1, 54.3)", "the warmed-up team 47.7", "gain 2.0 (-3.2, 7.3), over the seeds", "3",
                "30 iterations", "python -m experiments.train --config=configs/coding.py:warm_up", "coding.md",
                NOT_SHOWN,
            ),
            Result(
                SMOL, "convention, 24 problems", "joint success, %", "38.2 (32.8, 43.6)",
                "85.8 (66.7, 104.8), cross", "more demonstrations 41.0 (37.0, 44.9)",
                "difference 44.8, 25.3 to 64.3, over the seeds", "3",
                "27,058 tokens learned from; demonstrations 26,913", CONVENTION, "convention.md", SAME,
            ),
        ),
    ),
    "grpo": Row(
        title="GRPO, one agent alone", source="arXiv 2402.03300", trained="the agent", protocol="one agent",
        credit="return less the mean of its samples", loss=GRADIENT, level="none",
        page="comparison.md#coding", test="training/test_methods_run.py",
        run=(trained("coding.py", "--config.team.agents=('main',)", "--config.train.joint_mode=aligned"),),
        smoke=(
            trained("coding.py:smoke", "--config.team.agents=('main',)", "--config.train.joint_mode=aligned"),
        ),
        differs="other work, a smaller model, few iterations",
        published=Published(
            "Qwen3-1.7B", WRITING, "score, %", "91.7, 91.0", "a single model, untrained 30.3, 44.0",
            f"{SECOND_HAND}, 2601.21972",
        ),
        ours=(
            Result(
                SMOL, STARTER, "pass@1, sampled", "7.6 [4.2, 11.2]", "8.6 (1.5, 15.8) [5.1, 12.5]",
                "a team, MAGRPO with cross 7.1 [3.9, 10.4], from 3.1 [1.3, 5.1]",
                "gain +1.0 (-6.1, +8.2) [-1.9, +3.9]", "0, 1, 2", "16,000 tokens, both",
                COMPARE, "comparison.md", NOT_SHOWN,
            ),
            Result(
                SMOL, "starter, after a warm-up", "pass@1, sampled", "17.5 (10.9, 24.1) [12.1, 23.3]",
                "19.0 (12.6, 25.5) [12.8, 25.6]", "a team, MAGRPO with partner samples 18.8 (12.1, 25.4)",
                "gain +1.6 (-5.2, +8.3) [-1.5, +4.5]", "3", "16,000 tokens, both",
                COMPARE, "comparison.md", NOT_SHOWN,
            ),
        ),
    ),
    "mareinforce": system(
        "MAREINFORCE", "Williams 1992, CoMLRL", "return", BY_HAND, name="mareinforce",
        ours=(game("80.7 [77.7, 83.7]", "-0.5 [-3.7, 2.6], p 0.72"),),
    ),
    "marloo": system(
        "MARLOO", "arXiv 2402.14740 (RLOO), CoMLRL", "return less the mean of the other samples", BY_HAND,
        name="marloo", ours=(game("81.2 [79.0, 83.4]", "-0.0 [-0.1, 0.1], p 0.34"),),
    ),
    "maremax": system(
        "MAReMax", "after arXiv 2310.10505 (ReMax), CoMLRL", "return less the largest of the group", BY_HAND,
        name="maremax", ours=(game("77.2 [74.1, 80.3]", "-4.0 [-7.6, -0.4], p 0.035"),),
    ),
    "dr_mas": system(
        "Dr. MAS", "arXiv 2602.08847", "return less its mean, over the agent's own deviation", BY_HAND,
        name="dr_mas", ours=(game("82.2 [79.7, 84.8]", "+1.0 [0.3, 1.8], p 0.012"),),
        published=Published(
            data="mathematics; search", metric="avg@16", number="+5.6; +15.2", baseline="GRPO",
            known_from="second-hand, as gains alone",
        ),
        differs="a toy with tiny models; the scale is taken over the iteration, the released code takes it per prompt",
    ),
    "at_grpo": system(
        "AT-GRPO", "arXiv 2510.11062", "(r - mean) / deviation by agent and turn, with local rewards; the best goes on",
        BY_HAND, name="at_grpo", page="systems.md#local-rewards",
        ours=(game("77.5 [74.8, 80.2]", "-3.8 [-6.8, -0.7], p 0.020"),),
        protocol="all at once, in turns; the best joint answer is answered", loss="policy gradient, clipped",
        published=Published(
            "Qwen3-8B", "LiveCodeBench", "accuracy, %", "33.1", "team by GRPO 24.2, one agent by GRPO 25.7",
            SECOND_HAND,
        ),
        differs="a toy with tiny models, on which a second turn has nothing to mend",
    ),
    "c3": system(
        "C3", "arXiv 2603.06859", "mean of the conversations through an answer less that of its siblings", RUN,
        name="c3", protocol="in order, a tree: each answers every path before it",
        ours=(
            game("79.0 [76.9, 81.2]", "-2.2 [-5.8, 1.4], p 0.20"),
            convention("77.4 (69.5, 85.3)", "c3", "23,151", "864"),
        ),
        level="text", covers=("train.system=c3", "train.protocol=tree"),
        published=Published(
            "Qwen3-4B-Instruct-2507", "MATH500", "greedy accuracy, %", "82.80", "MAGRPO 74.52", "the project's page",
        ),
        differs="toys; in the convention main reads the helper only after the warm-up, so that it compares no credits",
    ),
    "ccpo": system(
        "CCPO", "arXiv 2603.21563", "reward less that of the answer without the agent's part", RUN, name="ccpo",
        page="turns.md#counterfactuals",
        ours=(
            game("76.9 [72.7, 81.1]", "-4.3 [-9.5, 0.9], p 0.094", spent="90 judged answers"),
            convention("78.8 (50.4, 107.2)", "ccpo", "26,839", "814"),
        ),
        published=Published(data="mathematics", known_from="abstract; its tables were not read"),
        differs="toys; another sample takes the part's place, where the paper lets the other agent answer alone",
    ),
    "centralised": system(
        "Centralised MAGRPO", "CoMLRL", "return less its mean, of one agent that writes all roles",
        "unit/tasks/test_centralised.py", name="centralised", trained="the agent", protocol="one agent",
        ours=(game("72.7 [67.7, 77.7]", "-8.5 [-12.8, -4.2], p 0.002", NOTHING_TO_COMPARE),),
    ),
    "iac": system(
        "IAC (CoLLM-DC)", "arXiv 2601.21972", "r + discounted V(next) less V(prompt), a critic per agent",
        "training/test_critics_run.py", name="iac", page="turns.md#critics", trained="every agent and its critic",
        loss="policy gradient; squared error of V",
        ours=(game("82.4 [78.4, 86.5]", "+1.2 [-1.4, 3.9], p 0.33"),),
        published=Published(
            "two Qwen3-1.7B", WRITING, "score, %", "95.4, 94.1", "MAGRPO 93.5, 93.1", SECOND_HAND,
        ),
        differs="a toy of one word an answer; the paper's gains are on long answers",
    ),
    "maac": system(
        "MAAC (CoLLM-CC)", "arXiv 2601.21972", "r + discounted V(next) less V(all prompts), one critic for all",
        "unit/systems/test_critics.py", name="maac", page="turns.md#critics",
        trained="every agent and their critic", loss="policy gradient; squared error of V",
        ours=(
            game("81.1 [77.2, 85.0]", "-0.1 [-2.1, 1.9], p 0.91"),
            convention("80.9 (40.3, 121.5)", "maac", "26,876", "768"),
        ),
        published=Published(
            "two Qwen3-1.7B", f"{WRITING}; StrBuild", "score, %; IoU", "95.2, 95.0; 68.5",
            "MAGRPO 93.5, 93.1; 50.6", SECOND_HAND,
        ),
        differs="toys of short answers; the paper's gains are on long answers",
    ),
    "madpo": system(
        "MADPO", "CoMLRL", "pairs of joint answers, collected first", "unit/systems/test_madpo.py", name="madpo",
        page="systems.md#preferences", loss=PREFERENCES,
        ours=(game("52.0 [45.9, 58.2]", "-29.2 [-35.7, -22.6], p <0.001", NOTHING_TO_COMPARE,
                   "96 judged answers, the first ten alone"),),
    ),
    "madpo_iter": system(
        "MADPOIter", "CoMLRL", "pairs of joint answers of every iteration", PAIRS, name="madpo_iter",
        page="systems.md#preferences", loss=PREFERENCES,
        ours=(game("84.8 [82.9, 86.8]", "+3.6 [1.2, 6.0], p 0.008"),),
    ),
    "marlhf": system(
        "MARLHF", "CoMLRL", "score of a reward model less its mean; pairs collected first",
        "unit/systems/test_marlhf.py", name="marlhf", page="systems.md#preferences",
        trained="a reward model, then every agent", loss="Bradley-Terry; policy gradient",
        ours=(game("57.0 [40.7, 73.3]", "-24.2 [-39.8, -8.6], p 0.007"),),
    ),
    "marlhf_iter": system(
        "MARLHFIter", "CoMLRL", "score of a reward model, fitted anew, less its mean", PAIRS, name="marlhf_iter",
        page="systems.md#preferences", trained="reward models and every agent", loss="Bradley-Terry; policy gradient",
        ours=(game("68.9 [62.8, 75.0]", "-12.3 [-18.7, -5.9], p 0.002", NOTHING_TO_COMPARE),),
    ),
    "dpo": system(
        "DPO by agent", "arXiv 2305.18290", "pairs of an agent's answers to one prompt", "unit/systems/test_dpo.py",
        name="dpo", page="systems.md#preferences", loss="DPO, with the likelihood of the better one",
        published=Published(known_from="its tables were not read"),
        ours=(
            game(
                "54.3 [47.4, 61.3]", "-26.4 [-33.6, -19.1] from the 80.7 of the same sweep, p < 0.001",
                NOTHING_TO_COMPARE, "96 judged answers, of the first ten only",
            ),
        ),
        differs="a stage of MALT and of SWEET-RL here; measured by itself on a toy with tiny models",
    ),
    "imitation": Row(
        title="Imitation, each its own role", source="role masks of arXiv 2401.07324", trained="every agent",
        protocol="none: texts are given", credit="the weight of a demonstration", loss="cross-entropy", level="none",
        page="warm_start.md#demonstrations", test="training/test_sft.py",
        run=(trained("coding.py", "--config.train.system=sft", "--config.train.steps=40"),),
        smoke=(trained("coding.py:smoke", "--config.train.system=sft", "--config.sampling.max_new_tokens=48"),),
        covers=("train.system=sft",), differs="published as a stage of others",
        ours=(
            Result(
                SMOL, STARTER, "return, sampled", "36.3 (33.9, 38.8)",
                "47.7 (44.9, 50.4)", "rewards from the start 41.5 (38.7, 44.3), at another budget",
                "gain +11.3 (7.1, 15.5), over the seeds", "3", "60 iterations of 8 demonstrations an agent",
                "python -m experiments.train --config=configs/coding.py:warm_up", "coding.md", NOTHING_TO_COMPARE,
            ),
        ),
    ),
}  # fmt: skip
