"""Several models write one text: `engine` lets them answer in place of one agent, in any evaluation.

`settings` says how, `switching` is Collab itself, on texts and numbers alone, `writers` are the models: what each reads
of a text, proposes, and how it would go on; `values` are what a switch goes by, `ledger` what an answer has cost.
"""
