"""What a run needs of hardware that is not at hand: compiled ahead of time, and computed from the model."""
