"""A network that can be cut: what waits comes late, nothing is lost, and only the cut direction waits."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from tests.support.network import Network

OTHER, SELF = 1, 2
"""A server, and this very process."""


def _echo(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(100):
                connection.sendall(data + b"!")


@pytest.mark.parametrize("node", [OTHER, SELF])
@pytest.mark.parametrize(("into", "out_of"), [(True, False), (False, True), (True, True)])
def test_what_is_cut_waits(node: int, into: bool, out_of: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Network() as network:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        port = network.way_to(OTHER, server.getsockname()[1], lambda: None)
        network.way_to(SELF, 1, os.getpid)
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"a")
            assert client.recv(10) == b"a!"
            network.cut(node, into=into, out_of=out_of)
            client.sendall(b"b")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(10)
            network.mend(node)
            client.settimeout(60)
            assert client.recv(10) == b"b!"
        server.close()


def test_a_node_that_is_not_there_closes() -> None:
    with Network() as network:
        port = network.way_to(OTHER, 1, lambda: None)
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert client.recv(10) == b""
