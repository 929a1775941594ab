"""An `EventLog` in memory, for tests and simulations."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from events.logs.log import REQUEST, SHARD, Commit, LogClosed, check_commit, end_of_range, key_range


class InMemoryLog:
    """A log in memory, for tests and simulations; `drop_unflushed` simulates a power cut."""

    def __init__(self, cluster_id: str) -> None:
        self.path: Path | None = None
        self.cluster_id = cluster_id
        self.start_offset = self.next_offset = self.durable_offset = 0
        self._events: list[bytes] = []
        self._index: dict[bytes, dict[str, list[int]]] = {SHARD: {}, REQUEST: {}}
        self._state: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._unflushed: list[tuple[int, Commit, dict[bytes, bytes | None]]] = []
        self._open = True

    def write(self, commit: Commit) -> int:
        self._check_open()
        check_commit(commit)
        first = self.next_offset
        changes = {**commit.state, **commit.own}
        if not commit.entries and not changes:
            return first
        self._unflushed.append((first + len(commit.entries), commit, {key: self._state.get(key) for key in changes}))
        for offset, entry in enumerate(commit.entries, first):
            self._events.append(entry.value)
            self._index[SHARD].setdefault(entry.shard_key, []).append(offset)
            if entry.request_id:
                self._index[REQUEST].setdefault(entry.request_id, []).append(offset)
        self._put(changes)
        self.next_offset = len(self._events)
        return first

    def flush(self) -> int:
        self._check_open()
        end = self.next_offset
        while self._unflushed and self._unflushed[0][0] <= end:
            del self._unflushed[0]
        self.durable_offset = max(self.durable_offset, end)
        return self.durable_offset

    def mark_durable(self) -> None:
        self.durable_offset = self.next_offset

    def recover(self) -> int:
        return self.flush()

    def drop_unflushed(self, kept_commits: int = 0) -> int:
        """Lose unflushed commits, as a power cut does, except the oldest `kept_commits`. Returns `next_offset`."""
        while len(self._unflushed) > kept_commits:
            end, commit, before = self._unflushed.pop()
            assert len(self._events) == end, "the newest commit must be undone first"
            for entry in reversed(commit.entries):
                self._events.pop()
                self._index[SHARD][entry.shard_key].pop()
                if entry.request_id:
                    self._index[REQUEST][entry.request_id].pop()
            self.next_offset = len(self._events)
            self._put(before)
        self.durable_offset = min(self.durable_offset, self.next_offset)
        return self.flush()

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        self._check_open()
        return self._each_event(start, end_of_range(start, end, self.next_offset))

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        self._check_open()
        for offset in offsets:
            if not 0 <= offset < self.next_offset:
                raise IndexError(f"no event at offset {offset}: the log ends at {self.next_offset}")
        return [self._events[offset] for offset in offsets]

    def runs(self, index: bytes, name: str, start: int = 0, end: int | None = None) -> Iterator[range]:
        self._check_open()
        return self._each_run(self._index[index].get(name, []), start, end_of_range(start, end, self.next_offset))

    def shard_keys(self, after: str = "") -> Iterator[str]:
        self._check_open()
        by_shard = self._index[SHARD]
        return iter(sorted(key for key in list(by_shard) if key > after and by_shard[key]))

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._state.get(key)

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        return self._each_pair(*key_range(prefix, start_after))

    def close(self) -> None:
        if self._open:
            self.flush()
            self._open = False

    def _put(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                if self._state.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._state:
                    insort(self._keys, key)
                self._state[key] = value

    def _each_event(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for offset in range(start, stop):
            self._check_open()
            yield offset, self._events[offset]

    def _each_run(self, offsets: list[int], start: int, stop: int) -> Iterator[range]:
        for index in range(bisect_left(offsets, start), bisect_left(offsets, stop)):
            self._check_open()
            yield range(offsets[index], offsets[index] + 1)

    def _each_pair(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        index = bisect_left(self._keys, lower)
        while index < len(self._keys):
            key = self._keys[index]
            if upper is not None and key >= upper:
                return
            yield key, self._state[key]
            self._check_open()
            index = bisect_right(self._keys, key)

    def _check_open(self) -> None:
        if not self._open:
            raise LogClosed("this log is closed")
