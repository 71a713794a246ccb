"""Checks of finished runs.

`rescoring` scores recorded answers with another reward. `replaying` compares a repeated iteration with its
record. `fidelity` compares advantages with rewards obtained with resampled partner answers. `crossplay` forms
teams of agents from different runs.
"""
