"""Lists of topics for who may see some of them, or none: a page costs so much and no more, and tells no hidden name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from controller.access.authorizer import Operation, Requester, ResourceType
from controller.http.paths import topics as reads
from events.logs.memory_log import InMemoryLog
from projections.queries import query
from tests.http.service import Rules, Service, service


class Counting(InMemoryLog):
    """A log that counts the events that are read of it, and the shards that are looked at."""

    reads = 0

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        self.reads += len(offsets)
        return super().read_many(offsets)

    def shard_keys(self, after: str = "") -> Iterator[str]:
        for key in super().shard_keys(after):
            self.reads += 1
            yield key


class Only(Rules):
    """Describe is allowed for topics whose names begin so; everything else to everybody."""

    def __init__(self, prefix: str | None) -> None:
        super().__init__(self._allows)
        self.prefix = prefix
        self.checks = 0

    def _allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.checks += 1
        if (operation, resource_type) != ("Describe", "Topic"):
            return True
        return self.prefix is not None and name.startswith(self.prefix)

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return self.prefix is not None


@contextmanager
def work(log: Counting, only: Only) -> Iterator[list[int]]:
    """What is read of the log and checked within the block."""
    log.reads = only.checks = 0
    spent: list[int] = []
    yield spent
    spent[:] = [log.reads, only.checks]


async def _make(one: Service, count: int) -> list[str]:
    names = [f"{'a' if number % 50 else 'b'}.{number:05}" for number in range(count)]
    for name in names:
        await one.create(name, 202, num_partitions=1, replication_factor=1, timeout_ms=0)
    return sorted(names)


@pytest.mark.parametrize("past", [False, True])
async def test_who_may_see_nothing_gets_an_empty_page_for_nothing(past: bool) -> None:
    log, only = Counting("counting"), Only(None)
    async with service(log=log, authorizer=only) as one:
        await _make(one, 60)
        at = {"at": log.durable_offset - 1} if past else {}
        with work(log, only) as spent:
            page = await one.get("/v1/topics", limit=1, **at)
        assert (page["topics"], page["next_cursor"]) == ([], None)
        assert spent[0] <= 2, "but for the time of the newest event"
        assert spent[1] == 0


@pytest.mark.parametrize("past", [False, True])
async def test_a_page_costs_so_much_whatever_there_is_and_tells_no_hidden_name(
    past: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "TOPICS_PER_SLICE", 10)
    monkeypatch.setattr(reads, "SLICES_MAX", 3)
    monkeypatch.setattr(query, "SCANNED_MAX", 120)
    log, only = Counting("counting"), Only("b.")
    async with service(log=log, authorizer=only) as one:
        names = await _make(one, 300)
        at = {"at": log.durable_offset - 1} if past else {}
        pages = await one.pages("/v1/topics", limit=2, **at)
        assert [topic["name"] for page in pages for topic in page["topics"]] == [n for n in names if n.startswith("b.")]
        hidden = [page["next_cursor"] for page in pages if page["next_cursor"] and not page["topics"]]
        assert len(hidden) > 3, "among hidden names"
        assert not any("a" + part in place for place in hidden for part in ("_00", ".00"))
        assert len(set(map(len, hidden))) == 1, "its length says nothing"
        with work(log, only) as spent:
            await one.get("/v1/topics", limit=1, **at)
        assert spent[0] <= 150
        assert spent[1] <= 100
        rest = await one.get("/v1/topics", limit=1, cursor="b.00050", **at)
        assert [topic["name"] for topic in rest["topics"]] == ["b.00100"], "a name is a cursor"
        monkeypatch.undo()
        only.prefix = ""
        assert [topic["name"] for topic in (await one.get("/v1/topics", limit=1000, **at))["topics"]] == names


async def test_a_moment_of_the_past_costs_the_topics_that_are_shown_not_the_log() -> None:
    log, only = Counting("counting"), Only("")
    async with service(log=log, authorizer=only) as one:
        costs = []
        for count in (40, 120):
            await _make(one, count) if count == 40 else [await one.create(f"c{number:03}") for number in range(count)]
            with work(log, only) as spent:
                page = await one.get("/v1/topics", limit=5, at=log.durable_offset - 1)
            assert [len(page["topics"])] == [5]
            costs.append(spent[0])
        assert costs[1] <= 2 * costs[0], costs
