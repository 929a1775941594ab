"""Free TCP ports."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports on 127.0.0.1 that nothing listens on now.

    For servers which must know their port before they bind it; where a server can bind port 0, let it.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)
