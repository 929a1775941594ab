"""`topicwright worker`: one of several processes that decide the commands in the commands topic.

A worker joins a consumer group, and claims its assigned partitions by fencing the previous owner. Then it prints
`ready http=HOST:PORT`. While Kafka is unreachable, it waits, logs the reason, and is not ready over HTTP.

Exit codes. 2: topics or settings do not match. 3, at once: a decision could be wrong, because of a gap in a topic,
events of a newer release, or a bug. Exiting is safe, because every acknowledged event is in Kafka.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
import structlog

from controller.brokers.cluster.link import ClusterLink
from controller.brokers.port import publish
from controller.engine.decider import trace_of
from controller.engine.reports import Reports
from controller.engine.requests import Stamps
from controller.engine.tasks import Background
from controller.http.app import build_worker_app
from controller.http.connections import HttpListener
from controller.http.metrics import Metrics
from controller.kafka.connections import ClusterUnreachable, Security
from controller.machine.rules.reading import refuse_approval
from controller.release import RELEASE
from controller.serving.archiving import archive_store, head_signer
from controller.serving.client_listeners import Address, hosts_of, is_open
from controller.serving.listeners import connection_counts
from controller.serving.log_lines import write_lines
from controller.serving.process import (
    FAILED,
    lock_folder,
    policy_runner,
    reached,
    rules_of_file,
    run_service,
    stop_on_signals,
    wall_ms,
)
from controller.serving.reach_cluster import decision_settings, reach_as, security_in
from controller.settings.load import ServeSettings, SettingsError
from controller.stream.log.topics import KafkaUnavailable, Topics, TopicWatch, prepare_topics
from controller.stream.log.transport import NO_SECURITY, Transport
from controller.stream.worker.driver import Driver, DriverEnded, PlainDriver
from controller.stream.worker.engine import Engine
from controller.stream.worker.owner_tasks import (
    MakeBrokers,
    PartitionBrokers,
    PartitionCluster,
    PartitionLeader,
    WorkerContext,
)
from controller.stream.worker.partition_decider import Fault, RequestCommand, Sourced
from events.catalog import Recorded
from events.errors import MissingExtra

LEAVE_S = 10.0
"""How long a stopping worker may take to finish its batch and leave the group. Without Kafka it can do
neither: it exits without leaving, and its session expires."""

POLL_INTERVAL_S = 2.0  # of the offsets for metrics
POLL_TIMEOUT_S = 5.0
"""If Kafka does not answer a poll within this time, the worker is not ready."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap: str
    http: Address
    data: Path
    settings: ServeSettings
    driver: str
    """plain or faust."""
    brokers: int | str
    """The number of simulated brokers, or the addresses of the target cluster (empty: the Kafka that holds the log)."""
    security: Security = NO_SECURITY
    """The credentials for the Kafka that holds the log."""

    @property
    def properties(self) -> dict[str, str | int | float | bool]:
        return {**self.security.properties, "bootstrap.servers": self.bootstrap}


class WorkerStatus:
    """The log lines, metrics and readiness of a worker. Implements `owner_tasks.Watcher`.

    `idle_reason` is the reason why the worker decides nothing; None while it owns its partitions. `poll` requests the
    end offsets of the commands partitions regularly, and so detects that Kafka does not answer.
    """

    def __init__(self, reports: Reports) -> None:
        self.idle_reason: str | None = "starting"
        self._reports = reports
        self._log = structlog.get_logger("topicwright")
        self.engine: Engine | None = None
        """The engine whose state is reported; None before it starts."""
        self._unreachable: str | None = None
        self._claims = self._commands = self._faults = self._copies = self._losses = 0
        self._ends: dict[int, int] = {}
        """The offset of the next command of each owned partition, as of the last poll."""

    @property
    def _leaders(self) -> dict[int, PartitionLeader]:
        return {} if self.engine is None else self.engine.leaders

    def why_not_ready(self) -> str | None:
        """The reason why the worker decides no commands; None if it decides."""
        errors = (each.cluster.error for each in self._leaders.values() if each.cluster is not None)
        error = next(filter(None, errors), None)
        return self.idle_reason or self._unreachable or (error and f"the cluster cannot be reached: {error}")

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        leaders = self._leaders
        behind = sum(max(0, self._ends.get(number, 0) - each.next_source) for number, each in leaders.items())
        yield "ready", "1 when commands are decided.", float(self.why_not_ready() is None)
        yield "partitions_owned", "Partitions that this worker decides.", len(leaders)
        yield "commands_decided", "Commands decided since the start.", self._commands
        yield "commands_passed_over", "Commands that could not be decided, and are recorded as faults.", self._faults
        yield "commands_duplicate", "Duplicates of recently decided commands, which are skipped.", self._copies
        yield "commands_behind", "Undecided commands, as of the last poll, every 2 s.", behind
        paused = sum(1 for each in leaders.values() if each.history is not None and each.history.error)
        yield "partitions_not_archived", "Owned partitions whose archive cannot be written now.", paused
        yield "claims", "Partitions claimed since the start.", self._claims
        yield "losses", "Times that partitions were lost and claimed again.", self._losses

    async def poll(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                for partition in sorted(engine.leaders) or [0]:
                    _, end = await asyncio.wait_for(engine.transport.commands_range(partition), POLL_TIMEOUT_S)
                    self._ends[partition] = end
                self._unreachable = None
            except (KafkaUnavailable, TimeoutError) as error:
                why = f"Kafka does not answer: {error or 'no answer in time'}"
                if self._unreachable is None:
                    self._log.warning("Kafka lost", why=why)
                self._unreachable = why

    # --- what the engine reports

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None:
        self._claims += 1
        self._log.info("partition claimed", partition=partition, epoch=epoch, read=read, ms=round(seconds * 1000))

    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None:
        self._commands += commands
        self._reports.figures.committed(commands, len(records), seconds)
        if records:
            publish(records, self._reports)

    def skipped(self, fault: Fault) -> None:
        self._faults += 1
        trace = None if fault.error is None else trace_of(fault.error)
        where = {"partition": fault.partition, "offset": fault.offset}
        self._log.error("command skipped", **where, why=fault.why, trace=trace)

    def duplicate(self, sourced: Sourced, command: RequestCommand) -> None:
        self._copies += 1
        self._log.info(
            "duplicate command skipped",
            partition=sourced.partition,
            offset=sourced.offset,
            command=type(command).__name__,
            request=command.request_id,
            topic=command.topic,
        )

    def lost(self, why: str) -> None:
        self._losses += 1
        self.idle_reason = f"partitions are being claimed again: {why}"
        self._log.warning("partitions lost, claiming them again", why=why)


class Worker:
    """The parts of one `worker` process. Locks the folder. Raises OSError, PolicyLoadError and SettingsError."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.failed = asyncio.Event()
        """Required by `run_service`, but never set: a failure ends the process at once."""
        metrics, settings = Metrics(), options.settings
        self.metrics = metrics
        self._log = structlog.get_logger("topicwright")
        self._signer = head_signer(settings)
        self._policies = policy_runner(settings, metrics)
        self._rules = rules_of_file(settings)
        refuse_approval(self._rules or "")
        self._folder = lock_folder(options.data)
        decisions = settings.log_level in ("debug", "info")
        self._reports = Reports(self._log, write_lines, metrics, decisions=decisions)
        self._status = WorkerStatus(self._reports)
        metrics.watch(self._status.gauges)
        hosts = hosts_of(settings).named(options.http.host)
        self._app = build_worker_app(
            self._status.why_not_ready,
            lambda: None if self._topic_watch is None else self._topic_watch.error,
            metrics,
            hosts,
        )
        self._http = HttpListener(counts=connection_counts(settings))
        self._cluster: ClusterLink | None = None
        self._topic_watch: TopicWatch | None = None
        self._running: asyncio.Task[None] | None = None
        self._background, self._driving = Background(self.fail), Background(self.fail)
        self._leaving = asyncio.Event()
        self._claimed_once = asyncio.Event()

    async def listen(self) -> None:
        """Serve HTTP from now on. Raises OSError for an unavailable address."""
        host, port = self.options.http.host, self.options.http.port
        self._address = Address(host, await self._http.start(self._app, host, port))

    @property
    def ready_line(self) -> str:
        """The line to print when the worker decides commands; with a warning if HTTP is open to other hosts."""
        ready, at = f"ready http={self._address}", self._address
        is_public = is_open(self.options.http.host)
        warning = f"warning: HTTP has no authentication: anyone who can reach {at} sees metrics"
        return f"{ready}\n{warning}" if is_public else ready

    async def start(self) -> None:
        """Wait for Kafka and the target cluster, then join the group and claim the assigned partitions. Raises
        TopicsMismatch and SettingsError."""
        options = self.options
        topics = await reached(
            "Kafka",
            lambda: asyncio.to_thread(prepare_topics, options.properties, options.settings, options.data),
            KafkaUnavailable,
            self._wait_for,
            bootstrap=options.bootstrap,
        )
        make_brokers = await self._make_brokers(topics)
        driver = self._driver(topics, make_brokers)
        self._status.idle_reason = "joining the group"
        self._running = self._driving.begin(driver.run(self._leaving, self._claimed))
        await self._claimed_once.wait()

    async def stop(self) -> None:
        """Finish the batch, then leave the group."""
        self._leaving.set()
        has_left = True
        if self._running is not None:
            ended, _ = await asyncio.wait((self._running,), timeout=LEAVE_S)
            has_left = bool(ended)
        self._status.idle_reason = "stopping"
        await self._background.stop()
        if self._status.engine is not None and has_left:
            await self._status.engine.close()
        if self._cluster is not None:
            self._cluster.close()
        await self._reports.close_policies(self._policies)
        await self._http.stop()
        if not has_left:  # tasks that wait for Kafka would block a normal exit
            self._log.warning("exiting without leaving the group", why=f"Kafka does not answer within {LEAVE_S:g} s")
            sys.stdout.flush()
            os._exit(0)

    def fail(self, error: BaseException) -> None:
        """End the process at once. This is safe, because every acknowledged event is in Kafka."""
        shown = None if isinstance(error, DriverEnded) else error
        self._log.error("worker failed", why=f"{type(error).__name__}: {error}", exc_info=shown)
        os._exit(FAILED)

    async def _make_brokers(self, topics: Topics) -> MakeBrokers:
        """The function that makes the brokers of a partition. Connects to the target cluster. Raises SettingsError."""
        options, settings = self.options, self.options.settings
        if isinstance(options.brokers, int):
            return partial(PartitionBrokers, options.brokers)
        bootstrap, file = options.brokers or options.bootstrap, settings.cluster_client_properties_file
        security = options.security if file is None else await asyncio.to_thread(security_in, file)
        self._cluster = await reached(
            "the target cluster", partial(reach_as, security, bootstrap), ClusterUnreachable, self._wait_for
        )
        return partial(PartitionCluster, self._cluster, topics, settings)

    def _wait_for(self, why: str) -> None:
        self._status.idle_reason = why

    def _driver(self, topics: Topics, make_brokers: MakeBrokers) -> Driver:
        options, settings = self.options, self.options.settings
        context = WorkerContext(
            data=options.data,
            topics=topics,
            writer=os.urandom(5).hex(),
            release=RELEASE,
            where=f"the worker at {self._address}",
            settings=settings,
            decision_settings=decision_settings(settings, self._cluster is not None),
            connect=lambda: Transport(options.bootstrap, topics, options.security),
            clock=time.perf_counter,
            clock_ms=wall_ms,
            stamps=Stamps(os.urandom(16).hex(), wall_ms),
            watcher=self._status,
            on_failure=self.fail,
            make_brokers=make_brokers,
            judge=self._policies,
            signer=self._signer,
            rules=self._rules,
        )
        engine = self._status.engine = Engine(context)
        topic_watch = self._topic_watch = TopicWatch(
            options.properties, topics, is_archived=archive_store(settings) is not None
        )
        self.metrics.watch(topic_watch.gauges)
        for task in (self._status.poll(engine), topic_watch.watch(self.fail)):
            self._background.begin(task)
        if options.driver == "plain":
            return PlainDriver(engine, options.bootstrap, options.security)
        from controller.stream.worker.driver_faust import FaustDriver  # imports Faust

        return FaustDriver(engine, options.bootstrap, options.security)

    def _claimed(self) -> None:
        self._status.idle_reason = None
        self._claimed_once.set()


async def work(options: WorkerOptions) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit code.

    Raises SettingsError, MissingExtra, PolicyLoadError, and OSError for a folder in use or an unavailable HTTP address.
    Any other error ends the process.
    """
    if options.driver == "faust":
        try:
            import_module("faust")  # before the worker joins the group
        except ImportError as error:
            raise MissingExtra("worker, unless --driver plain,", "faust", error) from error
    worker = Worker(options)
    await worker.listen()
    try:
        return await run_service(worker, stop_on_signals())
    except SettingsError:
        raise
    except Exception as error:
        worker.fail(error)
        raise
