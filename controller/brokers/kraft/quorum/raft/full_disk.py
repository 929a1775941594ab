"""What a voter does whose disk has no room: nothing of what it has said is lost, and it goes on once there is room.

What was to be appended is not, and what is not durable goes: nobody was answered for it. A leader hands over, where
others are there to lead; who follows fetches the same again, ever and again, and so acknowledges nothing. Where not
even an epoch or a vote can be written down, the only voter waits; a voter among others ends: it could neither vote nor
follow, and brokers would go on looking to it. So it does after any other failure of its disk: nothing is known of what
it has then.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from controller.brokers.kraft.quorum.raft.effects import Truncated, Warned

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CannotRemember(Exception):
    """There is no room for an epoch or a vote, without which a voter takes no part."""


def is_full(error: Exception) -> bool:
    """Whether a disk failed for want of room: what it has is whole then."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def no_room(core: Quorum, error: OSError) -> None:
    """The disk took nothing, or not all, of what was to be written. Raises the error where it is another one."""
    if not is_full(error):
        raise error
    if core.full is None:
        core.note(Warned(f"no room for the metadata log; this voter goes on once there is: {error}"))
    core.full = str(error)


def room_again(core: Quorum) -> None:
    """The disk took what was to be written."""
    if core.full is not None:
        core.full = None
        core.note(Warned("there is room for the metadata log again"))


def flush_failed(core: Quorum, now: float, error: OSError) -> None:
    """What is not durable goes. It was acknowledged to nobody, but others may have it: who led does so no longer.
    Raises OSError, where it is another one or that fails too."""
    no_room(core, error)
    if core.leading is not None:
        core.leading.resign(now)
    was, end = core.log.end, core.log.truncate(core.log.durable_end)
    core.history.truncated(end)
    core.note(Truncated(was, end))
    core.flush_ended()
    if core.following is not None:
        core.following.rest(now)
