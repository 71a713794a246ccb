"""Who is asked, in which order."""

from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.protocols import Episode, Simultaneous


def prompts(item):
    return {name: [{"role": "user", "content": f"{name} {item}"}] for name in ("aux", "main")}


def test_everybody_speaks_once_on_every_item():
    protocol, state = Simultaneous(prompts, samples=3), Episode(("x", "y"))
    asked = protocol.step(state)
    expected = [(0, "aux", "aux x"), (0, "main", "main x"), (1, "aux", "aux y"), (1, "main", "main y")]
    assert [(r.item, r.agent, r.messages[0]["content"]) for r in asked] == expected
    assert asked[0] == SpeakRequest("aux", 0, ({"role": "user", "content": "aux x"},), 3, turn=0, parent=None)
    protocol.observe(state, ["turn 0", "turn 1"])
    assert state.turns == ["turn 0", "turn 1"]
    assert protocol.step(state) == []


def test_no_items_no_questions():
    assert Simultaneous(prompts, samples=2).step(Episode(())) == []


def test_episodes_do_not_share_their_turns():
    first = Episode(("x",))
    Simultaneous(prompts, samples=1).observe(first, ["turn"])
    assert Episode(("x",)).turns == []
