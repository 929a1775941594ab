"""Free TCP ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

LOWEST: Final = 12_000
BELOW: Final = 32_000
"""Linux gives ports above these (`net.ipv4.ip_local_port_range`) to whoever connects or binds port 0: one of those
would be taken by somebody else before its server has started."""
_CHANCE: Final = random.SystemRandom()  # pytest-randomly gives each test the same numbers


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports on 127.0.0.1 that nothing listens on now.

    For servers which must know their port before they bind it; where a server can bind port 0, let it.
    """
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            one, port = held.enter_context(socket.socket()), _CHANCE.randrange(LOWEST, BELOW)
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
    return tuple(found)
