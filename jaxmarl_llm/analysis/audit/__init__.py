"""Checks of finished runs.

`rescoring` judges recorded answers by another reward, `replaying` compares an iteration that was done again
with its record, `fidelity` compares advantages with rewards beside fresh partners, `crossplay` makes teams of
agents from different runs.
"""
