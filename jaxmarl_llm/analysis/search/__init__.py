"""What a search for programs found, and what it cost.

`results` takes it from a forest, to and from JSON, `metrics` has means over problems with intervals,
`seeds` the same over several searches, `ledger` calls, tokens and executions of every agent.
"""
