"""Looking back at finished runs.

`rescoring` judges recorded answers by another reward, `replaying` compares an iteration that was done again
with its record, `crossplay` makes teams of agents from different runs.
"""
