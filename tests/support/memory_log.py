"""An `EventLog` in memory, for tests and simulations."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

from events.logs.log import REQUEST, SHARD, Commit, LogClosed, MemoryKeys, end_of_range


class InMemoryLog(MemoryKeys):
    """A log in memory, for tests and simulations; `drop_unflushed` simulates a power cut."""

    def __init__(self, cluster_id: str) -> None:
        super().__init__()
        self.path = Path("/nonexistent")
        self.cluster_id = cluster_id
        self.start_offset = self.next_offset = self.durable_offset = 0
        self._events: list[bytes] = []
        self._index: dict[bytes, dict[str, list[int]]] = {SHARD: {}, REQUEST: {}}
        self._unflushed: list[tuple[int, Commit, dict[bytes, bytes | None]]] = []
        self._open = True

    def write(self, commit: Commit) -> int:
        self._check_open()
        if commit.state and not commit.entries:
            raise ValueError("a commit changes state only together with the events that say so")
        first = self.next_offset
        changes = {**commit.state, **commit.own}
        if not commit.entries and not changes:
            return first
        self._unflushed.append((first + len(commit.entries), commit, {key: self.get(key) for key in changes}))
        for offset, entry in enumerate(commit.entries, first):
            self._events.append(entry.value)
            self._index[SHARD].setdefault(entry.shard_key, []).append(offset)
            if entry.request_id:
                self._index[REQUEST].setdefault(entry.request_id, []).append(offset)
        self.put(changes)
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
            self.put(before)
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
        return super().get(key)

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        return self._each_pair(super().scan(prefix, start_after))

    def close(self) -> None:
        if self._open:
            self.flush()
            self._open = False

    def _each_event(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for offset in range(start, stop):
            self._check_open()
            yield offset, self._events[offset]

    def _each_run(self, offsets: list[int], start: int, stop: int) -> Iterator[range]:
        for index in range(bisect_left(offsets, start), bisect_left(offsets, stop)):
            self._check_open()
            yield range(offsets[index], offsets[index] + 1)

    def _each_pair(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for pair in pairs:
            yield pair
            self._check_open()

    def _check_open(self) -> None:
        if not self._open:
            raise LogClosed("this log is closed")
