"""The engine of a worker: takeovers, batches, fencing by other workers, and errors of Kafka."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.stream.log.codec import COMMAND_VERSION, CommandFromNewerVersion, encode_command
from controller.stream.log.partition import CacheAhead
from controller.stream.worker.engine import CommandsMissing, PartitionsLost
from events.catalog import EVENT_VERSION, SettingsChanged
from events.logs.events_topic import Fence, RecordError, encode_record
from events.names import RequestId
from tests.stream.log.records import create
from tests.stream.worker.memory_kafka import MemoryKafka
from tests.stream.worker.stage import Claimed, Stage, check, check_all_decided, events_of, home, topic_of


async def test_each_command_is_decided_once(kafka: MemoryKafka, worker: Stage) -> None:
    again = replace(create("t3", timeout_ms=0), request_id=RequestId("again"))
    await worker.decide(*(create(f"t{n}", timeout_ms=0) for n in range(20)), again)
    found = check_all_decided(kafka)
    assert found.counts["requests"] == 21
    assert worker.state(home("t7")).store.durable_named("t7") is not None


async def test_a_partition_has_one_append_in_flight(kafka: MemoryKafka, worker: Stage) -> None:
    """Messages of several partitions are interleaved. Two appends in flight to one partition could be reordered."""
    [transport] = worker.transports
    transport.appends.clear()
    in_turns = [each for pair in zip(kafka.fetch(0, 0), kafka.fetch(1, 0), strict=True) for each in pair]
    await worker.engine.handle(in_turns)
    assert transport.appends == [0, 1]
    check_all_decided(kafka)


async def test_a_gap_in_delivered_commands_releases_the_partitions(kafka: MemoryKafka, worker: Stage) -> None:
    """Kafka still has the missing commands, so partitions are taken over again. No command after the gap is decided."""
    here = [name for n in range(99) if home(name := f"t{n}") == 0]
    for number in range(3):
        kafka.put(*(create(name, timeout_ms=0) for name in here[number * 3 : number * 3 + 3]))
        with pytest.raises(PartitionsLost, match=r"partition 0: expected command \d+, got \d+"):
            await worker.engine.handle(kafka.fetch(0, worker.engine.next_source(0) + 2))
        assert worker.engine.leaders == {}
        await worker.claim()
        await worker.work()
    assert len(worker.losses) == 3
    check_all_decided(kafka)


async def test_a_command_missing_in_three_fetches_fails_the_worker(kafka: MemoryKafka, tmp_path: Path) -> None:
    worker = Stage(kafka, tmp_path)
    for _ in range(2):
        await worker.claim()
        with pytest.raises(PartitionsLost):
            await worker.engine.handle(kafka.fetch(0, 2))
    await worker.claim()
    with pytest.raises(CommandsMissing, match=r"partition 0: expected command 0, got 2, 3 times"):
        await worker.engine.handle(kafka.fetch(0, 2))
    await worker.close()


async def test_commands_deleted_before_delivery_fail_the_worker(kafka: MemoryKafka, worker: Stage) -> None:
    kafka.first_command = 1
    with pytest.raises(CommandsMissing, match=r"expected command 0, got 1; the oldest in the topic is 1"):
        await worker.engine.handle(kafka.fetch(0, 1))


async def test_redelivered_commands_within_a_batch_are_dropped(kafka: MemoryKafka, claimed: Claimed) -> None:
    """After a seek back, a batch in flight is delivered again."""
    worker = await claimed(0)
    await worker.engine.handle([*kafka.fetch(0, 0, 3), *kafka.fetch(0, 1)])
    assert worker.engine.next_source(0) == 4


async def test_commands_of_other_partitions_are_ignored(kafka: MemoryKafka, claimed: Claimed) -> None:
    worker = await claimed(1)
    await worker.engine.handle(kafka.fetch(0, 0))
    assert kafka.events[0] == []
    await worker.engine.revoke()
    await worker.engine.handle(kafka.fetch(1, 0))
    assert len(kafka.events[1]) == 1, "only the fence"


async def test_a_cancelled_takeover_leaves_no_active_partition(kafka: MemoryKafka, tmp_path: Path) -> None:
    worker = Stage(kafka, tmp_path)
    wanted = iter([True, True, True, False])
    assert not await worker.engine.claim((0, 1), lambda: next(wanted, False))
    assert worker.engine.leaders == {}
    await worker.close()


# Other workers.


async def test_a_fenced_worker_loses_its_partitions(kafka: MemoryKafka, claimed: Claimed) -> None:
    zombie = await claimed(name="zombie")
    await zombie.decide(create("before", timeout_ms=0))
    heir = await claimed(name="heir")
    kafka.put(create("after", timeout_ms=0))
    with pytest.raises(PartitionsLost, match="taken over by heir"):
        await zombie.work()
    assert zombie.engine.leaders == {}
    await heir.work()
    assert check_all_decided(kafka).counts["ignored"] == 1, "the zombie's record"


# Restarts, releases and settings.


async def test_settings_are_the_first_event_and_recorded_only_on_change(kafka: MemoryKafka, tmp_path: Path) -> None:
    """Two releases alternate, as in a rolling upgrade. Each partition records the settings of its owner."""
    old = Stage(kafka, tmp_path, "old")
    new = Stage(kafka, tmp_path, "new", release="2.0", decision_settings=(("num.partitions", "3"),))
    for number, worker in enumerate((old, old, new, new, old)):
        await worker.claim()
        await worker.decide(create(f"t{number}", num_partitions=-1, timeout_ms=0))
    reader = check_all_decided(kafka)
    changes = [record.event for value in events_of(old, 0) if isinstance((record := value).event, SettingsChanged)]
    assert [(event.release, event.settings[0][1]) for event in changes] == [("1.0", "1"), ("2.0", "3"), ("1.0", "1")]
    assert isinstance(events_of(old, 0)[0].event, SettingsChanged)
    sizes = [len(topic_of(old, f"t{number}").partitions) for number in range(5)]
    assert sizes == [1, 1, 3, 3, 1]
    assert reader.counts["fences"] == 10
    await old.close()
    await new.close()


async def test_a_worker_rejects_a_fence_of_a_newer_event_version(kafka: MemoryKafka, tmp_path: Path) -> None:
    kafka.events[0].append(encode_record(Fence(1, "new", "9.0", EVENT_VERSION + 1)))
    worker = Stage(kafka, tmp_path)
    with pytest.raises(RecordError, match=r"release 9\.0.*run 9\.0, or a later one"):
        await worker.claim()
    assert len(kafka.events[0]) == 1, "the worker writes nothing after it"
    await worker.close()


async def test_a_worker_rejects_commands_of_a_newer_version(kafka: MemoryKafka, worker: Stage) -> None:
    await worker.work()
    newer = create("a")
    kafka.commands[home("a")].append(bytes((COMMAND_VERSION + 1,)) + encode_command(newer)[1:])
    with pytest.raises(CommandFromNewerVersion, match="upgrade workers before gateways"):
        await worker.work()
    assert check(kafka).counts["lost"] == 1, "left for a newer worker"


async def test_commands_deleted_by_retention_fail_the_takeover(kafka: MemoryKafka, tmp_path: Path) -> None:
    kafka.first_command = 3
    worker = Stage(kafka, tmp_path)
    with pytest.raises(CommandsMissing, match=r"commands 0 to 2 were deleted before they were decided"):
        await worker.claim()
    await worker.close()


async def test_recreated_topics_are_detected(kafka: MemoryKafka, claimed: Claimed) -> None:
    worker = await claimed()
    await worker.work()
    kafka.commands[0].clear()
    with pytest.raises(CommandsMissing, match=r"ends at 0, and the events topic proves 4 commands"):
        await worker.claim()
    kafka.events[1].clear()
    with pytest.raises(CacheAhead, match=r"ends before record 5, and Kafka has only records before 0"):
        await worker.claim(1)
