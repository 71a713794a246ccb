"""Searches for programs: running one, its results and its costs.

`search` runs a search. `results` takes its results from a forest, and writes and reads them as JSON.
`metrics` has means over problems with intervals, `seeds` the same over several searches. `ledger` counts
calls, tokens and executions of every agent.
"""
