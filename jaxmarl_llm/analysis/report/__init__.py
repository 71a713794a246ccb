"""One HTML page about one or several runs: curves with intervals over seeds, tables and transcripts.

`page.write` writes it; the parts are `runs` (reading), `grouping` (which runs make one curve),
`metric_names`, `panels` and `figures` (the pictures), `tables`, and `transcript_data` (for the page's browser
of transcripts).
"""
