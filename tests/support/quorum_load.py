"""Creates through brokers, one after another, while controllers come and go: which were answered, and how soon."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.support.real_brokers import until
from tests.support.wire import Wire

REPLY_S = 5.0
"""A broker whose request to a controller is stuck is left for the next one."""
PAUSE_S = 0.1
VERSION = 7


@dataclass(frozen=True, slots=True)
class Made:
    """A create that was answered without an error, and when it began and ended."""

    name: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class Creates:
    """Creates topics until the block ends, each through the next broker; `unanswered` may have been made, or not."""

    addresses: Sequence[str]
    factor: int = 3
    made: list[Made] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    _kept: int = 0
    _checked: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join(60)

    def works_after(self, at_s: float, within_s: float = 240) -> float:
        """Seconds from a moment until a create that began after it was answered well."""

        def first() -> Made | None:
            return next((each for each in list(self.made) if each.began_s >= at_s), None)

        found = until(first, within_s, "a create works")
        assert found is not None
        return found.ended_s - at_s

    def check(self) -> None:
        """Every topic whose create was answered since the check before the last is there. Older ones go."""
        count = len(self.made)
        names = [each.name for each in self.made[self._kept : count]]
        with Wire(self.addresses[0]) as wire:
            until(lambda: not _missing(wire, names), 60, f"{len(names)} topics whose creates were answered are there")
            old = [each.name for each in self.made[self._kept : self._checked]]
            deleted = wire.call("DeleteTopics", 5, topic_names=old, timeout_ms=30_000)
        assert {each["error_code"] for each in deleted["responses"]} <= {0}, deleted
        self._kept, self._checked = self._checked, count

    def _run(self) -> None:
        wires: dict[str, Wire] = {}
        prefix, number = f"load-{uuid4().hex[:8]}", 0
        while not self._ended.is_set():
            address = self.addresses[number % len(self.addresses)]
            name = f"{prefix}-{number}"
            number += 1
            began = time.monotonic()
            try:
                wire = wires.get(address) or wires.setdefault(address, Wire(address, timeout_s=REPLY_S))
                code = _create(wire, name, self.factor)
            except (OSError, TimeoutError):
                self.unanswered += 1
                if address in wires:
                    wires.pop(address).close()
                continue
            if code:
                self.refused[code] += 1
            else:
                self.made.append(Made(name, began, time.monotonic()))
            self._ended.wait(PAUSE_S)
        for wire in wires.values():
            wire.close()


def _create(wire: Wire, name: str, factor: int) -> int:
    topic: dict[str, Any] = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": factor,
        "assignments": [],
        "configs": [],
    }
    answer = wire.call("CreateTopics", VERSION, topics=[topic], timeout_ms=30_000, validate_only=False)
    code: int = answer["topics"][0]["error_code"]
    return code


def _missing(wire: Wire, names: Sequence[str]) -> list[str]:
    topics = [{"name": each} for each in names]
    answer = wire.call("Metadata", 8, topics=topics, allow_auto_topic_creation=False)
    return [each["name"] for each in answer["topics"] if each["error_code"]]
