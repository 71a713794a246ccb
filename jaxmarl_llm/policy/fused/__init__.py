"""Attention that never stores the scores: kernels of the backends, merged over blocks by their normalisers.

`seen` says what a query sees if prompts are padded on the right, `merge` attends to several blocks as if they
were one, `plain`, `cudnn` and `splash` attend to one block, `over_axes` applies this under ``vmap`` and on a
mesh, `choice` chooses for a policy and a backend.
"""
