"""What every long-running process of Topicwright agrees on: its main loop, its exit codes, its policies, its memory."""

from __future__ import annotations

import asyncio
import base64
import gc
import signal
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from controller.controller_api import new_topic_ids
from controller.http.metrics import Metrics
from controller.policy.chain import PolicyProbe
from controller.policy.loading import load_policies
from controller.policy.runner import PolicyRunner
from controller.serving.loop_watch import LoopWatch
from controller.settings.load import ServeSettings

FAILED = 3
"""The exit code of a service that a bug or a log beyond recovery has ended; its log lines have the cause."""

DRAIN_S = 3.0
"""How long answers in flight may take once the service is to stop; with the rest it ends within 5 s."""

SWITCH_S = 0.001
"""How long a thread keeps the interpreter while others want it."""

PARTITION_BYTES = 1000
"""About what one decoded partition takes in the cache of topics, which keeps two generations."""

TRY_AGAIN_S = 1.0
"""How soon to try again to reach what does not answer."""

T = TypeVar("T")


class Service(Protocol):
    """What a process runs from its start until it is to stop, or fails."""

    metrics: Metrics

    @property
    def failed(self) -> asyncio.Event:
        """Set once it cannot go on; known once it is started."""

    @property
    def ready_line(self) -> str:
        """What is printed once requests are taken."""

    async def start(self) -> None:
        """Make everything ready. Raises what keeps it from starting; may be cancelled."""

    async def stop(self) -> None:
        """End in order, also after a start that failed or was cancelled."""


async def run_service(
    service: Service, stopping: asyncio.Event, leads_others: Callable[[], bool] = lambda: False
) -> int:
    """Run until `stopping` is set or the service fails; returns the exit code. Raises what prevented the start. While
    `leads_others`, a hanging event loop ends the process."""
    starting = asyncio.create_task(service.start())
    log = structlog.get_logger("topicwright")
    watch = LoopWatch(service.metrics, log, time.monotonic, wall_ms, leads_others)
    try:
        if not await finished(starting, stopping):
            return 0
        settle()
        watch.start()
        if not service.failed.is_set():
            print(service.ready_line, flush=True)
        failing = asyncio.create_task(service.failed.wait())
        return FAILED if await finished(failing, stopping) else 0
    finally:
        watch.stop()
        await service.stop()


async def finished(work: asyncio.Task[Any], stopping: asyncio.Event) -> bool:
    """Wait until work is finished; False if it was cut short because `stopping` was set. Raises what the work does."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not work.done():
        work.cancel()
        await asyncio.wait((work,))
    if work.cancelled():
        return False
    await work
    return True


def wall_ms() -> int:
    """The wall clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


async def reached(
    what: str,
    reach: Callable[[], Awaitable[T]],
    unreachable: type[Exception],
    on_wait: Callable[[str], None] = lambda _: None,
    **where: str,
) -> T:
    """What `reach` returns, as soon as it does not raise `unreachable`. Each new reason to wait is logged, and
    `on_wait` is given it each time."""
    logged = ""
    while True:
        try:
            return await reach()
        except unreachable as error:
            why = str(error)
        on_wait(why)
        if why != logged:
            logged = why
            structlog.get_logger("topicwright").warning(f"waiting for {what}", why=why, **where)
        await asyncio.sleep(TRY_AGAIN_S)


def warn_of_readers(data: Path, settings: ServeSettings) -> None:
    """Say which secrets of this process others on the machine can read: a data folder that an older release made, or
    that was copied, also by its group; a users file or a private key by everybody."""
    keys = (settings.ssl_keystore_location, *(of.get("ssl_keystore_location") for of in settings.of_listeners.values()))
    secrets = (settings.users_file, settings.log_signing_key_location, *keys)
    files = {Path(each) for each in secrets if each is not None}
    for path, others in ((data, 0o077), *((file, 0o007) for file in sorted(files))):
        with suppress(OSError):  # what is not there, or cannot be had, is met by whoever opens it
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & others:
                change = f"chmod {'go' if others & 0o070 else 'o'}= {path}"
                structlog.get_logger("topicwright").warning(
                    "others can read secrets", path=str(path), mode=f"{mode:04o}", change=change
                )


def warn_of_ignored(file: Path | None, settings: ServeSettings) -> None:
    """Name the settings in a broker's file that this process has no use for."""
    if settings.ignored:
        structlog.get_logger("topicwright").warning(
            "settings of Kafka's brokers are ignored", file=str(file), settings=", ".join(settings.ignored)
        )


def policy_runner(settings: ServeSettings, metrics: Metrics) -> PolicyRunner | None:
    """The policies that the settings name; None where they name none. Raises PolicyLoadError."""

    def failed(policy: str, topic: str, error: BaseException) -> None:
        structlog.get_logger("topicwright").error("policy failed", policy=policy, topic=topic, exc_info=error)

    probe = PolicyProbe(clock=time.perf_counter, on_verdict=metrics.policy_judged, on_exception=failed)
    chain = load_policies(settings.create_topic_policy_class_name, settings.as_mapping())
    return PolicyRunner(chain, probe=probe) if chain.names else None


def settle() -> None:
    """Take what exists now for what will stay, and look for garbage seldom.

    State is hundreds of thousands of objects without cycles; looking through them at Python's own rate takes a tenth to
    a seventh of the time of deciding.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: sixteen bytes in base64url."""
    return base64.urlsafe_b64encode(new_topic_ids(1)[0]).rstrip(b"=").decode()
