"""Errors of the user: input, files, packages and numbers that a command reports in one sentence."""


class UserError(ValueError):
    """Something given cannot be used: a config field, a flag, a file, an argument, the state of a run folder.

    The message is a whole sentence that names the thing, its value and what is allowed. Commands print it
    without a traceback; any other exception is a bug and keeps its traceback.
    """


class StorageError(UserError, OSError):
    """A file cannot be written or read: no space, no permission, a broken disk."""


class MissingPackageError(UserError, ImportError):
    """An optional package is not installed."""


class CommandFailed(UserError, RuntimeError):
    """A command that this one started has failed, and has printed why."""


class NotFiniteError(UserError, FloatingPointError):
    """A number of the training is not finite."""
