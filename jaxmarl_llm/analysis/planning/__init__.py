"""Plan runs for hardware that is not at hand: compile ahead of time, and estimate times by the model."""
