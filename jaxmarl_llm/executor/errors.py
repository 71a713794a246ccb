"""Errors that the executor's caller has made."""


class InputError(ValueError):
    """An argument of the executor that cannot be used; its message names it and what is allowed."""
