"""Search over the steps of a text, on the host and without JAX.

`best_first` keeps the open nodes and says which one is next, `steps` says where a step of a text ends, `trees` makes
the tree of steps that some texts have together.
"""
