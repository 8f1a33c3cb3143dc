"""Errors that a user can fix. `prbench.cli` prints them as one line; everything else keeps its traceback."""


class PrbenchError(Exception):
    """Something outside the code is wrong, and the message says what to do about it."""

    exit_code = 2


class DataError(PrbenchError):
    """A row, a file or a dataset cannot be used."""


class UsageError(PrbenchError):
    """A command, an option or a spec string is wrong, or a needed package is missing."""


class RunError(PrbenchError):
    """A run folder cannot be opened: it is locked, damaged, or belongs to another configuration."""


class BudgetError(PrbenchError):
    """A limit on requests, tokens or money does not allow the next request; what had arrived is kept."""

    exit_code = 1
