"""HTTP readers of the current state, of past states (`at=`), of pages, and of the event stream."""

import hashlib
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any, Final

from tests.soak.nodes import Node

NOW: Final = ("/v1/topics?limit=100", "/v1/health", "/v1/requests?limit=50", "/v1/events?order=newest&limit=50")
PAGES: Final = ("/", "/v1/topics", "/v1/brokers", "/v1/requests")
PAUSE_S: Final = 0.25
RETAINED: Final = 200
"""The number of offsets whose state is remembered, to be read again."""
SILENT_S: Final = 30.0
"""Socket timeout; an event stream sends a keep-alive every ten seconds."""


class Reader(threading.Thread):
    """Reads a node's pages and paths; the state at an offset must never change."""

    def __init__(self, node: Node, seed: int) -> None:
        super().__init__(name=f"reader of {node.name}", daemon=True)
        self.took: list[tuple[float, float]] = []
        """(time of the request, duration) of each answer, in seconds."""
        self.past = 0
        """The number of reads of a past state."""
        self.wrong: list[str] = []
        self._node, self._chance = node, random.Random(seed)
        self.over = threading.Event()
        self._kept: dict[int, bytes] = {}

    def run(self) -> None:
        while not self.over.wait(PAUSE_S) and not self.wrong:
            with suppress(OSError, http.client.HTTPException):  # a fault has stopped the node
                self._read_one()

    def end(self) -> None:
        """Stop the thread and wait for its last read."""
        self.over.set()
        self.join(90)

    def _read_one(self) -> None:
        what = self._chance.randrange(3)
        if what == 0:
            self._get(self._chance.choice(NOW))
        elif what == 1:
            self._get(self._chance.choice(PAGES), accept="text/html")
        elif self._node.name.startswith("gateway"):  # each partition has its own offsets, so read by time
            self._get(f"/v1/topics?limit=100&at={time.time_ns() // 1_000_000 - self._chance.randrange(60_000)}ms")
        else:
            self._read_past()

    def _read_past(self) -> None:
        """Read the state at a random offset: one that was read before, or a new one."""
        if self._kept and self._chance.random() < 0.5:
            at = self._chance.choice(list(self._kept))
        else:
            newest = self._get("/v1/events?order=newest&limit=1")
            if newest is None or not json.loads(newest)["events"]:
                return
            at = self._chance.randrange(json.loads(newest)["events"][0]["offset"] + 1)
        shown = self._get(f"/v1/topics?limit=100&at={at}")
        if shown is None:
            return
        digest = hashlib.sha256(shown).digest()
        if self._kept.setdefault(at, digest) != digest:
            self.wrong.append(f"{self._node.name} shows other topics as of offset {at} than before: {shown[:1000]!r}")
        self.past += 1
        if len(self._kept) > RETAINED:
            del self._kept[self._chance.choice(list(self._kept))]

    def _get(self, path: str, accept: str = "application/json") -> bytes | None:
        """The body of the answer, or None if the node does not serve now."""
        if not self._node.http:
            return None
        request = urllib.request.Request(f"http://{self._node.http}{path}", headers={"Accept": accept})
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError as error:
            if error.code != 503:
                self.wrong.append(f"{self._node.name} answers {path} with {error.code}: {error.read()[:500]!r}")
            return None
        self.took.append((began, time.monotonic() - began))
        return body


class Follower(threading.Thread):
    """Follows a node's event stream from the first event, across restarts; each event must come once, in order. At a
    gateway it follows partition 0."""

    def __init__(self, node: Node) -> None:
        super().__init__(name=f"follower of {node.name}", daemon=True)
        self.reached = 0
        """The offset of the next event."""
        self.again = 0
        """The number of times that the stream ended."""
        self.wrong: list[str] = []
        self._node = node
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2) and not self.wrong:
            with suppress(OSError, http.client.HTTPException):
                self._follow()
            self.again += 1

    def end(self, newest: int, within_s: float = 120) -> None:
        """Wait until the stream has reached an offset, then stop."""
        deadline = time.monotonic() + within_s
        while self.reached <= newest and time.monotonic() < deadline and not self.wrong:
            time.sleep(0.1)
        if self.reached <= newest:
            self.wrong.append(f"the stream of {self._node.name} is at {self.reached}, and the newest is {newest}")
        self.over.set()

    def _follow(self) -> None:
        if not self._node.http:
            return
        connection = http.client.HTTPConnection(self._node.http, timeout=SILENT_S)
        try:
            partition = "&partition=0" if self._node.name.startswith("gateway") else ""
            connection.request("GET", f"/v1/events/follow?from={self.reached}{partition}")
            answer = connection.getresponse()
            if answer.status not in (200, 503):
                self.wrong.append(f"{self._node.name} answers the stream with {answer.status}: {answer.read()[:500]!r}")
            while answer.status == 200 and not self.over.is_set() and (line := answer.readline()):
                if line.endswith(b"}\n") and not self._take(json.loads(line)):
                    return
        finally:
            connection.close()

    def _take(self, event: dict[str, Any]) -> bool:
        if event["offset"] != self.reached:
            self.wrong.append(f"the stream of {self._node.name} has {event['offset']} after {self.reached - 1}")
            return False
        self.reached += 1
        return True
