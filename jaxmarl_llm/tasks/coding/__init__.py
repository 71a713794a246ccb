"""The coding task: helper functions and a main function, judged by tests."""
