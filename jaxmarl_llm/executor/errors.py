"""Errors of whoever calls the executor."""


class InputError(ValueError):
    """An argument of the executor that cannot be used; its message names it and what is allowed."""
