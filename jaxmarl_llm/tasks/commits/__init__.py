"""Commits: a message for a change of a program, and the change made again from the message."""
