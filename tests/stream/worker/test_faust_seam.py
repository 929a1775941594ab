"""What we rest on beneath Faust's surface is as it was when the seam was written.

A failure here after an upgrade means: read the part anew, in Faust and in `faust_seam`, for the reason that its row
gives; change the seam where that is needed; then record the new print.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from aiokafka import AIOKafkaConsumer
from faust.app.base import App
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as transport
from mode import Service

from controller.stream.worker import driver_faust, faust_seam
from controller.stream.worker.driver import Group
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.engine import Engine

READ_FOR = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}
"""The releases that were read when the fingerprints were recorded."""


class Part(NamedTuple):
    """An internal method or attribute of Faust. `fingerprint_of` gives the fingerprint; attributes have none."""

    of: type
    name: str
    fingerprint: str
    why: str


_CONSUMER, _THREAD = transport.Consumer, transport.AIOKafkaConsumerThread

OVERRIDDEN = (
    Part(_CONSUMER, "getmany", "19368425", "fetches once, excludes seeks, and drops messages from before a seek"),
    Part(_CONSUMER, "perform_seek", "b497a1e5", "seeks to what the events prove, and sets committed offsets and acks"),
    Part(_CONSUMER, "verify_event_path", "604713dc", "does nothing: Faust's fails during a rebalance"),
    Part(_CONSUMER, "_new_consumer_thread", "935107c5", "makes our thread"),
    Part(_THREAD, "_create_worker_consumer", "f65f5b36", "sets how long a fetch waits, for which Faust has no setting"),
    Part(_THREAD, "_commit", "f7c55492", "a commit that fails does not crash the worker"),
    Part(_THREAD, "on_thread_stop", "668ec5bf", "closes aiokafka's consumer also without Kafka"),
)
"""Methods that we override: ours must do what Faust's do."""

USED = (
    Part(_CONSUMER, "_get_active_partitions", "22968d96", "what is to be fetched"),
    Part(_CONSUMER, "_getmany", "8467eda4", "fetches, in the thread of the consumer"),
    Part(_CONSUMER, "seek_wait", "eb4b82e4", "seeks, and returns when that is done"),
    Part(_CONSUMER, "_read_offset", "", "what Faust drops messages by; it is to know nothing"),
    Part(_CONSUMER, "_committed_offset", "", "from where Faust counts acks; it follows each seek"),
    Part(_CONSUMER, "_acked", "", "acks that wait for those before them; none outlives a seek"),
    Part(_CONSUMER, "_acked_index", "", "the same acks, for looking them up"),
    Part(_CONSUMER, "can_resume_flow", "", "set when messages may flow again"),
    Part(_CONSUMER, "flow_active", "", "whether messages may flow"),
    Part(_CONSUMER, "scheduler", "", "takes turns between partitions"),
    Part(_THREAD, "_ensure_consumer", "fb4a37a8", "aiokafka's consumer, to commit with"),
    Part(_THREAD, "_consumer", "", "the same, None before it has started"),
    Part(AIOKafkaConsumer, "_fetch_max_wait_ms", "", "read when the consumer starts"),
    Part(Service, "_crashed", "", "set when Faust has ended itself, which it reports to nobody"),
    Part(Service, "crash_reason", "", "why it did"),
)
"""Methods that we call, and attributes that we read or set."""

RESTED_ON = (
    Part(_CONSUMER, "_drain_messages", "534d0366", "calls getmany; drops by _read_offset; ends when the flow stops"),
    Part(_CONSUMER, "_to_message", "a1b4080f", "_message makes the same message"),
    Part(_CONSUMER, "ack", "c8d9d2a1", "counts acks from _committed_offset on"),
    Part(_CONSUMER, "stop_flow", "32a6f2eb", "with flow_control.suspend and clear it stops the flow (hold)"),
    Part(_CONSUMER, "resume_flow", "4f6735e1", "with flow_control.resume it lets messages flow (resume_flowing)"),
    Part(Recovery, "_resume_streams", "bde61812", "sends on_rebalance_complete, then seeks, then lets messages flow"),
    Part(Recovery, "on_recovery_completed", "f101c61e", "the same order, after a recovery"),
    Part(App, "_on_partitions_revoked", "004fa86f", "stops the flow and clears the agents' queues before a rebalance"),
    Part(Service, "crash", "0c40fcdb", "sets _crashed and crash_reason"),
)
"""Methods that we do not touch, whose behaviour we depend on."""

PARTS = (*OVERRIDDEN, *USED, *RESTED_ON)
METHODS = tuple(part for part in PARTS if part.fingerprint)
GROUP = Group("127.0.0.1:1", "workers", "commands", 1, 6000)


def name_of(part: Part) -> str:
    return f"{part.of.__module__}.{part.of.__name__}.{part.name}"


def fingerprint_of(part: Part) -> str:
    """What a method does, whatever its comments and layout: a hash of its syntax tree without docstrings."""
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
        f"{name_of(part)} has changed: {releases}. Read it beside controller/stream/worker/faust_seam.py. "
        f"We rest on it because: {part.why}. Then record {fingerprint_of(part)!r}"
    )


async def test_attributes_are_there(tmp_path: Path) -> None:
    driver = FaustDriver(cast(Engine, SimpleNamespace(data=tmp_path)), GROUP)
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
    app: Any = FaustDriver(cast(Engine, SimpleNamespace(data=data)), GROUP)._make_app()
    assert app.conf.datadir == data / "faust"
    app.consumer._thread.thread_loop.close()


OURS = {
    name
    for kind in (faust_seam.FaustConsumer, faust_seam._Thread, faust_seam.FaustTransport, FaustDriver)
    for name in vars(kind)
} | {"_fetching_or_seeking", "_fetched", "_message", "_NoOffsets"}


def test_every_private_part_that_is_touched_is_listed() -> None:
    source = Path(faust_seam.__file__).read_text(encoding="utf-8")
    touched = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    private = {name for name in touched if name.startswith("_") and not name.startswith("__")}
    listed = {part.name for part in PARTS}
    assert private - OURS - listed == set()


def test_only_the_seam_touches_private_parts() -> None:
    """The driver has private parts of its own only; nothing else of the product imports Faust."""
    tree = ast.parse(Path(driver_faust.__file__).read_text(encoding="utf-8"))
    others = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
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
