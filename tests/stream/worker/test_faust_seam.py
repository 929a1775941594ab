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
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer

from controller.stream.worker import driver_faust, faust_seam
from controller.stream.worker.driver import Group
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.engine import Engine
from controller.stream.worker.faust_seam import OVERRIDDEN, PRIVATE_PARTS, RESTED_ON, PrivatePart

READ_FOR = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}
"""The releases that were read when the prints were recorded."""
PRINTS = {
    "faust.transport.drivers.aiokafka.Consumer.getmany": "1936842581381d27",
    "faust.transport.drivers.aiokafka.Consumer.perform_seek": "b497a1e5339310a5",
    "faust.transport.drivers.aiokafka.Consumer.verify_event_path": "604713dc8f89b98d",
    "faust.transport.drivers.aiokafka.Consumer._new_consumer_thread": "935107c5390d82d5",
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread._create_worker_consumer": "f65f5b3633975b70",
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread._commit": "f7c554921bcbd62a",
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread.on_thread_stop": "668ec5bf92ff1c0f",
    "faust.transport.drivers.aiokafka.Consumer._get_active_partitions": "22968d961843d434",
    "faust.transport.drivers.aiokafka.Consumer._getmany": "8467eda4dd0cba70",
    "faust.transport.drivers.aiokafka.Consumer.seek_wait": "eb4b82e4b13ad236",
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread._ensure_consumer": "fb4a37a878bba2d1",
    "faust.transport.drivers.aiokafka.Consumer._drain_messages": "534d036692b697d3",
    "faust.transport.drivers.aiokafka.Consumer._to_message": "a1b4080f1f220e0f",
    "faust.transport.drivers.aiokafka.Consumer.ack": "c8d9d2a19869c5f5",
    "faust.transport.drivers.aiokafka.Consumer.stop_flow": "32a6f2ebd975effe",
    "faust.transport.drivers.aiokafka.Consumer.resume_flow": "4f6735e1116b9a94",
    "faust.tables.recovery.Recovery._resume_streams": "bde618122767c875",
    "faust.tables.recovery.Recovery.on_recovery_completed": "f101c61e28a0dfcc",
    "faust.app.base.App._on_partitions_revoked": "004fa86f2a2e88b2",
    "mode.services.Service.crash": "0c40fcdb97e8afd8",
}


GROUP = Group("127.0.0.1:1", "workers", "commands", 1, 6000)


def name_of(part: PrivatePart) -> str:
    return f"{part.of.__module__}.{part.of.__name__}.{part.name}"


def print_of(part: PrivatePart) -> str:
    """What a method does, whatever its comments and layout: a hash of its syntax tree without docstrings."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(part.of, part.name))))
    [function] = tree.body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    if ast.get_docstring(function) is not None:
        del function.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def is_method(part: PrivatePart) -> bool:
    return isinstance(
        inspect.getattr_static(part.of, part.name, None) or getattr(part.of, part.name, None), FunctionType
    )


METHODS = tuple(part for part in PRIVATE_PARTS if is_method(part))
ATTRIBUTES = tuple(part for part in PRIVATE_PARTS if not is_method(part))


@pytest.mark.parametrize("part", METHODS, ids=name_of)
def test_private_method_of_faust_is_unchanged(part: PrivatePart) -> None:
    releases = ", ".join(f"{name} {version(name)} (read: {read})" for name, read in READ_FOR.items())
    assert print_of(part) == PRINTS.get(name_of(part)), (
        f"{name_of(part)} has changed: {releases}. Read it beside controller/stream/worker/faust_seam.py. "
        f"We rest on it because: {part.why}. Then record {print_of(part)!r}"
    )


def test_every_fingerprint_has_a_private_part() -> None:
    assert PRINTS.keys() == {name_of(part) for part in METHODS}
    assert set(OVERRIDDEN) | set(RESTED_ON) <= set(METHODS), "what is overridden or rested on is a method"


async def test_attributes_are_there(tmp_path: Path) -> None:
    driver = FaustDriver(cast(Engine, SimpleNamespace(data=tmp_path)), GROUP)
    app: Any = driver._make_app()
    kafka = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
    for part in ATTRIBUTES:
        found = next(each for each in (app, app.consumer, app.consumer._thread, kafka) if isinstance(each, part.of))
        assert hasattr(found, part.name), f"{name_of(part)} is gone, on which we rest because: {part.why}"
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
    listed = {part.name for part in PRIVATE_PARTS}
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
