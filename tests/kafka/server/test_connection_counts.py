"""How many connections one address, and all together, may have: on every door, and handshakes count too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from controller.kafka.messages import ApiKey
from controller.kafka.server.service import ConnectionCounts
from controller.kafka.server.tls import Tls
from tests.kafka.server.gates import at_once
from tests.kafka.server.listener import Run, connected, metadata_request, run, serving, until
from tests.kafka.server.test_tls import settings
from tests.security.certificates import Authority

__all__ = ["run"]


def test_an_address_has_its_own_limit_or_that_of_all() -> None:
    counts = ConnectionCounts(2, {"192.0.2.9": 1, "192.0.2.8": 0})
    with capture_logs() as logs:
        assert [counts.admit("192.0.2.1") for _ in range(3)] == [True, True, False]
        assert [counts.admit("192.0.2.9") for _ in range(2)] == [True, False]
        assert not counts.admit("192.0.2.8")
    assert [log["reason"].rpartition(" ")[2] for log in logs] == ["2", "1", "0"]
    counts.left("192.0.2.1")
    assert counts.admit("192.0.2.1")


def test_all_addresses_together_have_a_limit() -> None:
    counts = ConnectionCounts(total_max=3)
    assert [counts.admit(f"192.0.2.{number}") for number in range(5)] == [True, True, True, False, False]
    counts.left("192.0.2.0")
    assert counts.total == 2
    assert counts.admit("192.0.2.4")


def test_addresses_that_have_left_are_forgotten() -> None:
    counts = ConnectionCounts()
    for number in range(1000):
        counts.admit(str(number))
        counts.left(str(number))
    assert counts.total == 0
    assert not counts._by_host, "each address that ever came is kept"


def test_listeners_share_the_limit_of_an_address(run: Run) -> None:
    async def scenario() -> None:
        counts, handlers = ConnectionCounts(1), {ApiKey.METADATA: at_once}
        with capture_logs() as logs:
            async with serving(handlers, counts=counts) as one, serving(handlers, counts=counts) as other:
                async with connected(one) as first:
                    first.send(metadata_request(1))
                    assert await first.correlation_ids(1) == [1]
                    async with connected(other) as second:
                        assert await second.closed() == b""
                await until(lambda: counts.total == 0)
                async with connected(other) as third:
                    third.send(metadata_request(3))
                    assert await third.correlation_ids(1) == [3]
        reason = "too many connections from one address: max.connections.per.ip allows 1"
        assert [(log["event"], log["reason"]) for log in logs] == [("connection_rejected", reason)]

    run(scenario)


def test_a_handshake_counts_until_it_ends(run: Run, tmp_path: Path) -> None:
    tls = Tls(settings(Authority(tmp_path).issue("server")))

    async def scenario() -> None:
        counts = ConnectionCounts(1)
        async with serving({ApiKey.METADATA: at_once}, tls=tls, counts=counts) as server:
            _, waiting = await asyncio.open_connection("127.0.0.1", server.port)
            await until(lambda: counts.total == 1)
            async with connected(server) as second:
                assert await second.closed() == b""
            waiting.close()
            await until(lambda: counts.total == 0)

    run(scenario)
