"""Rows of the zoo: who is asked next, tools, and worlds in which a team acts. Read by configs/zoo.py."""

from jaxmarl_llm.config.files import experiment
from jaxmarl_llm.config.zoo import (
    GRADIENT,
    NOT_SHOWN,
    NOTHING_TO_COMPARE,
    SAME,
    Published,
    Result,
    Row,
    evaluated,
    trained,
)

of_levels = experiment("zoo_models").of_levels
ABSTRACT = "abstract"
ROWS = {
    "alpha_umi": Row(
        title="alpha-UMi", source="arXiv 2401.07324", trained="one agent on all texts, then planner, caller and "
        "summarizer, each on its own", protocol="the planner's last line names who goes on; tools answer", credit="the "
        "weight of a demonstration", loss="cross-entropy with role masks", level="text",
        page="systems.md#a-planner-and-tools", test="training/test_tables_run.py", covers=("train.protocol=planner",),
        run=(
            trained("tables.py:one", to="one"),
            trained(
                "tables.py", "--config.team.begin={folder}/one",
                "--config.team.begin_map=('planner=solver','caller=solver','summarizer=solver')", to="three",
            ),
        ),
        smoke=(
            trained("tables.py:one,smoke", to="one"),
            trained(
                "tables.py:smoke", "--config.team.begin={folder}/one", "--config.team.begin_step=latest",
                "--config.team.begin_map=('planner=solver','caller=solver','summarizer=solver')", to="three",
            ),
        ),
        published=Published(
            "models of 7 billion", "ToolBench, in domain", "plan right, act exact, hallucinated, F1 of arguments, %",
            "88.92, 58.94, 0.57, 52.24", "one model 81.92, 53.26, 2.32, 45.57", "the authors' repository",
        ),
        ours=(
            Result(
                "SmolLM2-135M-Instruct", "tables, 29 questions", "right, %, sampled", "one agent 0.0",
                "20.7 [6.9, 37.9]", "one agent 51.7 [34.5, 69.0]",
                "to one agent -31.0 [-55.2, -6.9], over the questions", "0", "33,911 tokens learned; one agent 34,155",
                "python -m experiments.train --config=configs/tables.py --config.train.steps=18 "
                "--config.team.begin=runs/one --config.team.begin_step=30 "
                "--config.team.begin_map=\"('planner=solver','caller=solver','summarizer=solver')\"",
                "systems.md", NOT_SHOWN,
            ),
        ),
        differs="generated questions over a table, four tools, 135M parameters; whole conversations in place of single "
        "steps",
    ),
    "der": Row(
        title="DER", source="arXiv 2412.07448", trained="a router", protocol="one agent at a time, whom the router "
        "chooses, reads the last answer", credit="change in quality less the answer's cost, GAE over a route",
        loss="PPO of the router", level="api", page="systems.md#a-router-over-agents",
        test="unit/systems/test_router.py", run=(trained("reasoning.py:routes"),),
        smoke=(trained("systems.py:der,smoke"),),
        covers=("train.system=der", "train.protocol=routed", "router.kind=learned", "router.kind=fixed"),
        published=Published(
            "eleven models of 7 to 13 billion", "MixInstruct, GSM8K", known_from=f"{ABSTRACT}; its rows were not read"
        ),
        ours=(
            Result(
                "three scripts", "routes, one answer", "return, %", "32.3", "95.3, 94.7, 94.7",
                "always the dearest 90.0", "[94.1, 96.6], [93.7, 95.6], [93.7, 95.6], over the questions", "0, 1, 2",
                "300 iterations; the dearest costs 10 a question, the routers 4.7, 5.3, 5.3",
                "python -m experiments.train --config=configs/reasoning.py:routes", "systems.md",
                NOTHING_TO_COMPARE,
            ),
        ),
        differs="scripts with known abilities and prices in place of models; quality is the task's score",
    ),
    "cascade": Row(
        title="Cascade by confidence", source="arXiv 2502.04506 (API level)", trained="nobody",
        protocol="one agent after the other, until one is confident", credit="none", loss="none", level="api",
        page="systems.md#a-router-over-agents", test="unit/protocols/test_protocols_routed.py",
        run=(evaluated("levels.py:cascade"),), smoke=(evaluated("levels.py:cascade,smoke"),),
        covers=("router.kind=cascade",), differs="two of the three experts know little of their own kind",
        ours=(of_levels("30.1 [21.8, 38.9]", "-17.1 [-30.1, -4.6]"),),
    ),
    "router_in_words": Row(
        title="Router in words", source="arXiv 2502.04506 (API level)", trained="nobody",
        protocol="an agent's last line names who answers next", credit="none", loss="none", level="api",
        page="systems.md#a-router-over-agents", test="unit/protocols/test_protocols_prompted.py",
        run=(
            evaluated("levels.py:cascade", "--config.router.kind=prompt", "--config.router.agent=expert_0"),
        ),
        smoke=(
            evaluated("levels.py:cascade,smoke", "--config.router.kind=prompt", "--config.router.agent=expert_0"),
        ),
        covers=("router.kind=prompt",),
        differs="an expert that has learned to answer with a number decides, and names nobody",
        ours=(of_levels("0.0 [0.0, 0.0]", "-47.2 [-58.3, -36.1]"),),
    ),
    "read": Row(
        title="ReAd", source="arXiv 2405.14314", trained="a critic; the planners stay as they are",
        protocol="in order in a world; actions of too small an advantage are asked again",
        credit="advantage over waiting", loss="squared error of Q", level="text", page="worlds.md#a-gate-over-actions",
        test="unit/protocols/test_gated.py",
        run=(evaluated("world.py:kitchen,gated", "--config.gate.q=learned"),),
        smoke=(evaluated("world.py:kitchen,gated,smoke"),), covers=("train.protocol=gated",),
        published=Published(
            "GPT-4-Turbo", "sandwich, recipe 3", "success; steps; questions", "1.0; 8.9; 22.1", "RoCo .8; 11.5; 33.7",
            "a translation of the paper",
        ),
        ours=(
            Result(
                "scripts, right with .4", "kitchen, two cooks", "share that served all", ".458", "1, learned values",
                "values of other states .486 [.479, .500], at 120 questions",
                "[1, 1], smallest and greatest of the seeds; without a gate [.458, .458]", "0, 1, 2",
                "64.6 questions an episode; without a gate 34.0",
                "python -m benchmarks.gate --seeds=3 --samples=8", "worlds.md", SAME,
            ),
        ),
        differs="scripts as planners, whose episodes the values are learned from; more questions than without the "
        "gate, where the paper has fewer than RoCo",
    ),
    "mutual": Row(
        title="Bi-directional feedback", source="arXiv 2401.06603", trained="adviser and actor",
        protocol="advice, steps, a report, advice", credit="adviser: return less that without advice; actor: return",
        loss=GRADIENT, level="text", page="worlds.md#an-adviser-and-an-actor",
        test="unit/systems/test_mutual.py", run=(trained("world.py:ball"),),
        smoke=(trained("systems.py:mutual,smoke"),), covers=("train.system=mutual", "train.protocol=advice"),
        published=Published(
            "a model of 80 million", "BabyAI, go to the red ball", "success by iteration", "curves alone",
            "the same without feedback", ABSTRACT,
        ),
        ours=(
            Result(
                "two layers, random at first", "a ball in a room", "success, %, sampled", "11.2, 9.3, 8.9",
                "31.8, 35.4, 37.8", "no advice 36.3, 39.0, 29.7; an adviser that knows the way 95.6, 98.6, 96.7",
                "difference to no advice +0.0 (-17.4, +17.4), paired by seed", "0, 1, 2",
                "300 iterations, 510,000 tokens; no advice 190,000",
                "python -m experiments.train --config=configs/world.py:ball", "worlds.md", NOT_SHOWN,
            ),
        ),
        differs="the equation is ours; a room of five by five cells, tiny models; advice means nothing at first",
    ),
}  # fmt: skip
