"""What everything in the log is made of."""

from __future__ import annotations

import msgspec


class Fact(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of every value in the log: immutable, compared by value, encoded as an array.

    A longer array than this release knows is refused, not cut: what a newer release added may have changed a decision.
    """
