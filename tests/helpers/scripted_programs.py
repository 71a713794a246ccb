"""Problems of both tasks of programs, and a judge that reads scores out of the programs."""

from jaxmarl_llm.tasks.coding.items import item_from_row
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.optimisation_items import load_items

ROW = {
    "task_id": "t/1",
    "prompt": 'import math\n\n\ndef twice(n: int) -> int:\n    """Twice n."""\n',
    "entry_point": "twice",
    "test": "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {2 * n}\n" for n in range(6)),
}
ITEM = item_from_row(ROW)
ITEMS = load_items("python[:1]")


class Judge:
    """Scores a program by the number that it returns: 0 is wrong; notes what it is asked."""

    cap = 10.0

    def __init__(self):
        self.asked, self.remeasured, self.required = [], [], []

    def judge(self, items, programs):
        self.asked.append((list(items), list(programs)))
        return [self.outcome(text) for text in programs]

    def remeasure(self, items, programs):
        self.remeasured.append((items, programs))
        return [Outcome("ok", text, 1.5) for text in programs]

    def require_compiler(self, items):
        self.required += items

    def outcome(self, text):
        if not text:
            return Outcome("no-program")
        number = text.split("return ")[-1].strip()
        if not number.replace(".", "").isdigit():
            return Outcome("build-error", text, log="no number", executions=1)
        score = float(number)
        return Outcome("ok" if score else "wrong", text, score, executions=1)
