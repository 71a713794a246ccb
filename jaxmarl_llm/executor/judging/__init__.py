"""The side that holds the tests: verdicts, and what the agents' programs did with each other."""
