"""Our changes to Faust's consumer: rebalances and seeks lose no command, and lost partitions are taken over again.
Faust's own loop delivers the messages, from a topic in memory.

Fingerprints detect changes of Faust's private methods. If the test fails after an upgrade, read the method in Faust and
in `faust_seam`, with the reason in its row. Change the seam if needed, then record the new fingerprint.
"""

import ast
import asyncio
import hashlib
import inspect
import random
import re
import textwrap
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from aiokafka import AIOKafkaConsumer
from faust.app.base import App
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as transport
from faust.types.tuples import TP
from mode import Service
from msgspec.structs import replace

from controller.settings.load import load_settings
from controller.stream.worker import driver as worker_driver
from controller.stream.worker import driver_faust, faust_seam
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.engine import Engine, IsCurrent, PartitionsLost
from controller.stream.worker.faust_seam import FaustConsumer
from controller.stream.worker.partition_decider import Sourced
from tests.stream.worker.memory_kafka import TOPICS

HERE = TP("commands", 0)


class Feeding:
    """The consumer over a partition of `size` messages, and the offsets it delivered."""

    def __init__(self, driver: FaustDriver, consumer: Any, size: int, chance: random.Random) -> None:
        self.driver = driver
        self.consumer = consumer
        self.size = size
        self.decided = 0
        """Number of commands decided, according to the events topic."""
        self.position = 0
        self.seen: list[int] = []
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.running: asyncio.Task[None] | None = None
        self._chance = chance

    def poll(self) -> None:
        """Raise the exception that ended Faust's loop."""
        assert self.running is not None
        if self.running.done():
            self.running.result()

    async def fetch(self, active: Any, timeout: float) -> dict[Any, list[Any]]:
        await self._a_while()
        start, self.position = self.position, min(self.size, self.position + 10)
        await self._a_while()
        return {HERE: [_record(offset) for offset in range(start, self.position)]}

    async def seek(self, to: dict[Any, int]) -> None:
        await self._a_while()
        [self.position] = to.values()
        await self._a_while()

    async def hand_on(self, message: Any) -> None:
        """Deliver a message as Faust's conductor does: it waits for capacity, and a seek may cancel it."""
        await self.blocked.wait()
        await self._a_while()
        if message.seek == self.consumer.seeks:
            self.seen.append(message.offset)
            assert message.offset <= self.decided, f"command {self.decided} expected, got {message.offset}"
            self.decided += message.offset == self.decided

    async def _a_while(self) -> None:
        for _ in range(self._chance.randrange(3)):
            await asyncio.sleep(0)


def _record(offset: int) -> Any:
    fields: dict[str, Any] = dict.fromkeys(("headers", "key", "checksum", "serialized_key_size"))
    return SimpleNamespace(
        topic=HERE.topic,
        partition=HERE.partition,
        offset=offset,
        timestamp=0,
        timestamp_type=0,
        value=b"",
        serialized_value_size=0,
        **fields,
    )


def engine_without_kafka(data: Path) -> Any:
    context = SimpleNamespace(data=data, topics=replace(TOPICS, partitions=1), settings=load_settings())
    return SimpleNamespace(leaders={0}, context=context)


@asynccontextmanager
async def feeding(monkeypatch: pytest.MonkeyPatch, size: int = 400, seed: int = 1) -> AsyncIterator[Feeding]:
    """Faust's loop running without Kafka."""
    engine = engine_without_kafka(Path())
    driver = FaustDriver(engine, "127.0.0.1:1")
    app = driver._app = driver._make_app()
    consumer: FaustConsumer = app.consumer
    one = Feeding(driver, consumer, size, random.Random(seed))
    engine.next_source = lambda _: one.decided
    for name, what in (("_getmany", one.fetch), ("seek_wait", one.seek), ("assignment", lambda: {HERE})):
        monkeypatch.setattr(consumer, name, what)
    consumer.callback = one.hand_on
    consumer._set_active_tps({HERE})
    app.flow_control.resume()
    fetcher: Any = SimpleNamespace(_stopped=asyncio.Event())
    one.running = running = asyncio.create_task(consumer._drain_messages(fetcher))
    try:
        yield one
    finally:
        fetcher._stopped.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        app.consumer._thread.thread_loop.close()


@pytest.mark.parametrize("seed", range(4))
async def test_rebalances_lose_no_commands(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Rebalances in every state of the flow, seeks, and messages that wait for capacity."""
    chance = random.Random(seed)
    async with feeding(monkeypatch, 1000, seed) as one:
        while one.decided < one.size:
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            one.poll()
            (one.blocked.clear if chance.random() < 0.3 else one.blocked.set)()
            if chance.random() < 0.5:
                one.consumer.hold()
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            if not one.consumer.flow_active or chance.random() < 0.2:
                await one.consumer.perform_seek()
            one.consumer.resume_flowing()


class LosingEngine:
    """An engine that loses its partition at every hundredth command."""

    def __init__(self, one: Feeding) -> None:
        self.leaders = {0}
        self.claims: list[set[int]] = []
        self._one = one
        self._lost_at = 0

    def next_source(self, partition: int) -> int:
        return self._one.decided

    async def handle(self, commands: Sequence[Sourced]) -> None:
        for command in commands if self.leaders else ():
            if command.offset % 100 == 99 and command.offset > self._lost_at:
                self._lost_at = command.offset
                self.leaders = set()
                raise PartitionsLost("taken over")
            assert command.offset <= self._one.decided, f"{self._one.decided} expected, got {command.offset}"
            self._one.decided += command.offset == self._one.decided

    async def claim(self, partitions: Collection[int], still: IsCurrent) -> bool:
        self.claims.append(set(partitions))
        if len(self.claims) == 2:
            raise PartitionsLost("Kafka does not answer")
        self.leaders = set(partitions)
        return still()


async def test_lost_partitions_are_taken_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_driver, "RETRY_S", 0.01)
    claimed: list[int] = []
    async with feeding(monkeypatch) as one:
        driver, engine, stopping = one.driver, LosingEngine(one), asyncio.Event()
        driver._engine = cast(Engine, engine)

        async def into_the_inbox(message: Any) -> None:
            await driver._inbox.put(SimpleNamespace(message=message))

        one.consumer.callback = into_the_inbox
        await driver._complete(None)
        driving = asyncio.create_task(driver._drive(stopping, lambda: claimed.append(one.decided)))
        for _ in range(2000):
            if one.decided == one.size or driving.done():
                break
            await asyncio.sleep(0.01)
        stopping.set()
        await driving
    assert engine.claims == [{0}] * 6, "one takeover failed"
    assert claimed == [0, 99, 199, 299, 399]


READ_FOR = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}
"""The releases that were read when the fingerprints were recorded."""


class Part(NamedTuple):
    """An internal method or attribute of Faust. Methods have a fingerprint (`fingerprint_of`)."""

    of: type
    name: str
    fingerprint: str
    why: str


_CONSUMER, _THREAD = transport.Consumer, transport.AIOKafkaConsumerThread

OVERRIDDEN = (
    Part(_CONSUMER, "getmany", "19368425", "fetches once, excludes seeks, and drops messages from before a seek"),
    Part(_CONSUMER, "perform_seek", "b497a1e5", "seeks to what the events prove"),
    Part(_CONSUMER, "verify_event_path", "604713dc", "does nothing: Faust's fails during a rebalance"),
    Part(_CONSUMER, "_new_consumer_thread", "935107c5", "makes our thread"),
    Part(_THREAD, "_create_worker_consumer", "f65f5b36", "sets how long a fetch waits, for which Faust has no setting"),
    Part(_THREAD, "on_thread_stop", "668ec5bf", "closes aiokafka's consumer also without Kafka"),
)
"""Methods that we override. Ours must do the same."""

USED = (
    Part(_CONSUMER, "_get_active_partitions", "22968d96", "what is to be fetched"),
    Part(_CONSUMER, "_to_message", "a1b4080f", "makes the message of a record; it takes further attributes"),
    Part(_CONSUMER, "_getmany", "8467eda4", "fetches, in the thread of the consumer"),
    Part(_CONSUMER, "seek_wait", "eb4b82e4", "seeks, and returns when that is done"),
    Part(_CONSUMER, "_read_offset", "", "what Faust drops messages by; it is to know nothing"),
    Part(_CONSUMER, "can_resume_flow", "", "set when messages may flow again"),
    Part(_CONSUMER, "flow_active", "", "whether messages may flow"),
    Part(_CONSUMER, "scheduler", "", "takes turns between partitions"),
    Part(_THREAD, "_consumer", "", "aiokafka's consumer, None before it has started"),
    Part(AIOKafkaConsumer, "_fetch_max_wait_ms", "", "read when the consumer starts"),
    Part(Service, "_crashed", "", "set when Faust has ended itself, which it reports to nobody"),
    Part(Service, "crash_reason", "", "why it did"),
)
"""Methods that we call, and attributes that we read or set."""

RESTED_ON = (
    Part(_CONSUMER, "_drain_messages", "534d0366", "calls getmany; drops by _read_offset; ends when the flow stops"),
    Part(_CONSUMER, "stop_flow", "32a6f2eb", "with flow_control.suspend and clear it stops the flow (hold)"),
    Part(_CONSUMER, "resume_flow", "4f6735e1", "with flow_control.resume it lets messages flow (resume_flowing)"),
    Part(Recovery, "_resume_streams", "bde61812", "sends on_rebalance_complete, then seeks, then lets messages flow"),
    Part(Recovery, "on_recovery_completed", "f101c61e", "the same order, after a recovery"),
    Part(App, "_on_partitions_revoked", "004fa86f", "stops the flow and clears the agents' queues before a rebalance"),
    Part(Service, "crash", "0c40fcdb", "sets _crashed and crash_reason"),
)
"""Methods that we neither override nor call, but depend on."""

PARTS = (*OVERRIDDEN, *USED, *RESTED_ON)
METHODS = tuple(part for part in PARTS if part.fingerprint)


def name_of(part: Part) -> str:
    return f"{part.of.__module__}.{part.of.__name__}.{part.name}"


def fingerprint_of(part: Part) -> str:
    """Returns a hash of a method's syntax tree without docstrings, so comments and layout do not count."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(part.of, part.name))))
    [function] = tree.body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    if ast.get_docstring(function) is not None:
        del function.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:8]


@pytest.mark.parametrize("part", METHODS, ids=name_of)
def test_private_method_of_faust_is_unchanged(part: Part) -> None:
    releases = ", ".join(f"{name} {version(name)} (read: {read})" for name, read in READ_FOR.items())
    assert fingerprint_of(part) == part.fingerprint, (
        f"{name_of(part)} has changed: {releases}. Compare it with controller/stream/worker/faust_seam.py. "
        f"We depend on it because: {part.why}. Then record {fingerprint_of(part)!r}"
    )


async def test_private_attributes_of_faust_exist(tmp_path: Path) -> None:
    driver = FaustDriver(engine_without_kafka(tmp_path), "127.0.0.1:1")
    app: Any = driver._make_app()
    kafka = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
    for part in set(PARTS) - set(METHODS):
        found = next(each for each in (app, app.consumer, app.consumer._thread, kafka) if isinstance(each, part.of))
        assert not inspect.ismethod(getattr(found, part.name)), (
            f"{name_of(part)} is no attribute. We use it: {part.why}"
        )
    await kafka.stop()
    app.consumer._thread.thread_loop.close()


async def test_faust_uses_the_folder_of_the_worker(tmp_path: Path) -> None:
    data = tmp_path / "{a}"
    app: Any = FaustDriver(engine_without_kafka(data), "127.0.0.1:1")._make_app()
    assert app.conf.datadir == data / "faust"
    app.consumer._thread.thread_loop.close()


OURS = {
    name
    for kind in (faust_seam.FaustConsumer, faust_seam._Thread, faust_seam.FaustTransport, FaustDriver)
    for name in vars(kind)
} | {"_fetching_or_seeking", "_fetched", "_NoOffsets"}


def test_every_private_faust_attribute_in_use_is_listed() -> None:
    source = Path(faust_seam.__file__).read_text(encoding="utf-8")
    touched = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    private = {name for name in touched if name.startswith("_") and not name.startswith("__")}
    listed = {part.name for part in PARTS}
    assert private - OURS - listed == set()


def test_only_the_faust_seam_uses_private_attributes() -> None:
    """The driver uses only private attributes of its own. No other product module imports Faust."""
    tree = ast.parse(Path(driver_faust.__file__).read_text(encoding="utf-8"))
    others = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    assert others == set()
    folder = Path(faust_seam.__file__).parents[2]
    importing = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"^\s*(from|import) (faust|mode)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importing == {"driver_faust.py", "faust_seam.py"}
