"""The link to the target cluster: requests, shared calls, actions, and a start without the cluster."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from controller.brokers.cluster import actions
from controller.brokers.cluster.actions import ActionRunner
from controller.brokers.cluster.link import ClusterLink, ClusterMetadata, Refusal, SeenTopic, split_by_limit
from controller.brokers.cluster.reconciliation import Action
from controller.brokers.cluster.target_cluster import TargetCluster
from controller.brokers.cluster.watch import ClusterWatch
from controller.cli import main
from controller.kafka.codec.codec import encode_response
from controller.kafka.connections import ClusterUnreachable, Security
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.configs import AlterConfigsResponse
from controller.kafka.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    DeletableTopicResult,
    DeleteTopicsResponse,
    MetadataResponse,
)
from controller.machine.configs.changes import OpType
from controller.machine.errors import ErrorCode
from controller.serving import reach_cluster
from controller.settings.load import load_settings
from events.catalog import Cause, Partition, PartitionsAdded, TopicConfigsChanged, TopicCreated, TopicDeleted
from events.codec import encode_event
from events.logs.archive.store import ArchiveAway
from events.logs.log import Commit, Entry, EventLog
from events.names import BrokerId, RequestId, TopicId, TopicName
from events.values import RequestedChange, RequestedDeletion
from tests.simulation.virtual_time import on_virtual_time
from tests.support.memory_log import InMemoryLog
from tests.support.reference_kafka import ReferenceKafka


def new(name: str, partitions: int = 1) -> CreatableTopic:
    """A topic with each partition on broker 1."""
    assignments = tuple(CreatableReplicaAssignment(partition_index=each, broker_ids=(1,)) for each in range(partitions))
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


@pytest.mark.parametrize(
    ("partitions", "together"),
    [
        ([], []),
        ([1, 2, 3], [3]),
        ([6000, 6000], [1, 1]),
        ([4999, 4999], [2]),
        ([5000, 5000], [1, 1]),  # the two topics are records too
        ([9999, 1], [1, 1]),
        ([20_000], [1]),
        ([1, 20_000, 1], [1, 1, 1]),
        ([3000] * 7, [3, 3, 1]),
    ],
)
def test_forwarded_creates_are_split_within_kafkas_request_limit(partitions: list[int], together: list[int]) -> None:
    topics = [new(f"t{number}", count) for number, count in enumerate(partitions)]
    requests = split_by_limit(topics)
    assert [len(each) for each in requests] == together
    assert [topic for each in requests for topic in each] == topics, "topics are missing or out of order"


def test_configs_count_towards_the_forwarded_request_limit() -> None:
    configs = (CreatableTopicConfig(name="retention.ms", value="1"),)
    topics = [replace(new(name, 4999), configs=configs) for name in ("a", "b")]
    assert [len(each) for each in split_by_limit(topics)] == [1, 1]


async def test_changes_survive_the_death_of_the_broker_that_forwarded_them(kafka: ReferenceKafka, name: str) -> None:
    link = ClusterLink(kafka.bootstrap, Security())
    try:
        metadata = await link.metadata()
        link._preferred = next((one.host, one.port) for one in metadata.brokers if one.node_id == 3)
        assert await link.create([new(f"{name}-before")]) == {f"{name}-before": None}
        kafka.stop_broker(3)
        with pytest.raises(ClusterUnreachable):
            await link.create([new(name)])
        assert await link.create([new(name)]) == {name: None}
    finally:
        kafka.start_broker(3)
        link.close()


async def test_a_quota_on_changes_delays_no_reads() -> None:
    """As in Kafka, a broker reads nothing more from a connection whose change is above the quota."""
    muted, ended = asyncio.Event(), asyncio.Semaphore(0)

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = await reader.readexactly(int.from_bytes(size))
            api_key, version, correlation_id = struct.unpack(">hhi", frame[:8])
            answer: Message = MetadataResponse()
            if api_key == ApiKey.DELETE_TOPICS:
                answer = DeleteTopicsResponse(throttle_time_ms=60_000, responses=(DeletableTopicResult(name="t"),))
            writer.write(encode_response(api_key, version, correlation_id, answer))
            if api_key == ApiKey.DELETE_TOPICS:
                await muted.wait()
        writer.close()
        await writer.wait_closed()
        ended.release()

    async with await asyncio.start_server(broker, "127.0.0.1", 0) as listener:
        link = ClusterLink(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", Security())
        try:
            await link.metadata()
            assert await link.delete([NAME]) == {NAME: None}
            await asyncio.wait_for(link.metadata(), 5)
        finally:
            muted.set()
            link.close()
        for _ in ("reads", "changes"):
            await ended.acquire()


async def test_topics_are_deleted_by_the_ids_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that the broker does not know yet has no id to delete by. Kafka answers in any order."""
    link = ClusterLink("127.0.0.1:1", Security())
    result = DeletableTopicResult
    results = result(name="late"), result(topic_id=b"2" * 16, error_code=100), result(name="a", topic_id=b"1" * 16)
    changed = AsyncMock(return_value=DeleteTopicsResponse(responses=results))
    topics = (SeenTopic(TopicName(name), TopicId(id_ * 16), ()) for name, id_ in (("a", b"1"), ("b", b"2")))
    monkeypatch.setattr(
        link, "metadata", AsyncMock(return_value=ClusterMetadata("", (), {each.name: each for each in topics}))
    )
    monkeypatch.setattr(link, "_change", changed)
    refusals = await link.delete([TopicName("a"), TopicName("b"), TopicName("late")])
    assert {name: refusal and refusal.code for name, refusal in refusals.items()} == {"a": None, "b": 100, "late": None}
    asked = [(each.name, each.topic_id) for each in changed.call_args.args[1].topics]
    assert asked == [(None, b"1" * 16), (None, b"2" * 16), ("late", bytes(16))]


async def test_configs_that_differ_are_set_and_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    link, changed = ClusterLink("127.0.0.1:1", Security()), AsyncMock(return_value=AlterConfigsResponse())
    monkeypatch.setattr(link, "configs", AsyncMock(return_value={"t": (("a", "1"), ("b", "2"))}))
    monkeypatch.setattr(link, "_change", changed)
    assert await link.set_configs(NAME, (("b", "3"), ("c", "4"))) is None
    (resource,) = changed.call_args.args[1].resources
    steps = [(step.name, step.value, step.config_operation) for step in resource.configs]
    assert steps == [("b", "3", OpType.SET), ("c", "4", OpType.SET), ("a", None, OpType.DELETE)]
    assert await link.set_configs(NAME, (("a", "1"), ("b", "2"))) is None
    changed.assert_called_once()
    refusal = await link.set_configs(TopicName("missing"), ())
    assert refusal is not None
    assert refusal.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Source:
    """Counts its calls. Answers with the count, or an error, when released."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Semaphore(0)
        self.wrong: set[int] = set()

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        await self.gate.acquire()
        if number in self.wrong:
            raise OSError(number)
        return number


def shared_scans(source: Source) -> Callable[[], Coroutine[Any, Any, Any]]:
    """The call that several watches share."""
    link: Any = ClusterLink("127.0.0.1:1", Security())
    link._fetch_metadata = source
    return cast(Callable[[], Coroutine[Any, Any, Any]], link.all_metadata)


async def _run_pending_callbacks() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_shared_call_callers_during_a_call_share_the_next_response() -> None:
    source = Source()
    shared = shared_scans(source)
    first = [asyncio.create_task(shared()) for _ in range(3)]
    await _run_pending_callbacks()
    later = [asyncio.create_task(shared()) for _ in range(3)]
    await _run_pending_callbacks()
    assert source.count == 1, "calls must run one at a time"
    source.gate.release()
    assert await asyncio.gather(*first) == [1, 1, 1]
    source.gate.release()
    assert await asyncio.gather(*later) == [2, 2, 2], "a caller must not share a call that began before it"
    source.gate.release()
    assert await shared() == 3


async def test_shared_call_failure_is_raised_only_to_its_callers() -> None:
    source = Source()
    source.wrong = {1}
    shared = shared_scans(source)
    first = [asyncio.create_task(shared()) for _ in range(2)]
    await _run_pending_callbacks()
    later = asyncio.create_task(shared())
    for _ in range(2):
        source.gate.release()
    for each in first:
        with pytest.raises(OSError, match="1"):
            await each
    assert await later == 2


async def test_shared_call_cancellation_does_not_affect_other_callers() -> None:
    source = Source()
    shared = shared_scans(source)
    gives_up, waits = (asyncio.create_task(shared()) for _ in range(2))
    await _run_pending_callbacks()
    gives_up.cancel()
    await _run_pending_callbacks()
    source.gate.release()
    assert await waits == 1
    assert gives_up.cancelled()


async def test_shared_call_failure_without_callers_is_not_logged() -> None:
    source = Source()
    source.wrong = {1}
    shared = shared_scans(source)
    only = asyncio.create_task(shared())
    await _run_pending_callbacks()
    only.cancel()
    source.gate.release()
    await _run_pending_callbacks()
    source.gate.release()
    assert await shared() == 2


PARTITION = Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1), 0, 0)
EXISTS = Refusal(int(ErrorCode.TOPIC_ALREADY_EXISTS), "there")


class Link:
    """A cluster that accepts everything once, and raises for topics called `bad`."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    async def create(self, topics: Sequence[Any]) -> dict[str, Refusal | None]:
        came = {topic.name: EXISTS if topic.name in self.there else None for topic in topics}
        self.there |= came.keys() - {"bad"}
        _raise_on("bad" in came)
        return came

    async def delete(self, names: Sequence[str]) -> dict[str, Refusal | None]:
        _raise_on("bad" in names)
        return dict.fromkeys(names)

    async def add_partitions(self, added: Any) -> None:
        _raise_on(added.name == "bad")

    async def set_configs(self, name: str, _: Any) -> None:
        _raise_on(name == "bad")


def _raise_on(wanted: bool) -> None:
    if wanted:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")


NAME, ID, REQUEST = TopicName("t"), TopicId(bytes(16)), RequestId("q")
ASKED: Any = None
CHANGES = (
    TopicCreated(REQUEST, NAME, ID, (PARTITION,), 1, (), None, (), 0),
    TopicDeleted(REQUEST, NAME, ID, "User:a", None, ASKED),
    PartitionsAdded(REQUEST, NAME, 1, (PARTITION,), "User:a", None, (), ASKED),
    TopicConfigsChanged(REQUEST, NAME, (), "User:a", None, ASKED),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
@on_virtual_time
async def test_an_action_that_raises_fails_alone(change: Any) -> None:
    seen: dict[str, int] = {}

    def finished(action: Action, refusal: Refusal | None) -> None:
        seen[action.topic] = 0 if refusal is None else refusal.code

    sink: Any = None
    runner = ActionRunner(Link(), sink, InMemoryLog("cluster"), finished)  # type: ignore[arg-type]
    with capture_logs() as lines:
        running = asyncio.create_task(runner.run())
        for name in ("a", "bad", "b"):
            runner.enqueue(Action(TopicName(name), replace(change, topic=TopicName(name))))
        await asyncio.sleep(60)
        assert seen == {"a": 0, "bad": -1, "b": 0}
        runner.enqueue(Action(TopicName("c"), replace(change, topic=TopicName("c"))))
        await asyncio.sleep(1)
        assert seen["c"] == 0
        assert runner.pending.total() == 0
        assert [(line["event"], line["action"], line["topic"]) for line in lines] == [
            ("action failed", type(change).__name__, "bad")
        ]
    running.cancel()


class _Sink:
    """A controller without topics."""

    background = staticmethod(asyncio.ensure_future)
    store = SimpleNamespace(durable_keys_waiting=lambda: ())


async def test_an_unreachable_archive_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unfinished changes may exist only in the archive."""
    went: list[str] = []

    def shard_offsets(_: EventLog, shard: str) -> Iterable[int]:
        went.append(shard)
        if len(went) < 3:
            raise ArchiveAway("the archive is away")
        return ()

    async def look(_: ClusterWatch) -> None:
        return None

    monkeypatch.setattr(actions, "shard_offsets", shard_offsets)
    monkeypatch.setattr(ClusterWatch, "scan", look)
    monkeypatch.setattr(ClusterWatch, "scan_configs", look)
    missing: Any = None
    asked = RequestedChange("", 0, RequestedDeletion(None))
    deleted = TopicDeleted(RequestId("r"), TopicName("t"), TopicId(b"i" * 16), "User:a", None, asked)
    log = InMemoryLog("cluster")
    log.write(Commit([Entry(encode_event(0, Cause("DeleteTopic", RequestId("r")), deleted))]))
    log.mark_durable()
    settings = load_settings(overrides=["cluster.watch.interval.ms=10"])
    brokers = TargetCluster(missing, log, settings)
    brokers.start(_Sink())  # type: ignore[arg-type]
    await asyncio.wait_for(brokers.first_scan(), 10)
    assert went == ["t", "t", "t"]
    await brokers.stop()


def test_an_unreachable_target_cluster_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reach_cluster, "REACH_WITHIN_S", 1.0)
    places = ["--data", str(tmp_path), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    assert main.main(["serve", *places, "--brokers", "cluster:127.0.0.1:1", "--set", "node.id=100"]) == 2
    assert "the cluster at 127.0.0.1:1 cannot be reached within 1 s" in capsys.readouterr().err
