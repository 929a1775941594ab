"""The main loop, exit codes, policies and memory settings of `serve`, `worker` and `gateway`."""

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
"""The exit code after a bug, or for a log beyond recovery; the log lines have the cause."""

DRAIN_S = 3.0
"""How long responses in flight may take when the process stops; it ends within 5 s altogether."""

SWITCH_S = 0.001
"""How long a thread holds the interpreter lock while others wait for it."""

PARTITION_BYTES = 1000
"""Approximate size of a decoded partition in the cache of topics, which has two generations."""

RETRY_S = 1.0

T = TypeVar("T")


class Service(Protocol):
    """The parts of a process, from its start until it must stop or fails."""

    metrics: Metrics

    @property
    def failed(self) -> asyncio.Event:
        """Set once it cannot go on; defined after `start`."""

    @property
    def ready_line(self) -> str:
        """The line to print once requests are accepted."""

    async def start(self) -> None:
        """Start everything. Raises what prevents the start; may be cancelled."""

    async def stop(self) -> None:
        """Stop in order, also after a start that failed or was cancelled."""


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
    """Wait until work is finished; returns False if it was cancelled because `stopping` was set. Raises its error."""
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
    """Call `reach` until it does not raise `unreachable`, and return its result. Each new reason is logged; `on_wait`
    receives every reason."""
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
        await asyncio.sleep(RETRY_S)


def warn_of_readers(data: Path, settings: ServeSettings) -> None:
    """Warn of secrets that other users of the machine can read: the data folder, also by its group; a users file or a
    private key by everybody."""
    keys = (settings.ssl_keystore_location, *(of.get("ssl_keystore_location") for of in settings.of_listeners.values()))
    secrets = (settings.users_file, settings.log_signing_key_location, *keys)
    files = {Path(each) for each in secrets if each is not None}
    for path, others in ((data, 0o077), *((file, 0o007) for file in sorted(files))):
        with suppress(OSError):  # opening a missing or unreadable file reports it
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & others:
                change = f"chmod {'go' if others & 0o070 else 'o'}= {path}"
                structlog.get_logger("topicwright").warning(
                    "others can read secrets", path=str(path), mode=f"{mode:04o}", change=change
                )


def warn_of_ignored(file: Path | None, settings: ServeSettings) -> None:
    """Warn of settings in a broker's file that this process ignores."""
    if settings.ignored:
        structlog.get_logger("topicwright").warning(
            "settings of Kafka's brokers are ignored", file=str(file), settings=", ".join(settings.ignored)
        )


def policy_runner(settings: ServeSettings, metrics: Metrics) -> PolicyRunner | None:
    """The policies of the settings; None without any. Raises PolicyLoadError."""

    def failed(policy: str, topic: str, error: BaseException) -> None:
        structlog.get_logger("topicwright").error("policy failed", policy=policy, topic=topic, exc_info=error)

    probe = PolicyProbe(clock=time.perf_counter, on_verdict=metrics.policy_judged, on_exception=failed)
    chain = load_policies(settings.create_topic_policy_class_name, settings.as_mapping())
    return PolicyRunner(chain, probe=probe) if chain.names else None


def settle() -> None:
    """Exclude existing objects from garbage collection, and collect less often.

    State is hundreds of thousands of objects without cycles. Scanning them at Python's default rate takes 10 to 14 % of
    the time of deciding.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: sixteen bytes in base64url."""
    return base64.urlsafe_b64encode(new_topic_ids(1)[0]).rstrip(b"=").decode()
