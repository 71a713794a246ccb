"""Search over the steps of a text, on the host and without JAX.

`best_first` keeps the open nodes and selects the next one. `steps` determines where a step of a text ends.
`trees` builds the tree of steps of several texts.
"""
