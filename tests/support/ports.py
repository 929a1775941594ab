"""Free TCP ports."""

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

LOWEST: Final = 12_000
BELOW: Final = 32_000
"""Linux assigns ports above these (`net.ipv4.ip_local_port_range`) to clients and for port 0, so another process could
take one before its server has started."""
_CHANCE: Final = random.SystemRandom()  # pytest-randomly seeds `random` equally in each test


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports on 127.0.0.1 without a listener.

    For servers that must know their port before they bind it; other servers should bind port 0.
    """
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            one, port = held.enter_context(socket.socket()), _CHANCE.randrange(LOWEST, BELOW)
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
    return tuple(found)
