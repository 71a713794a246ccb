"""Agents with tools answer questions about a table: planner, caller and summarizer (alpha-UMi), or one agent.

Command:   python -m experiments.train --config=configs/tables.py
Result:    one agent: 46.5 % of test answers right, greedily 56.1 % (one seed); two stages: docs/systems.md
Cost:      one agent: 34 minutes of one core for 60 iterations; three agents: two minutes an iteration
Variants (after a colon, comma-separated):
  one            one agent, which plans, calls and answers
  learn          from rewards, with the tools (MAGRPO), instead of demonstrations; set the run to begin from,
                 --config.team.begin=<run folder>
  smoke          tiny random models, everything else real
The two stages of the paper are two runs; the second begins from the first:
  python -m experiments.train --config=configs/tables.py:one --workdir=runs/one
  python -m experiments.train --config=configs/tables.py --workdir=runs/three --config.team.begin=runs/one \
      --config.team.begin_map="('planner=solver','caller=solver','summarizer=solver')"
"""

from jaxmarl_llm.config import base_config, parse_arg, presets

TEAM, ALONE = ("planner", "caller", "summarizer"), ("solver",)
TABLES = "jaxmarl_llm.tasks.reasoning.tables"


def get_config(arg=None):
    """Demonstrations for three agents, or one of the variants named in the module's docstring."""
    options = parse_arg(arg, one=False, learn=False, smoke=False)
    config = base_config()
    config.task.kind, config.task.source, config.task.total = "reasoning", "tables", "last"
    presets.laptop(config)
    config.train.joint_mode = "aligned"
    config.tools.functions = tuple(f"{TABLES}:{name}" for name in ("look_up", "add", "scale", "convert"))
    config.team.agents = ALONE if options.one else TEAM
    config.train.protocol = "simultaneous" if options.one else "planner"
    config.sampling.max_prompt_tokens, config.sampling.max_new_tokens = 640, 80
    config.sampling.temperature = 0.7
    config.train.prompts_per_microbatch, config.train.tokens_per_microbatch = 4, 320
    config.eval.every, config.eval.samples, config.eval.problems = 0, 1, 32
    if options.learn:
        config.train.prompts, config.train.group, config.train.steps = 4, 8, 40
        config.train.lr = 1e-4
    else:
        config.train.system, config.train.steps, config.train.lr = "sft", 60, 5e-4
        config.sft.source, config.sft.batch = f"{TABLES}:solution", 16
    if options.smoke:
        presets.smoke(config)
        config.sampling.max_new_tokens, config.policy.remat = 80, "none"
        config.sft.batch = 4
    return config
