"""Lessons that agents write for each other: their bank, their relevance, their memory across problems."""
