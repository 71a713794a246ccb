"""Six mutants of one program, for models with few words: writer and rebuilder each write one of six.

The program has a place for each of six mutations. A rebuilder that writes the name of a mutation changes that
place of the given program, so the right name fixes it and every other name breaks a second place.
"""

from jaxmarl_llm.tasks.commits import diffs, prompts
from jaxmarl_llm.tasks.commits.items import Commit
from jaxmarl_llm.utils.errors import UserError

# By name: the text in the right program and in the mutant.
PLACES = {
    "branch": ("    if not prices:\n        return []\n", ""),
    "call": ("max(prices)", "min(prices)"),
    "operator": ("prices[-1] - prices[0]", "prices[-1] + prices[0]"),
    "boundary": ("sum(prices) >= limit", "sum(prices) > limit"),
    "constant": ("len(prices) - 1", "len(prices) - 2"),
    "arguments": ("(limit, len(prices))", "(len(prices), limit)"),
}
NAMES = tuple(PLACES)
ENTRY_POINT = "figures"
_PROGRAM = """\
def figures(prices, limit):
{branch}    top = {call}
    rise = {operator}
    over = {boundary}
    steps = {constant}
    each = divmod{arguments}
    return [top, rise, over, steps, each]
"""
# A test for each place: every mutant fails one, so all wrong changes are equally bad.
TEST = """\
def check(candidate):
    assert candidate([], 9) == []
    assert candidate([2, 7], 9)[0] == 7
    assert candidate([2, 7], 9)[1] == 5
    assert candidate([2, 7], 9)[2] == True
    assert candidate([2, 7], 9)[3] == 1
    assert candidate([2, 7], 9)[4] == (4, 1)
"""
PASSED = len(PLACES) - 1  # tests that each mutant passes


def program(*wrong: str) -> str:
    """The program with the mutations of these names."""
    return _PROGRAM.format(**{name: texts[name in wrong] for name, texts in PLACES.items()})


def load(split: str) -> list[Commit]:
    """The six commits. Too few to split: training and evaluations use the same ones (split 'all').

    Raises:
      UserError: for another split.
    """
    if split != "all":
        raise UserError(
            f"split is {split!r}, which is empty: six commits are too few to divide; allowed: all"
        )
    after = program()
    return [
        Commit(
            task_id=f"six/{name}",
            diff=diffs.of_programs(program(name), after, context=0),
            message=name,
            kind=name,
            before=program(name),
            after=after,
            entry_point=ENTRY_POINT,
            test=TEST,
            passed_before=PASSED,
            passed_after=len(PLACES),
            choices={word: program(*({name} ^ {word})) for word in NAMES},
        )
        for name in NAMES
    ]


def mixed(commit: Commit) -> list[dict[str, str]]:
    """Chains of two conventions, mixed half and half, for the agents writer and rebuilder.

    A demonstration function for ``sft.source``. In one convention the word for a mutation is its own name, in the
    other the name of its neighbour (mutations 1 and 2 of `NAMES` are neighbours, 3 and 4, 5 and 6). Each
    agent follows one of them independently, so they fit in half of the chains.
    """
    both = (commit.kind, NAMES[NAMES.index(commit.kind) ^ 1])
    return [{"writer": word, "rebuilder": change} for word in both for change in both]


def texts() -> list[str]:
    """Texts that together hold every word of all prompts and answers."""
    return [prompts.CHOOSE, *NAMES]
