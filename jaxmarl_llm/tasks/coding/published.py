"""Prompts with the structure of MAGRPO's published coding experiments, in our own words.

After OpenMLRL/LLM_Collab_Code_Generation (arXiv:2508.04652): the problem, what the agent should write and
what not, and a skeleton of the output; no worked examples. It is one user message, so without a chat
template, as in the published experiments (CoMLRL applies none), the prompt is this text alone. A helper's
prompt does not mention other helpers.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.roles import helper_functions

HELPER = """\
Write one helper function for the problem below.

{problem}

Rules:
- Write the function {function} and nothing else.
- It must help the main function {entry_point} and return something.
- Answer with Python code only: no Markdown fences, no explanation, no tests.

Your output has this form:
def {function}({arguments}):
    # code of the helper
    return result
"""

MAIN = """\
Write the function {entry_point} that solves the problem below.

{problem}

{given}Rules:
- Write the function {entry_point} and nothing else.
{helpers}- Answer with Python code only: no Markdown fences, no explanation, no tests.

Your output has this form:
def {entry_point}({arguments}):
    # code of the function
    return result
"""


def render(item: CodingItem, agents: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    """Chat messages by agent, one each; names are (helpers .., main), or one agent that works alone."""
    helpers, problem = helper_functions(agents), item.prompt.strip()
    fields = {"problem": problem, "entry_point": item.entry_point, "arguments": item.arguments}
    texts = {agent: HELPER.format(function=name, **fields) for agent, name in helpers.items()}
    calls = [f"{name}({item.passed})" for name in helpers.values()]
    existing = "".join(f"A helper function {call} exists already.\n" for call in calls)
    rules = "".join(
        f"- Do not define {name} again. You may call it and assign the result to a variable.\n"
        for name in helpers.values()
    )
    existing = f"{existing}\n" if existing else ""
    texts[agents[-1]] = MAIN.format(given=existing, helpers=rules, **fields)
    return {agent: [{"role": "user", "content": text}] for agent, text in texts.items()}
