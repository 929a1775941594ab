"""What a shell is offered where a name is to be typed. argcomplete calls these on Tab; what goes wrong is silence."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from controller.cli.sources.chosen import a_source
from controller.cli.terminal import contexts

OFFERED_MAX: Final = 200
LOOKED_AT_MAX: Final = 1000
"""Topics: the most that a service gives at once. Some of them may be spelled otherwise: `.` and `_` stand together."""
WITHIN_S: Final = 2.0
"""Nobody waits longer for a Tab."""
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")
_NOWHERE: Final = {"http": None, "context": None, "data": None, "command_config": None}

Completer = Callable[..., Iterable[str]]


def completed_by(action: argparse.Action, completer: Completer) -> None:
    """Have what is typed for an argument completed."""
    action.completer = completer  # type: ignore[attr-defined]


def context_names(**_: Any) -> Iterable[str]:
    """The contexts that there are."""
    try:
        return sorted(contexts.read().by_name)
    except contexts.ContextError:
        return ()


def event_types(**_: Any) -> Iterable[str]:
    """The types of events."""
    from events.catalog import EVENT_TYPES

    return sorted(kind.__name__ for kind in EVENT_TYPES)


def topic_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """The topics of the service, or the folder, that the line names so far."""
    from controller.cli.sources.http import Refusal, SourceError
    from controller.cli.sources.http_access import AccessError

    options = argparse.Namespace(**{**_NOWHERE, **vars(parsed_args)})
    try:
        with a_source(options, WITHIN_S) as source:
            page = source.topics(_just_before(prefix), LOOKED_AT_MAX, None)
    except (SourceError, Refusal, AccessError, contexts.ContextError):
        return ()
    names = (one.name for one in page.topics if _LEGAL.fullmatch(one.name))  # whoever answers may be anybody
    return list(islice((name for name in names if name.startswith(prefix)), OFFERED_MAX))


def _just_before(prefix: str) -> str | None:
    """A name that no topic has, and that comes before all that begin so: topics are in the order of their names, with
    `.` as `_`."""
    if not prefix:
        return None
    key = prefix.replace(".", "_")
    return f"{key[:-1]}{chr(max(ord(key[-1]), 1) - 1)}~"
