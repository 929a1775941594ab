"""One simulation of workers and gateways over a Kafka from a seed, with checks at the end."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from controller.machine.state import RulesVersion
from controller.stream.worker.owner_tasks import PartitionBrokers
from events.codec import decode_event
from events.logs.events_topic import PartitionReader
from events.logs.log import EventLog
from tests.machine.audit.lifecycle import Lives
from tests.simulation import virtual_time
from tests.simulation.clients import Client
from tests.simulation.lives import Outcome, named
from tests.simulation.plan import Plan
from tests.simulation.stream.caches import copy_of, in_memory, kept_on_disk
from tests.simulation.stream.faults import Faults
from tests.simulation.stream.kafka import COPIED_S, NO_RECORD
from tests.simulation.stream.world import StreamWorld, kafka_of
from tests.simulation.world import chance_from
from tests.stream.checking import check_topics, fold
from tests.support.later_brokers import LaterBrokers

LIFE_S = 8.0
REST_S = 60.0
"""Longer than any deadline of a client, and than joining a group and claiming partitions."""
LOOK_S = 0.5
FEW, MANY = (2, 8), (30, 50)
"""Ranges of the number of clients. With few, each request is decided alone; with many, hundreds are in flight."""
FAUST_EVERY = 4
"""In each series of this many seeds, the last uses the Faust driver, the others the plain one. In every other series
brokers confirm by commands, else immediately."""
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Caches need no disk, because they need not survive power failures."""


class GatewaysClient(Client):
    """A client of any gateway. It cannot check the list of all topics, because a gateway may lag behind another."""

    async def _list_all(self) -> None:
        await self._look_up()


def simulate(seed: int, plan: Plan | None = None) -> Outcome:
    """Run one seed and its checks. Raises AssertionError with the seed in a note."""
    rng = random.Random(seed)
    worlds: list[StreamWorld] = []
    folder = tempfile.TemporaryDirectory(dir=IN_MEMORY)
    with named("stream", seed), folder as path, chance_from(rng), kafka_of(worlds):
        world = StreamWorld(
            rng,
            Path(path),
            plan or Plan(),
            is_faust=seed % FAUST_EVERY == FAUST_EVERY - 1,
            brokers_of=LaterBrokers if seed // FAUST_EVERY % 2 else PartitionBrokers,
        )
        worlds.append(world)
        with nullcontext() if world.is_on_disk else in_memory(world.kept):
            return virtual_time.run(_live(world))


async def _live(world: StreamWorld) -> Outcome:
    rng = world.rng
    for number in range(rng.choice((1, 2, 3))):
        world.start_worker(f"worker-{number}")
    for number in range(rng.choice((1, 2))):
        world.start_gateway(f"gateway-{number}")
    count = rng.randint(*rng.choice((FEW, MANY)))
    clients = [GatewaysClient(f"c{number}", world, world.witness) for number in range(count)]
    faults, think_s = Faults(world), rng.choice((0.01, 0.02, 0.1))
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.live(LIFE_S, think_s))
        group.create_task(faults.go_on(LIFE_S, rng.choice((0.2, 0.5, 1.5))))
    await _come_to_rest(world)
    _check(world)
    for gateway in world.gateways.values():
        await gateway.stop()
    world.gateways.clear()
    await asyncio.sleep(LOOK_S)  # gateways send their last commands when they stop
    await _until(lambda: _rests(world))
    for worker in list(world.workers.values()):
        worker.stopping.set()
    await _until(lambda: not world.workers)
    assert not world.workers, "a worker did not stop"
    _check_topics(world)
    world.counts["events"] = world.witness.events
    return Outcome(world.counts)


async def _come_to_rest(world: StreamWorld) -> None:
    """Wait until the world is at rest in two checks in a row. Workers sign no tree heads meanwhile."""
    world.signs = False
    await asyncio.sleep(COPIED_S)
    await _until(lambda: _rests(world))
    await asyncio.sleep(LOOK_S)
    await _until(lambda: _rests(world))


async def _until(condition: Callable[[], bool]) -> None:
    clock = asyncio.get_running_loop().time
    ends = clock() + REST_S
    while not condition() and clock() < ends:  # noqa: ASYNC110 - virtual time; many conditions are polled
        await asyncio.sleep(LOOK_S)


def _rests(world: StreamWorld) -> bool:
    owned = [(number, worker) for worker in world.workers.values() for number in worker.engine.leaders]
    gateways = world.gateways.values()
    return (
        sorted(number for number, _ in owned) == list(range(world.partitions))
        and all(
            not (each := gateway.node).replies and each.caught_up and not each.storage_error for gateway in gateways
        )
        and all(
            worker.engine.next_source(number) == len(world.kafka.commands[number])
            and not worker.engine._states[number].state.waiting
            for number, worker in owned
        )
        and len(_versions(world)) == 1
        and all(gateway.node.offsets == list(map(_end, world.kafka.events)) for gateway in gateways)
    )


def _versions(world: StreamWorld) -> set[RulesVersion | None]:
    """The versions of the rules in the partitions."""
    owned = ((worker, number) for worker in world.workers.values() for number in worker.engine.leaders)
    return {worker.engine._states[number].state.cluster.rules for worker, number in owned}


def _check(world: StreamWorld) -> None:
    """Check at rest: all commands are decided, each partition has one owner, and all processes have equal events."""
    assert not world.failures, f"{world.failures[:3]}"
    world.witness.look()
    owned = Counter(partition for worker in world.workers.values() for partition in worker.engine.leaders)
    assert owned == Counter(range(world.partitions)), f"each partition must have one owner: {dict(owned)}"
    assert len(_versions(world)) == 1, f"partitions have different rules: {_versions(world)}"
    for number, (commands, written) in enumerate(zip(world.kafka.commands, world.kafka.events, strict=True)):
        reader, events = _folded(number, written)
        assert reader.next_source == len(commands), f"partition {number}: some commands are not decided"
        Lives().see_all([decode_event(offset, value) for offset, value in enumerate(events)])
        (owner,) = [worker for worker in world.workers.values() if number in worker.engine.leaders]
        _check_same(f"worker of partition {number}", owner.engine._states[number].log, events)
        for name, gateway in world.gateways.items():
            assert gateway.node.failure is None, f"{name}: {gateway.node.failure!r}"
            assert gateway.node.storage_error is None, f"{name}: {gateway.node.storage_error}"
            assert len(gateway.node.replies) == 0, f"{name}: {len(gateway.node.replies)} requests were never answered"
            _check_same(name, gateway.node.partitions[number].log, events)
        waiting = owner.engine._states[number].state.waiting
        assert not waiting, f"partition {number}: topics still waiting: {sorted(waiting)}"


def _folded(number: int, written: list[bytes]) -> tuple[PartitionReader, list[bytes]]:
    """Fold a partition of the events topic with the product's rule; returns the reader and the valid events."""
    reader, counted = fold(number, written)
    return reader, [event for taken in counted for event in taken.events]


def _end(written: list[bytes]) -> int:
    """The offset after the last visible record."""
    return next((offset for offset in range(len(written), 0, -1) if written[offset - 1] != NO_RECORD), 0)


def _check_same(who: str, log: EventLog, events: list[bytes]) -> None:
    kept = [value for _, value in log.read()]
    assert kept == events, f"{who} has {len(kept)} events, the topic {len(events)}"


def _check_topics(world: StreamWorld) -> None:
    found = check_topics(world.kafka.commands, world.kafka.events)
    bad = [what for what in ("lost", "decided twice", "out of order", "faults") if found.counts[what]]
    assert not bad, found.counts
    assert not found.wrong, "\n".join(found.wrong[:10])
    caches = {path: kept_on_disk(path) for path in world.folder.glob("*/partition-*")}
    caches |= {path: [value for _, value in copy_of(log).read()] for path, log in world.kept.items()}
    for path, kept in caches.items():
        number = int(path.name.removeprefix("partition-"))
        _, events = _folded(number, world.kafka.events[number])
        assert kept == events[: len(kept)], f"{path.parent.name}/{path.name} is not a prefix of the events"
