"""The base class of the errors whose message `topicwright` prints to the user of a command, and the truncation of texts
that messages and events quote."""

CLIENT_TEXT_MAX = 256
"""Characters of client ids, principals and addresses in counted refusals; longer than any legitimate one."""


class UserError(Exception):
    """An error whose message says what is wrong and what to do: the command line prints it without a stack trace."""

    exit_code = 2


class MissingExtra(UserError):
    """A package that only an extra of Topicwright installs is missing."""

    def __init__(self, subject: str, extra: str, error: ImportError, instead: str = "") -> None:
        """`instead` is a way without the package, offered first: `add --flag, or `."""
        how = f"{instead}pip install 'topicwright[{extra}]'"
        super().__init__(f"{subject} needs {error.name}, which is not installed: {how}")


def shortened(text: str, chars_max: int) -> str:
    """The text with at most `chars_max` characters; `…` marks a truncated one."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
