"""Several models write one text: `engine` lets them answer in place of one agent, in any evaluation.

`settings` has the options, `switching` the Collab algorithm, on texts and numbers only. `writers` are the
models: what each reads, proposes, and how it would continue. `values` decide a switch, `ledger` counts costs.
"""
