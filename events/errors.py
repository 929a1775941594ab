"""The base class of the errors whose message `topicwright` prints to the user of a command."""


class UserError(Exception):
    """An error whose message says what is wrong and what to do: the command line prints it without a stack trace."""

    exit_code = 2
