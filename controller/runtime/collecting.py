"""How often Python looks for garbage in a process that serves."""

from __future__ import annotations

import gc


def settle() -> None:
    """Take what exists now for what will stay, and look for garbage seldom.

    State is hundreds of thousands of objects without cycles; looking through them at Python's own rate takes a tenth to
    a seventh of the time of deciding.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
