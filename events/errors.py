"""Errors for the person who runs a command."""


class UserError(Exception):
    """An error that its message explains to the person who runs a command, so that no stack trace is needed."""

    exit_code = 2
