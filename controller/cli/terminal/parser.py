"""Reading the command line: flags in full, and a mistake answered with what was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE = 2


class Parser(argparse.ArgumentParser):
    """Python's, without abbreviated flags; what is wrong is said by the parser of the sub-command, with its usage."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **more})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Everything has to be known, also where a parser above would go on."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return found, unknown

    def _unknown(self, words: Sequence[str]) -> str:
        flag = next((word for word in words if word.startswith("-")), None)
        if flag is None:
            return f"{words[0]!r} is one word too many"
        name = flag.partition("=")[0]
        return f"there is no flag {name}{meant(name, self._option_string_actions)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(one) for one in action.choices]
        hint = meant(str(value), choices)
        listed = "" if hint and len(choices) > 8 else f"; say one of {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"{value!r} is not known{hint}{listed}")

    def error(self, message: str) -> NoReturn:
        """The usage, what is wrong, and where there is more."""
        self.print_usage(_standard_error())
        self.exit(USAGE, f"{self.prog}: error: {message}\n")


def meant(word: str, known: Iterable[str]) -> str:
    """The known word that comes near, as the end of a sentence; "" where none does."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _standard_error() -> Any:
    import sys

    return sys.stderr
