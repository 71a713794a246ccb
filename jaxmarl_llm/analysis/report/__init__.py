"""One page about one or several runs: curves with intervals over seeds, tables, and every transcript in it.

`page.write` is the whole of it; the parts are `runs` (reading), `grouping` (what makes one curve),
`metric_names`, `panels` and `figures` (the pictures), `tables`, and `transcript_data` (what the page's
browser shows).
"""
