"""Which part of an answer is judged: the whole program, or only the function, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmarl_llm.tasks.coding.text import extract_function, has_return
from jaxmarl_llm.tasks.program_text import python_text
from jaxmarl_llm.tasks.program_text.answers import program

PARSINGS = ("python", "paper")


def source(completion: str, function: str, parsing: str = "python") -> str:
    """The source in an answer that is to define `function`; '' if there is none.

    parsing: "python" keeps all that Python would run, see `program_text.answers`: the agent's own imports,
    constants, decorators, helpers and classes. "paper" keeps only the function's text, see
    `extract_function`.
    """
    if parsing == "paper":
        return extract_function(completion, function)
    code = program(completion, function).strip("\n")
    return code if python_text.defines(code, function) else ""


def counts(source_text: str, parsing: str = "python") -> bool:
    """Whether a source has the requested function: with "paper" only if it returns a value."""
    return has_return(source_text) if parsing == "paper" else bool(source_text)


def read(completions: Mapping[str, str], functions: Mapping[str, str], parsing: str) -> dict[str, str]:
    """{agent: source} of the agents whose answers hold their functions ({agent: name}), in order."""
    texts = {agent: source(completions[agent], name, parsing) for agent, name in functions.items()}
    return {agent: text for agent, text in texts.items() if counts(text, parsing)}
