"""Fuzzes the HTTP server from its OpenAPI document: `python -m tests.fuzz.http_door --seconds 3600 --seed 7`.

schemathesis generates valid and invalid requests. Some concern an existing topic. Between them come malformed HTTP
requests. For all of them: no response is an internal server error, an error has one of Kafka's codes in the common
form, a response matches the document, the server keeps answering other clients, and its memory does not grow.
"""

import argparse
import random
import re
import socket
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.support.topicwright import Topicwright, topicwright

CASES_AT_ONCE = 10
TOPICS = ("pay.orders", "pay.refunds", "audit")
ANSWERED_WITHIN_S = 120
TIMEOUT_MS_MAX = 200
EVERY_S = 0.02
_HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"
REQUESTS = (
    b"GET /v1/topics?limit=10&at=3" + _HEAD + b"\r\n",
    b"GET /v1/events?from=0&limit=5" + _HEAD + b"Authorization: Basic YTpi\r\nOrigin: http://localhost\r\n\r\n",
    b"POST /v1/topics?validate_only=true" + _HEAD + b'Content-Length: 35\r\n\r\n{"name": "near", "assignments":[[1]]}',
    b"POST /v1/topics" + _HEAD + b'Transfer-Encoding: chunked\r\n\r\nc\r\n{"name": "n"\r\n1\r\n}\r\n0\r\n\r\n',
    b"GET /v1/topics/pay%2Eorders" + _HEAD + b"Upgrade: h2c\r\nConnection: Upgrade\r\nExpect: 100-continue\r\n\r\n" * 2,
    b"DELETE /v1/topics/none" + _HEAD + b"X-Forwarded-For: ::1, a\r\n\r\nGET / HTTP/1.0\r\n\r\n",
)
"""Some of these are invalid."""
PARTITIONS_MAX = 20
_FITS: Any = response_schema_conformance
_ANY_MODE = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@dataclass(slots=True)
class Found:
    """Responses by status, the longest response time of another client, and the growth of memory."""

    statuses: Counter[int] = field(default_factory=Counter)
    waited_s: float = 0.0
    grown_bytes: int = 0

    def __str__(self) -> str:
        by_status = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        longest = f"another client waited {self.waited_s * 1000:.0f} ms at most"
        return (
            f"{sum(self.statuses.values())} answers ({by_status}); {longest}; {self.grown_bytes >> 10} KiB more memory"
        )


class Fuzzer:
    """Sends generated requests to a server."""

    def __init__(self, server: Topicwright, number: int) -> None:
        self.found = Found()
        self._base = f"http://{server.http}"
        self._pid = server.process.pid
        self._random = random.Random(number)
        self._seed = number
        self._session = requests.Session()
        self._over = threading.Event()

    def run(self, enough: Callable[[Found], bool]) -> None:
        """Fuzz until `enough`. Raises AssertionError at the first wrong response."""
        for name in TOPICS:
            assert self._session.post(f"{self._base}/v1/topics", json={"name": name}).status_code == 201
        schema = schemathesis.openapi.from_url(f"{self._base}/openapi.json")
        operations: list[Any] = list(schema.get_all_operations())
        rounds = [(each.ok(), mode) for each in operations for mode in _ANY_MODE]
        other = threading.Thread(target=self._be_another_client)
        other.start()
        before = self._memory()
        try:
            while rounds and not enough(self.found):
                for _ in range(CASES_AT_ONCE):
                    self._send_bytes(_changed(self._random.choice(REQUESTS), self._random))
                operation, mode = self._random.choice(rounds)
                try:
                    self._give(operation, mode)
                except Unsatisfiable:  # the operation has no invalid request
                    rounds.remove((operation, mode))
        finally:
            self._over.set()
            other.join()
        self.found.grown_bytes = self._memory() - before

    def _give(self, operation: Any, mode: GenerationMode) -> None:
        self._seed += 1

        @seed(self._seed)
        @settings(
            max_examples=CASES_AT_ONCE,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def some(case: Case[Any]) -> None:
            self._send(case)

        some()

    def _send(self, case: Case[Any]) -> None:
        self._bring_near(case)
        follows = case.operation.path.endswith("/follow")
        sent = case.as_transport_kwargs(base_url=self._base)
        with self._session.request(**sent, timeout=ANSWERED_WITHIN_S, stream=follows) as answer:
            self.found.statuses[answer.status_code] += 1
            shown = f"{case.as_curl_command()}\n{answer.status_code}"
            assert answer.status_code < 500 or answer.status_code in {503, 504}, shown
            if answer.status_code >= 400:
                error = answer.json()
                assert set(error) >= {"error", "code", "message"}, shown
                assert error["error"] != "UNKNOWN_SERVER_ERROR", shown
            elif not follows:
                case.validate_response(answer, checks=[_FITS])

    def _send_bytes(self, sent: bytes) -> None:
        """Send malformed HTTP: the server responds or closes the connection."""
        host, _, port = self._base.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=ANSWERED_WITHIN_S) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                came = b"".join(iter(lambda: connection.recv(1 << 16), b""))
                for status in map(int, re.findall(rb"^HTTP/1\.1 (\d+)", came, re.MULTILINE)):
                    self.found.statuses[status] += 1
                    assert status < 500 or status in {503, 504}, sent

    def _bring_near(self, case: Case[Any]) -> None:
        """Sometimes use an existing topic, and limit timeouts and partition counts."""
        if self._random.random() < 0.3 and isinstance(case.path_parameters, dict) and "name" in case.path_parameters:
            case.path_parameters["name"] = self._random.choice(TOPICS)
        if isinstance(case.body, dict):
            for name, most in (("timeout_ms", TIMEOUT_MS_MAX), ("num_partitions", PARTITIONS_MAX)):
                number = case.body.get(name)
                if isinstance(number, int):
                    case.body[name] = min(number, most)
            if self._random.random() < 0.3 and "name" in case.body:
                case.body["name"] = f"t.{self._random.randrange(1000)}"

    def _be_another_client(self) -> None:
        with requests.Session() as session:
            while not self._over.wait(EVERY_S):
                started = time.monotonic()
                assert session.get(f"{self._base}/health/live", timeout=ANSWERED_WITHIN_S).status_code == 200
                self.found.waited_s = max(self.found.waited_s, time.monotonic() - started)

    def _memory(self) -> int:
        """The server's resident memory, in bytes."""
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def _changed(text: bytes, source: random.Random) -> bytes:
    """Deletes, repeats or replaces ranges of bytes."""
    for _ in range(source.randrange(4)):
        start = source.randrange(len(text) + 1)
        end = min(len(text), start + source.choice((1, 1, 4, 40)))
        anew = source.choice((b"", text[start:end] * 2, source.randbytes(end - start), b"\r\n", b"%", b"9" * 5000))
        text = text[:start] + anew + text[end:]
    return text


def fuzz(enough: Callable[[Found], bool], number: int) -> Found:
    """Fuzz a new server. Raises AssertionError at the first wrong response."""
    print(f"HTTP: seed {number}", flush=True)
    with tempfile.TemporaryDirectory() as folder, topicwright(Path(folder)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of third-party tools
        fuzzer = Fuzzer(server, number)
        fuzzer.run(enough)
        return fuzzer.found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.http_door", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    print(fuzz(lambda _: time.monotonic() > ends, options.seed))


if __name__ == "__main__":
    main()
