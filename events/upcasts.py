"""How events of an older version become events of the newest.

`UPCASTS[n]` takes the array of an event written in version n (its type first) and returns the array of the same event
in version n + 1. Version 1 is the first, so there is nothing to raise yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

UPCASTS: dict[int, Callable[[list[Any]], list[Any]]] = {}
