"""Lessons that agents tell each other: the bank, relevance, and what is kept from problem to problem."""
