"""Plan runs for hardware that is not at hand: compile ahead of time, and compute needs from the model."""
