"""Means with intervals, tests of differences, and metrics along steps; NumPy and SciPy only.

`bootstrap` gives the intervals, `significance` the tests and t-intervals, `series` the curves.
"""
