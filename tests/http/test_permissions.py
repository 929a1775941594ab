"""Permissions over HTTP equal those of the Kafka protocol. A page of a list has a bounded cost, and no page reveals a
hidden name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import pytest

from controller.access.authorizer import Caller, Operation, Requester, ResourceType
from controller.http import permissions, topics
from events.codec import decode_event
from events.logs.log import read_one
from projections.queries import query
from tests.http.service import Half, Rules, Service, service
from tests.support.memory_log import InMemoryLog


def settings_request(one: Service) -> str:
    """The id of the request that recorded the settings: the first event of each log."""
    return decode_event(0, read_one(one.log, 0)).cause.request_id


async def test_topic_without_describe_looks_missing(half: Service) -> None:
    await half.create("open-1")
    await half.get("/v1/log/proof?topic=open-1")
    await half.create("secret")
    for path in (
        "/v1/topics/{}",
        "/v1/changes?topic={}",
        "/v1/explain/{}",
        "/v1/events?topic={}",
        "/v1/log/proof?topic={}",
    ):
        there = await half.get(path.format("secret"), 403)
        missing = await half.get(path.format("absent"), 403)
        assert there["message"].replace("secret", "absent") == missing["message"], path


async def test_describe_cluster_permission() -> None:
    whole_log = ("/v1/log/head", "/v1/log/proof?offset=0", "/v1/log/leaves")
    paths = (
        "/v1/events",
        "/v1/brokers",
        "/v1/brokers/1",
        "/v1/health",
        "/v1/timeline",
        "/v1/events",
        *whole_log,
        "/v1/events?request=boot-1",
    )
    async with service(authorizer=Half()) as one:
        for path in (*paths, "/v1/quorum"):
            assert (await one.get(path, 403))["error"] == "CLUSTER_AUTHORIZATION_FAILED", path
        assert (await one.request("POST", "/v1/simulated/brokers", 403))["error"] == "CLUSTER_AUTHORIZATION_FAILED"
        stop = await one.request("POST", "/v1/simulated/brokers/1/stop", 403)
        assert stop["error"] == "CLUSTER_AUTHORIZATION_FAILED"
    async with service(authorizer=Half(("Describe", "Cluster"), ("Alter", "Cluster"))) as one:
        for path in paths[:-1]:
            await one.get(path)
        assert "not a voter of a controller quorum" in (await one.get("/v1/quorum", 404))["message"]
        await one.request("POST", "/v1/simulated/brokers", 201)


async def test_sender_may_see_its_request(half: Service) -> None:
    made = await half.create("secret")
    assert (await half.get(f"/v1/requests/{made['request_id']}"))["request_id"] == made["request_id"]
    assert (await half.get(f"/v1/requests/{settings_request(half)}", 403))["error"] == "CLUSTER_AUTHORIZATION_FAILED"


async def test_request_of_others_looks_missing(half: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ("/v1/requests/{}", "/v1/explain/{}", "/v1/explain/{}?of=request", "/v1/log/proof?request={}")
    made = (await half.create("secret"))["request_id"]
    monkeypatch.setattr(permissions, "caller_of", lambda _: Caller(principal="User:eve"))
    for path, accept in product(paths, ("application/json", "text/html")):
        absent = await half.client.get(path.format("absent"), headers={"Accept": accept})
        assert absent.is_client_error, path
        there = await half.client.get(path.format(made), headers={"Accept": accept})
        assert there.status_code == absent.status_code
        assert there.text.replace(made, "absent") == absent.text, path
        assert "secret" not in there.text


async def test_requests_without_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(authorizer=Half()) as one:
        made = {name: (await one.create(name))["request_id"] for name in ("open-1", "secret")}
        shown = [each["request_id"] for each in (await one.get("/v1/requests"))["requests"]]
        assert shown == [made["secret"], made["open-1"]], "only the requester's own requests"
        monkeypatch.setattr(permissions, "caller_of", lambda _: Caller(principal="User:eve"))
        assert [each["request_id"] for each in (await one.get("/v1/requests"))["requests"]] == [made["open-1"]]
        assert (await one.get("/v1/requests?principal=User:ANONYMOUS&rule=x"))["requests"] == []
    async with service(authorizer=Half(("Describe", "Cluster"))) as one:
        await one.create("secret")
        monkeypatch.setattr(permissions, "caller_of", lambda _: Caller(principal="User:eve"))
        assert [each["topics"] for each in (await one.get("/v1/requests"))["requests"]] == [["secret"]]


async def test_diff_without_describe(half: Service) -> None:
    start = half.log.durable_offset - 1
    for name in ("open-1", "secret"):
        await half.create(name)
    shown = await half.get(f"/v1/diff?from={start}")
    assert ([each["name"] for each in shown["topics"]], shown["cluster"]) == (["open-1"], None)


async def test_explain_request_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(authorizer=Half(prefixes=("open", "boot-", "settings-"))) as one:
        made = await one.create("secret")
        request_id = made["request_id"]
        assert (await one.get(f"/v1/explain/{request_id}"))["kind"] == "request", "the requester may read it"
        monkeypatch.setattr(permissions, "caller_of", lambda _: Caller(principal="User:eve"))
        assert (await one.get(f"/v1/requests/{request_id}", 403))["error"] == "CLUSTER_AUTHORIZATION_FAILED"
        for subject in (request_id, settings_request(one), "boot-none"):
            reply = await one.get(f"/v1/explain/{subject}", 404)
            assert reply["message"] == f"no topic and no request {subject!r} is in the log", "existing or not"


async def test_explain_topic_named_like_a_request(half: Service) -> None:
    made = await half.create("open-1")
    await half.create(made["request_id"])
    shown = await half.get(f"/v1/explain/{made['request_id']}")
    assert (shown["kind"], {step["event"] for step in shown["steps"]} & {"TopicCreated"}) == (
        "request",
        {"TopicCreated"},
    )
    assert made["request_id"] not in {step["text"].split()[0] for step in shown["steps"]}


class Counting(InMemoryLog):
    """A log that counts the events read and the shards searched."""

    reads = 0

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        self.reads += len(offsets)
        return super().read_many(offsets)

    def shard_keys(self, after: str = "") -> Iterator[str]:
        for key in super().shard_keys(after):
            self.reads += 1
            yield key


class Only(Rules):
    """Describe is allowed for topic names with a prefix, every other operation for everybody."""

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
    """Yields the counts of log reads and permission checks within the block."""
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
async def test_cost_of_a_page_without_describe(past: bool) -> None:
    log, only = Counting("counting"), Only(None)
    async with service(log=log, authorizer=only) as one:
        await _make(one, 60)
        at = {"at": log.durable_offset - 1} if past else {}
        with work(log, only) as spent:
            page = await one.get("/v1/topics", limit=1, **at)
        assert (page["topics"], page["next_cursor"]) == ([], None)
        assert spent[0] <= 2, "it reads at most the newest event, for its time"
        assert spent[1] == 0


@pytest.mark.parametrize("past", [False, True])
async def test_cost_and_cursor_of_a_page(past: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS_PER_SLICE", 10)
    monkeypatch.setattr(topics, "SLICES_MAX", 3)
    monkeypatch.setattr(query, "SCANNED_MAX", 120)
    log, only = Counting("counting"), Only("b.")
    async with service(log=log, authorizer=only) as one:
        names = await _make(one, 300)
        at = {"at": log.durable_offset - 1} if past else {}
        pages = await one.pages("/v1/topics", limit=2, **at)
        assert [topic["name"] for page in pages for topic in page["topics"]] == [n for n in names if n.startswith("b.")]
        hidden = [page["next_cursor"] for page in pages if page["next_cursor"] and not page["topics"]]
        assert len(hidden) > 3, "several pages end at hidden names"
        assert not any("a" + part in place for place in hidden for part in ("_00", ".00"))
        assert len(set(map(len, hidden))) == 1, "the cursor's length reveals nothing"
        with work(log, only) as spent:
            await one.get("/v1/topics", limit=1, **at)
        assert spent[0] <= 150
        assert spent[1] <= 100
        rest = await one.get("/v1/topics", limit=1, cursor="b.00050", **at)
        assert [topic["name"] for topic in rest["topics"]] == ["b.00100"], "a plain name is a valid cursor"
        monkeypatch.undo()
        only.prefix = ""
        assert [topic["name"] for topic in (await one.get("/v1/topics", limit=1000, **at))["topics"]] == names


async def test_topic_page_at_an_offset_costs_the_page_and_not_the_log() -> None:
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
