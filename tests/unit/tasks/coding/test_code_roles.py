"""Names of the functions that the agents of a coding team write."""

from jaxmarl_llm.tasks.coding.roles import functions, helper_functions


def test_one_helper_is_aux_and_several_are_numbered_in_order():
    assert helper_functions(("main",)) == {}
    assert helper_functions(("left", "main")) == {"left": "aux"}
    assert helper_functions(("b", "a", "main")) == {"b": "aux1", "a": "aux2"}
    assert list(functions(("b", "a", "main"), "f").items()) == [("b", "aux1"), ("a", "aux2"), ("main", "f")]
    assert functions(("solo",), "f") == {"solo": "f"}
