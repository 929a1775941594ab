"""The HTTP server as a part of the process: where it listens, how it ends, what it logs."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket

import httpx
import pytest
import structlog

from controller.http.app import Parts, build_app
from controller.http.following import Followers
from controller.http.gate import Hosts
from controller.http.query_threads import Reading, Stopping
from controller.http.server import HttpServer
from tests.http.service import Service, service


async def test_it_takes_a_free_port_and_leaves_the_signals_alone() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with service() as one:
        assert one.port > 0
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        await one.get("/health/live")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", one.port)


async def test_an_address_that_is_taken_is_named(one: Service) -> None:
    other = HttpServer(one.api, one.brokers, one.query, one.metrics)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{one.port} for HTTP: Address already in use"):
        await other.start("127.0.0.1", one.port)
    await other.stop()


async def test_idle_connections_do_not_hold_up_its_end(one: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await one.http.stop()
    await reader.read()
    assert reader.at_eof(), "closed by the server"
    writer.close()


async def test_what_is_no_http_is_answered_with_an_error_and_logged() -> None:
    with structlog.testing.capture_logs() as lines:
        async with service() as one:
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            writer.write(b"\x00\x00\x00\x2a nonsense\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 400")
            writer.close()
    assert {
        "event": "http server",
        "log_level": "warning",
        "why": "Invalid HTTP request received.",
        "exc_info": None,
    } in lines
    assert logging.getLogger("uvicorn.error").propagate is False


async def test_a_bug_is_logged_and_its_cause_not_shown_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    async with service() as one:
        monkeypatch.setattr(one.query, "request", broken)
        with structlog.testing.capture_logs() as lines:
            reply = await one.get("/v1/requests/r", 500)
        assert reply["error"] == "UNKNOWN_SERVER_ERROR"
        assert "secret" not in reply["message"]
        assert [(line["event"], line["path"]) for line in lines] == [("http request failed", "/v1/requests/r")]
        assert isinstance(lines[0]["exc_info"], ZeroDivisionError)


async def test_real_brokers_cannot_be_stopped_over_http(one: Service) -> None:
    reading, stopping = Reading(), Stopping()
    followers = Followers(one.query, reading, stopping)
    brokers: object = object()
    parts = Parts(one.api, brokers, one.query, one.metrics, reading, stopping, followers)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=build_app(parts, "1", Hosts()))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.post("/v1/simulated/brokers/1/stop")).status_code == 404
        assert (await client.get("/health/live")).status_code == 200
    reading.close()


async def test_ipv6_is_as_good() -> None:
    try:
        socket.socket(socket.AF_INET6).close()
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    probe.close()
    async with service() as one:
        other = HttpServer(one.api, one.brokers, one.query, one.metrics)
        port = await other.start("::1", 0)
        async with httpx.AsyncClient(verify=False) as client:
            assert (await client.get(f"http://[::1]:{port}/health/live")).status_code == 200
        await other.stop()
