"""Bugs planted in the distributed engine. The simulator must find each of them."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from controller.machine import decide
from controller.machine.commands.commands import CopyClusterState
from controller.machine.configs import changes
from controller.machine.decision import Decision
from controller.machine.state import State
from controller.stream.gateway.node import GatewayNode
from controller.stream.log.codec import RecentRequests
from controller.stream.log.partition import PartitionState
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.engine import Engine, IsCurrent
from events.logs.events_topic import Decided, Fence, PartitionReader, Record
from tests.simulation.planting import Bugs
from tests.simulation.stream.clients_of_kafka import SimulatedConsumer


async def _accept_every_record(engine: Engine, state: PartitionState, start: int, values: Sequence[bytes]) -> None:
    return None


def _seek_to_the_end(consumer: SimulatedConsumer, place: Any, offset: int) -> None:
    _seek(consumer, place, len(consumer._kafka.commands[place.partition]) if offset else 0)


_seek = SimulatedConsumer.seek


def _remember_nothing(state: PartitionState) -> None:
    state._recent = state._recent or RecentRequests()


def _nothing(*_: object, **__: object) -> None:
    return None


async def _without_a_fence(engine: Engine, partition: int, still: IsCurrent) -> bool:
    """An empty partition is claimed correctly. Otherwise the worker reads its records and decides in the old epoch."""
    (_, end), topics = await engine.transport.events_range(partition), engine.context.topics
    if not end:
        return await _claim_partition(engine, partition, still)
    if partition not in engine._states:
        engine._states[partition] = PartitionState.open(
            engine.context.data, partition, cluster_id=topics.cluster_id, topic_id=topics.events_id
        )
    return await engine._read(engine._states[partition], end, still)


_claim_partition = Engine._claim_partition


def _of_any_epoch(reader: PartitionReader, record: Decided) -> bool:
    return _decided(reader, replace(record, epoch=reader.epoch))


_decided = PartitionReader._decided


def _of_any_fence(reader: PartitionReader, fence: Fence) -> bool:
    return _fenced(reader, replace(fence, epoch=reader.epoch + 1))


_fenced = PartitionReader._fenced


def _without_gaps(reader: PartitionReader, kafka_offset: int, value: bytes) -> Record | None:
    assert kafka_offset == reader.kafka_offset, f"records {reader.kafka_offset} to {kafka_offset - 1} are missing"
    return _take(reader, kafka_offset, value)


_take = PartitionReader.read


def _copy_older_rules(state: State, command: CopyClusterState) -> Decision:
    held = state.cluster.rules
    if held is None or command.rules is None or command.rules.number >= held.number:
        return changes.copy(state, command)
    return changes.copy(State(state.topics, replace(state.cluster, rules=None)), command)


BUGS: Final[Bugs] = {
    "a decision is kept although its record has another offset": [(Engine, "_find_own", _accept_every_record)],
    "a duplicate command is decided": [(PartitionState, "is_duplicate", lambda *_: False)],
    "the next owner does not know the decided commands": [(PartitionState, "detect_duplicates", _remember_nothing)],
    "commands are skipped at a rebalance": [(SimulatedConsumer, "seek", _seek_to_the_end)],
    "a partition is taken over without a fence": [(Engine, "_claim_partition", _without_a_fence)],
    "records of an older epoch count": [(PartitionReader, "_decided", _of_any_epoch)],
    "an offset without a record is treated as a loss": [(PartitionReader, "read", _without_gaps)],
    "a copy of older rules replaces newer ones": [
        (decide, "_DECIDERS", {**decide._DECIDERS, CopyClusterState: _copy_older_rules})
    ],
    "every fence counts": [(PartitionReader, "_fenced", _of_any_fence)],
    "Faust's driver starts from the committed offset": [(FaustDriver, "_positions", lambda _: {})],
    "a gateway does not notice that no worker decides": [(GatewayNode, "_time_is_up", _nothing)],
}
