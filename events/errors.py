"""Errors that commands print to their user."""


class UserError(Exception):
    """An error whose message is enough for the user of a command: it is printed without a stack trace."""

    exit_code = 2
