"""Rows of the zoo: models joined by their predictions or their weights. Read by configs/zoo.py."""

from jaxmarl_llm.config.zoo import (
    NOT_SHOWN,
    NOTHING_TO_COMPARE,
    SAME,
    SMOL,
    Published,
    Result,
    Row,
    made,
    together,
    trained,
)

# Two agents of one base that answer the same questions; they are joined.
PAIR, TINY_PAIR = trained("reasoning.py"), trained("reasoning.py:smoke")
OF_PAIR, LATEST = "--workdir={folder}/run", "--step=latest"
NOT_READ = "its tables were not read"
NOBODY = {"credit": "none", "loss": "none"}


def of_levels(after: str, difference: str, sign: str = NOTHING_TO_COMPARE) -> Result:
    """A row of the four levels: its return, and the difference to the best expert, with the intervals."""
    return Result(
        SMOL, "three experts, sums in words, 72 questions", "return, sampled", "the best expert 47.2 [36.1, 58.3]",
        after, "the best expert 47.2 [36.1, 58.3]", f"difference {difference}, over the questions", "0",
        "tokens and answers in the table", "python -m experiments.levels --workdir=runs/levels_words --words --seeds=0",
        "levels.md", sign,
    )  # fmt: skip


def logits(title: str, source: str, how: str, *flags: str, tiny: tuple[str, ...] = (), **own) -> Row:
    """Trained agents that write one text together; nothing is trained. ``tiny``: further flags of the smoke form."""
    rest = {
        "page": "decoding.md#mixtures", "test": "unit/sampling/test_sampling_together.py",
        "published": Published(known_from=NOT_READ), "trained": "nobody",
        "differs": "two of the three experts know little of their own kind; on two halves of a task "
        "it is not shown to beat the better member either (decoding.md)",
    } | own  # fmt: skip
    return Row(
        title=title, source=source, protocol=how, level="logit", **NOBODY, **rest,
        run=(PAIR, together(*flags)), smoke=(TINY_PAIR, together(*flags, *tiny, "--samples=1")),
    )  # fmt: skip


def merged(title: str, source: str, how: str, *methods: str, ours: Result, tiny: tuple[str, ...] = ()) -> Row:
    """Weights of several agents in one; the first of ``methods`` is run and measured. ``tiny``: as above."""
    own = (OF_PAIR, f"--method={methods[0]}", LATEST)
    return Row(
        title=title, source=source, trained="nobody", protocol="one agent", level="weight", **NOBODY,
        page="merging.md#methods", test="unit/analysis/test_merge_methods.py",
        published=Published(known_from=NOT_READ), ours=(ours,),
        differs=f"{how}; two of the three experts know little of their own kind",
        run=(PAIR, made("merge", *own)), smoke=(TINY_PAIR, made("merge", *own, *tiny, "--samples=1")),
        covers=tuple(f"merge --method={name}" for name in methods),
    )  # fmt: skip


ROWS = {
    "collab": logits(
        "Collab", "arXiv 2503.21720", "at each token, line or answer the member with the greatest value goes on",
        "--together=switch", "--value=head", tiny=("--fit_problems=4", "--fit_samples=2", "--fit_updates=2"),
        page="decoding.md#switching", test="unit/decoding/test_switching.py", covers=("together --together=switch",),
        trained="a value head, if it is asked for",
        published=Published(
            "aligned models of 7 billion", "Nectar, HH-RLHF", "average reward; GPT-4's win-tie rate",
            "up to 1.56 times; 71.89 %", "the best decoding by one of them", "abstract",
        ),
        differs="the reference of the KL term and its place are ours; whose half a question is stands in the question; "
        "on a toy with known numbers as in the paper",
        ours=(
            Result(
                SMOL, "counting up and down, 128 questions", "return, greedy", "the better member 45.3",
                "73.4 by a value head; by roll-outs, with the judge's help, 79.7",
                "the better member 45.3, the mean of logits 43.0",
                "difference to the better member +28.1 [+20.3, +35.9], over the questions", "0",
                "8.9 forward passes an answer, the member 3.1; 256 training answers of each member",
                "python -m benchmarks.collab --workdir=runs/collab", "decoding.md", SAME,
            ),
        ),
    ),
    "mean_logits": logits(
        "Product of experts", "Hinton 2002", "each token from the mean of the members' logits",
        "--together=mean_logits", covers=("together --together=mean_logits",),
        ours=(of_levels("40.3 [29.6, 50.9]", "-6.9 [-12.0, -2.8]"),),
    ),
    "mean_probabilities": logits(
        "Mixture of probabilities", "arXiv 2502.04506 (logit level)", "each token from the mean of their probabilities",
        "--together=mean_probabilities", covers=("together --together=mean_probabilities",),
        ours=(of_levels("11.1 [6.5, 16.2]", "-36.1 [-47.2, -25.9]"),),
    ),
    "contrast": logits(
        "Contrastive decoding", "arXiv 2210.15097, 2309.09117", "each token from one member's logits less another's",
        "--together=contrast", "--weights=1.5,-0.5", covers=("together --together=contrast",),
        ours=(of_levels("2.8 [0.0, 6.9]", "-44.4 [-56.9, -31.9]"),),
        differs="two of the three experts know little of their own kind",
    ),
    "fusellm": Row(
        title="FuseLLM", source="arXiv 2401.10491", trained="a student", level="logit",
        protocol="none: teachers read texts", credit="the teachers' fused distribution", loss="cross-entropy and KL",
        page="fusion.md", test="unit/fusion/test_fusion_fuse.py",
        run=(PAIR, made("fuse", OF_PAIR, LATEST, "--texts=reference", "--held_out=reference", to="fused")),
        smoke=(
            TINY_PAIR,
            made("fuse", OF_PAIR, LATEST, "--texts=reference", "--held_out=reference", "--steps=2", to="fused"),
        ),
        published=Published(
            "Llama-2-7B with OpenLLaMA and MPT", "BBH; MultiPL-E", "accuracy; pass@1, %", "41.75; 15.56",
            "cross-entropy alone 40.44; 14.83, before 39.70; 14.63", "second-hand",
        ),
        differs="costs per byte, alignment by bytes, adapters; members of a team as teachers; one hardly learned",
        ours=(
            Result(
                SMOL, "sums, right answers, two halves", "nats per byte, the second half",
                "the teachers 5.562, 2.082", "1.751 [1.489, 2.013]", "the same texts alone 1.729 [1.453, 2.002]",
                "difference +0.022 [-0.007, +0.051], first half +0.005 [-0.009, +0.020], over the texts",
                "0", "60 iterations of 16 texts each",
                "python -m benchmarks.fusion_halves --workdir=runs/halves", "fusion.md", NOT_SHOWN,
            ),
        ),
    ),
    "model_soup": merged(
        "Model soup", "arXiv 2203.05482", "the mean of the members, or of the best", "soup", "mean",
        ours=of_levels("47.2 [36.1, 58.3]", "0.0 [0.0, 0.0]", NOT_SHOWN),
    ),
    "task_arithmetic": merged(
        "Task arithmetic", "arXiv 2212.04089", "a scaled sum of what members have learned", "arithmetic", "sum",
        "extrapolate", ours=of_levels("42.1 [31.5, 53.7]", "-5.1 [-10.6, -0.9]"),
    ),
    "ties": merged(
        "TIES", "arXiv 2306.01708", "trimmed within each map, not over all of a model", "ties",
        ours=of_levels("43.1 [31.9, 54.6]", "-4.2 [-8.8, -0.9]"),
    ),
    "dare": merged(
        "DARE", "arXiv 2311.03099", "entries dropped at random, the others scaled", "dare",
        ours=of_levels("43.1 [31.9, 54.6]", "-4.2 [-8.8, -0.5]"),
    ),
    "lorahub": merged(
        "LoraHub", "after arXiv 2307.13269", "weights by random search, products summed, no penalty", "search",
        tiny=("--trials=2",), ours=of_levels("44.0 [32.9, 55.6]", "-3.2 [-7.4, +0.5]", NOT_SHOWN),
    ),
    "levels": Row(
        title="Four levels side by side", source="arXiv 2502.04506, 2601.21257", trained="three experts, a router, a "
        "student", protocol="each level's", credit="each level's", loss="each level's", level="all",
        page="levels.md", test="unit/experiments/test_levels.py", covers=("merge --method=join",),
        run=("levels --workdir={folder}/levels --seeds=0,1,2",),
        smoke=("levels --workdir={folder}/levels --levels=weight --smoke",),
        published=Published(known_from="a position paper without a method"),
        ours=(of_levels("48.6 [37.5, 59.7], switch, the best of all rows", "+1.4 [+0.0, +4.2]", NOT_SHOWN),),
        differs="one seed, some rows are missing; two of the three experts know little of their own kind",
    ),
}  # fmt: skip
