"""Options of the data source `topicwright`. Each function raises ReplayError for an invalid value."""

from __future__ import annotations

from collections.abc import Mapping

from events.names import shard_key
from projections.replay.errors import ReplayError

CLUSTER = "-"
"""How option `shards` names the shard of events that concern every topic."""


def positive(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is an integer above 0."""
    number = number_option(options, name, default)
    if number == 0:
        raise ReplayError(f"option {name} must be above 0")
    return number


def number_option(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is an integer, 0 or more."""
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ReplayError(f"option {name}={text!r} is not a whole number, 0 or more")
    return int(text)


def wanted_shards(text: str | None) -> frozenset[str] | None:
    """The shard keys that option `shards` names; None for all."""
    if text is None:
        return None
    return frozenset("" if one == CLUSTER else shard_key(one) for one in map(str.strip, text.split(",")) if one)
