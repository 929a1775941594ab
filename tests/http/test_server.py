"""The HTTP server: addresses, shutdown, log lines and query threads; and caching, compression, errors (RFC 9457) and
HEAD."""

import asyncio
import gzip
import logging
import signal
import socket
import threading
from collections.abc import Callable

import httpx
import pytest
import structlog

from controller.http.query_threads import OF_ONE_MAX, QueryThreads, TooBusy, client_host
from controller.serving.log_lines import HTTP_SERVER, forward_logs
from projections.queries.past import given_up
from tests.http.service import Service, service


async def test_http_server_binds_a_free_port_and_installs_no_signal_handlers() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with service() as one:
        assert one.port > 0
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        await one.get("/health/live")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", one.port)


async def test_an_address_in_use_is_reported(one: Service) -> None:
    other = one.http_side()
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{one.port} for HTTP: Address already in use"):
        await other.start("127.0.0.1", one.port)
    await other.stop()


async def test_idle_connections_do_not_delay_stop(one: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await one.http.stop()
    await reader.read()
    assert reader.at_eof(), "the server closed the connection"
    writer.close()


async def test_content_length_with_transfer_encoding_gets_400_and_no_next_request(one: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    head = b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head + b"0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answers = await reader.read()
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 400") == 1
    assert b"are both given" in answers
    writer.close()


async def test_non_http_bytes_get_400_and_are_logged() -> None:
    forward_logs(HTTP_SERVER)
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
    assert logging.getLogger(HTTP_SERVER).propagate is False


async def test_internal_errors_are_logged(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(one.query, "request", broken)
    with structlog.testing.capture_logs() as lines:
        reply = await one.get("/v1/requests/r", 500)
    assert reply["error"] == "UNKNOWN_SERVER_ERROR"
    assert "secret" not in reply["message"]
    assert [(line["event"], line["path"]) for line in lines] == [("http request failed", "/v1/requests/r")]
    assert isinstance(lines[0]["exc_info"], ZeroDivisionError)


async def test_kafka_brokers_cannot_be_stopped_over_http(one: Service) -> None:
    async with one.another(simulated=False) as (_, port):
        stop = f"http://127.0.0.1:{port}/v1/simulated/brokers/1/stop"
        assert (await one.client.post(stop)).status_code == 404


async def test_http_server_listens_on_ipv6() -> None:
    try:
        socket.socket(socket.AF_INET6).close()
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    probe.close()
    async with service() as one, one.another("::1") as (_, port):
        assert (await one.client.get(f"http://[::1]:{port}/health/live")).status_code == 200


async def test_queries_beyond_the_queue_limit_are_rejected() -> None:
    threads = QueryThreads(waiting_max=1)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    first = asyncio.create_task(threads.run(lambda: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()))
    await asyncio.sleep(0)
    with pytest.raises(TooBusy, match="1 queries are waiting already"):
        await threads.run(lambda: None)
    gate.set()
    assert await first
    assert await threads.run(lambda number: number + 1, 1) == 2
    threads.close()


async def test_a_cancelled_query_ends_and_frees_its_thread() -> None:
    threads = QueryThreads(waiting_max=1)
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gone = given_up.get()
        assert gone is not None
        assert gone.wait(60), "the query was cancelled"
        ended.set()

    waiting = asyncio.create_task(threads.run(work))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    assert await asyncio.to_thread(ended.wait, 60)
    assert await threads.run(lambda: given_up.get() is not None), "the cancelled query frees its thread"
    threads.close()


async def test_long_queries_of_one_address_leave_threads_for_other_addresses() -> None:
    threads = QueryThreads()
    may_end = threading.Event()

    async def run(host: str, work: Callable[[], object]) -> object:
        client_host.set(host)
        return await threads.run(work)

    long = [asyncio.create_task(run("10.0.0.1", lambda: may_end.wait(60))) for _ in range(OF_ONE_MAX)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(run("10.0.0.2", lambda: "at once"), 60) == "at once"
    with pytest.raises(TooBusy):
        await asyncio.create_task(run("10.0.0.1", lambda: None))
    may_end.set()
    assert all(await asyncio.gather(*long))
    assert not threads._of_host, "no state of disconnected clients remains"
    threads.close()


async def _raw(one: Service, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """Returns a response and its body as sent, still encoded."""
    async with one.client.stream("GET", path, headers={"accept-encoding": "identity", **headers}) as answer:
        return answer, b"".join([part async for part in answer.aiter_raw()])


async def test_if_none_match_gets_304(one: Service) -> None:
    await one.create("t")
    for path in ("/v1/topics", "/v1/topics/t", "/v1/topics/t", "/v1/requests", "/v1/health", "/v1/events"):
        answer, body = await _raw(one, path)
        assert (answer.status_code, bool(body)) == (200, True)
        assert answer.headers["cache-control"] == "private, no-cache"
        for known in (answer.headers["etag"], f'"other", W/{answer.headers["etag"]}', "*"):
            again, nothing = await _raw(one, path, **{"if-none-match": known})
            assert (again.status_code, nothing) == (304, b""), f"{path} {known}"
            assert again.headers["etag"] == answer.headers["etag"]
        assert (await _raw(one, path, **{"if-none-match": '"other"'}))[0].status_code == 200
    before = (await _raw(one, "/v1/topics"))[0].headers["etag"]
    await one.create("u")
    changed, _ = await _raw(one, "/v1/topics", **{"if-none-match": before})
    assert changed.status_code == 200


async def test_response_at_an_offset_is_constant_and_revalidated(one: Service) -> None:
    await one.create("t")
    offset = one.log.durable_offset - 1
    paths = ("/v1/topics/t", "/v1/topics", "/v1/brokers", "/v1/health", "/v1/explain/t", "/v1/events")
    for number, path in enumerate(paths):
        answer, body = await _raw(one, f"{path}?at={offset}")
        assert answer.headers["cache-control"] == "private, no-cache", path
        await one.create(f"later{number}")
        assert (await _raw(one, f"{path}?at={offset}"))[1] == body, path
    wrong, _ = await _raw(one, "/v1/topics?at=99999")
    assert (wrong.status_code, wrong.headers["cache-control"]) == (400, "no-store")


async def test_long_responses_are_compressed_with_gzip(one: Service) -> None:
    await one.create("t", num_partitions=100)
    plain, body = await _raw(one, "/v1/topics/t")
    zipped, packed = await _raw(one, "/v1/topics/t", **{"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == body
    assert len(packed) < len(body) / 4
    assert zipped.headers["etag"] != plain.headers["etag"], "a compressed body has its own ETag"
    assert "accept-encoding" in zipped.headers["vary"]
    short, _ = await _raw(one, "/v1/topics?limit=1&name=none", **{"accept-encoding": "gzip"})
    assert "content-encoding" not in short.headers
    refused, _ = await _raw(one, "/v1/topics/t", **{"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


async def test_head_is_get_without_the_body(one: Service) -> None:
    await one.create("t")
    for path, status in (("/v1/topics/t", 200), ("/v1/topics/none", 404), ("/health/ready", 200), ("/metrics", 200)):
        head = await one.client.head(path)
        answer = await one.client.get(path)
        assert (head.status_code, head.content) == (status, b""), path
        assert head.headers["content-type"] == answer.headers["content-type"]
    for path in ("/v1/events/follow", "/v1/events/follow/", "/v1/events//follow", "//v1//events///follow//"):
        follow = await one.client.head(path)
        assert (follow.status_code, follow.headers["allow"]) == (405, "GET"), path


async def test_errors_are_rfc_9457_problem_details(one: Service) -> None:
    made = await one.create("t")
    answer = await one.client.post("/v1/topics", json={"name": "t"})
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem == {
        "type": "urn:kafka:error:TOPIC_ALREADY_EXISTS",
        "title": "Topic already exists",
        "status": 409,
        "detail": problem["message"],
        "instance": f"/v1/requests/{problem['request_id']}",
        "error": "TOPIC_ALREADY_EXISTS",
        "code": 36,
        "message": problem["message"],
        "request_id": problem["request_id"],
        "rule": "validation:exists",
    }
    assert problem["message"].startswith("Topic 't' already exists.")
    assert made["request_id"] != problem["request_id"]
    assert (await one.get(problem["instance"]))["request_id"] == problem["request_id"]
    early = await one.client.get("/v1/topics", headers={"host": "evil.example"})
    assert (early.status_code, early.headers["content-type"]) == (421, "application/problem+json")
    assert (early.json()["status"], early.json()["instance"]) == (421, "")
