"""Advice on a joint answer to a coding problem: the request to an expert, and the parser of its reply.

The expert sees the problem and what every agent wrote, but no tests and no reward. It is asked to change as
little as possible: to add what is missing and to repair what cannot work. Its reply is a hint for the
agents' next turn and is never part of a loss.
"""

from __future__ import annotations

import json

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.roles import functions, helper_functions
from jaxmarl_llm.tasks.coding.sources import source
from jaxmarl_llm.tasks.coding.text import clean
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

PERFECT = "No changes needed."  # the expert's reply if it would change nothing

SYSTEM = "You review Python code that several programmers wrote apart from each other, and change little."

ASK = """\
The problem:

{problem}

{parts}

Would the code solve the problem? Change nothing that may be right, and nothing for the sake of style, speed
or length. Write a function only where it is missing, and repair it only where it cannot work. Keep names and
parameters.

If nothing has to be changed, answer with this sentence alone:
{perfect}

Otherwise answer with one JSON object and nothing else, with the keys {keys}. The value of a key is the whole
code of that function, or "" where it stays as it is:
{example}"""

PART = """\
{agent} was to write the function {function}{purpose}, and wrote:

{code}"""

_NOTHING = "(nothing)"
_LONGEST = 4000  # characters shown of an agent's answer without a function
_READ = 20_000  # characters at the end of an expert's answer; limits the time that a bad reply takes
_DECODER = json.JSONDecoder(strict=False)  # models write line breaks into strings


def request_messages(
    item: CodingItem, completions: dict[str, str], agents: tuple[str, ...], parsing: str = "python"
) -> list[dict[str, str]]:
    """Chat messages that ask for edits of one joint answer.

    Args:
      item: the problem; its tests are not shown.
      completions: each agent's last answer.
      agents: names in the order (helpers .., main), or (main,).
      parsing: which part of an answer is judged, and so shown; see `coding.sources`.

    Raises ValueError unless there is one completion per agent, and no other.
    """
    if set(completions) != set(agents):
        raise UserError(f"completions come from agents {sorted(completions)}, expected {sorted(agents)}")
    written = functions(agents, item.entry_point)
    helpers = helper_functions(agents)
    code = {agent: source(completions[agent], written[agent], parsing) for agent in agents}
    parts = [
        _part(item, agent, written[agent], agent in helpers, code[agent] or _beginning(completions[agent]))
        for agent in agents
    ]
    example = {agent: f"def {function}(...):\n    ..." for agent, function in written.items()}
    question = ASK.format(
        problem=item.prompt.strip(),
        parts="\n\n".join(parts),
        perfect=PERFECT,
        keys=" and ".join(f'"{agent}"' for agent in agents),
        example=json.dumps(example),
    )
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def parse_edits(text: str, agents: tuple[str, ...]) -> dict[str, str] | None:
    """The code that an expert suggests, by agent; agents without a suggestion are left out.

    Counts the last JSON object in the text that has every agent as a key, with text or null as values.
    Without
    one: {} if the text says that nothing has to be changed, else None.
    """
    text = text[-_READ:]
    start = len(text)
    while (start := text.rfind("{", 0, start)) >= 0:
        suggestions = _object(text, start)
        if all(isinstance(suggestions.get(agent, 0), str | None) for agent in agents):
            edits = {agent: _plain(suggestions[agent] or "") for agent in agents}
            return {agent: code for agent, code in edits.items() if code}
    lowered = " ".join(text.split()).lower()
    return {} if PERFECT.lower().rstrip(".") in lowered else None


def _part(item: CodingItem, agent: str, function: str, is_helper: bool, code: str) -> str:
    """An agent's code and its purpose as text."""
    purpose = f", a helper of {item.entry_point}" if is_helper else ""
    return PART.format(agent=agent, function=function, purpose=purpose, code=code)


def _beginning(completion: str) -> str:
    """What is shown of an answer without the function."""
    return clean(completion).strip()[:_LONGEST] or _NOTHING


def _object(text: str, start: int) -> dict:
    """The JSON object that begins there; empty if there is none."""
    try:
        return _DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return {}


def _plain(code: str) -> str:
    """Code without fences, and without lone surrogates, which JSON allows and tokenizers refuse."""
    return files.safe_text(clean(code).strip())
