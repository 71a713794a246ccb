"""Commits: a message about a change of a program, and the change rebuilt from the message."""
