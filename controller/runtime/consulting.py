"""Creates on their way back from the policies: each is an ask of the moment at which it was judged, so that the time of
the log never goes back. What policies are shown is in `controller.policy.shown`.
"""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine.commands import CreateTopic


def put_again(command: CreateTopic, now_ms: int) -> CreateTopic:
    """The command as of now: the time that its policies took is gone from its timeout, and its deadline stays."""
    if command.timeout_ms <= 0:
        return replace(command, at_ms=now_ms)
    return replace(command, at_ms=now_ms, timeout_ms=max(0, command.at_ms + command.timeout_ms - now_ms))
