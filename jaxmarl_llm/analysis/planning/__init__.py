"""Plan runs for hardware that is not present: compile ahead of time, and estimate times with a cost model."""
