"""`topicwright worker`: one of any number of processes that decide what gateways put into the commands topic.

It prints `ready http=HOST:PORT` when it has joined the group and claimed what it was assigned. Kafka that cannot be
reached is waited for, with a line in the log and not-ready over HTTP; topics that are not what they must be, and
settings that nothing can start with, end it with 2. What would make a decision wrong (a gap, events of a newer release,
a bug) ends it at once with 3, with nothing acknowledged that is not in Kafka.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from controller.brokers.cluster.security import Security
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.engine.background import Background
from controller.engine.reports import Reports
from controller.engine.stamps import Stamps
from controller.http.app import build_worker_app
from controller.http.metrics import Metrics
from controller.http.server import HttpListener
from controller.release import RELEASE
from controller.serving.archiving import head_signer
from controller.serving.client_listeners import Address, connection_counts, is_open, reach_of
from controller.serving.log_lines import write_lines
from controller.serving.process import FAILED, policy_runner, reached, run_service, stop_on_signals, wall_ms
from controller.serving.reach_cluster import ReachedCluster, decision_settings, reach_as, security_in
from controller.settings.load import ServeSettings, SettingsError
from controller.stream.log.beginning import archive_of
from controller.stream.log.folder_lock import hold_folder
from controller.stream.log.partition import Memory, PartitionState
from controller.stream.log.topic_watch import TopicWatch
from controller.stream.log.topics import KafkaUnreachable, Wanted, prepare_topics
from controller.stream.log.transport import NO_SECURITY, KafkaTransport, Topics
from controller.stream.worker.driver import Driver, DriverEnded, Group
from controller.stream.worker.duties import MakeFleet, PartitionDuties, Surroundings
from controller.stream.worker.engine import Engine, Identity, Lost
from controller.stream.worker.partition_cluster import partition_clusters
from controller.stream.worker.partition_history import PartitionHistory
from controller.stream.worker.status import WorkerStatus

POLICIES_CLOSE_S = 1.0  # policies that hang must not keep a worker from ending
LEAVE_S = 10.0
"""How long a worker that is to stop may take to decide what it has in hand and to leave the group. Without Kafka
neither ends; to go without is to be found missing when the session is over, like a worker that was killed."""

MakeDriver = Callable[[Engine, Group], Driver]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line and the settings say of a `worker`."""

    bootstrap: str
    http: Address
    data: Path
    settings: ServeSettings
    make_driver: MakeDriver
    make_fleet: MakeFleet | None = None
    """The brokers of a partition; None where a Kafka cluster carries decisions out."""
    cluster: str = ""
    """Where to find that cluster (HOST:PORT[,…]); empty for the one that holds the log."""
    release: str = RELEASE
    security: Security = NO_SECURITY
    """Who we are at the Kafka that holds the log."""

    @property
    def properties(self) -> dict[str, str | int | float | bool]:
        """librdkafka's properties for reaching that Kafka."""
        return {**self.security.properties, "bootstrap.servers": self.bootstrap}


class Worker:
    """Puts the parts of one `worker` together, and ends them in order. Made with its folder held: raises FolderHeld,
    PolicyLoadError and SettingsError."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.failed = asyncio.Event()
        """Never set: a failure ends the process at once."""
        metrics, settings = Metrics(), options.settings
        self.metrics = metrics
        self._log = structlog.get_logger("topicwright")
        self._signer = head_signer(settings)
        self._policies = policy_runner(settings, metrics)
        self._folder = hold_folder(options.data)
        decisions = settings.log_level in ("debug", "info")
        self._reports = Reports(self._log, write_lines, metrics, decisions=decisions)
        self._status = WorkerStatus(self._reports)
        metrics.watch(self._status.gauges)
        reach = reach_of(settings).named(options.http.host)
        self._app = build_worker_app(self._status.why_not_ready, self._trouble, metrics, options.release, reach)
        self._http = HttpListener(counts=connection_counts(settings))
        self._cluster: ReachedCluster | None = None
        self._engine: Engine | None = None
        self._topic_watch: TopicWatch | None = None
        self._running: asyncio.Task[None] | None = None
        self._beside = Background(self.fail)
        self._leaving = asyncio.Event()
        self._claimed_once = asyncio.Event()

    async def listen(self) -> None:
        """Answer over HTTP from now on. Raises OSError where the address cannot be had."""
        host, port = self.options.http.host, self.options.http.port
        self._address = Address(host, await self._http.start(self._app, host, port))

    @property
    def ready_line(self) -> str:
        """What is printed once commands are decided."""
        ready, at = f"ready http={self._address}", self._address
        is_seen = is_open(self.options.http.host)
        return f"{ready}\nwarning: nobody logs in to HTTP: whoever reaches {at} sees figures" if is_seen else ready

    async def start(self) -> None:
        """Join the group and claim what is assigned, as soon as Kafka and the cluster answer. Raises TopicsMismatch and
        SettingsError."""
        topics = await self._topics()
        make_fleet = await self._fleet(topics)
        driver = self._driver(topics, make_fleet)
        self._status.doing = "joining the group"
        self._running = asyncio.create_task(driver.run(self._leaving, self._claimed))
        self._running.add_done_callback(self._driver_ended)
        await self._claimed_once.wait()

    async def stop(self) -> None:
        """End in order: the batch in hand, then the group."""
        self._leaving.set()
        has_left = True
        if self._running is not None:
            ended, _ = await asyncio.wait((self._running,), timeout=LEAVE_S)
            has_left = bool(ended)
        self._status.doing = "stopping"
        await self._beside.stop()
        if self._engine is not None and has_left:
            await self._engine.close()
        if self._cluster is not None:
            self._cluster.link.close()
        if self._policies is not None:
            for failure in await self._policies.close(POLICIES_CLOSE_S):
                self._reports.policy_close_failed(failure)
        await self._http.stop()
        if not has_left:  # what still waits for Kafka is not waited for
            self._log.warning("left the group without a word", why=f"Kafka does not answer within {LEAVE_S:g} s")
            sys.stdout.flush()
            os._exit(0)

    def fail(self, error: BaseException) -> None:
        """End the process at once: whatever is not in Kafka was acknowledged to nobody."""
        is_known = isinstance(error, Lost | DriverEnded)
        self._log.error("worker failed", why=f"{type(error).__name__}: {error}", exc_info=None if is_known else error)
        os._exit(FAILED)

    async def _topics(self) -> Topics:
        options = self.options
        wanted = Wanted.by(options.settings)
        return await reached(
            "Kafka",
            lambda: asyncio.to_thread(prepare_topics, options.properties, wanted, options.data),
            KafkaUnreachable,
            self._wait_for,
            bootstrap=options.bootstrap,
        )

    async def _fleet(self, topics: Topics) -> MakeFleet:
        """Whose the partitions' topics are. Raises SettingsError."""
        options, settings = self.options, self.options.settings
        if options.make_fleet is not None:
            return options.make_fleet
        bootstrap, file = options.cluster or options.bootstrap, settings.cluster_client_properties_file
        security = security_in(file) if file is not None else options.security
        self._cluster = await reached(
            "the cluster that carries decisions out",
            lambda: reach_as(security, bootstrap, self._log, within_s=0),
            ClusterUnreachable,
            self._wait_for,
        )
        return partition_clusters(self._cluster, topics, settings)

    def _trouble(self) -> str | None:
        return None if self._topic_watch is None else self._topic_watch.trouble

    def _wait_for(self, why: str) -> None:
        self._status.doing = why

    def _driver(self, topics: Topics, make_fleet: MakeFleet) -> Driver:
        options, settings, writer = self.options, self.options.settings, os.urandom(5).hex()

        def troubled(why: str) -> None:
            self._status.lost(why)
            driver.claim_anew()

        def history_of(partition: PartitionState) -> PartitionHistory:
            assert archive is not None
            place = archive(partition.partition)
            where = f"the worker at {self._address}"
            return PartitionHistory(partition, place, settings, writer, where, wall_ms, self.fail)

        archive = archive_of(settings)
        duties = PartitionDuties(
            Surroundings(
                partitions=topics.partitions,
                transport=lambda: engine.transport,
                clock_ms=wall_ms,
                new_request_id=Stamps(os.urandom(16).hex(), wall_ms).new_request_id,
                make_fleet=make_fleet,
                on_trouble=troubled,
                on_failure=self.fail,
                history=None if archive is None else history_of,
                signer=self._signer,
                signing_interval_s=settings.log_signing_interval_ms / 1000,
            )
        )
        engine = self._engine = Engine(
            options.data,
            topics,
            Identity(writer, options.release, decision_settings(settings, self._cluster is not None)),
            connect=lambda: KafkaTransport(options.bootstrap, topics, options.security),
            owner=duties,
            watcher=self._status,
            clock=time.perf_counter,
            clock_ms=wall_ms,
            judge=self._policies,
            cluster_of=duties.cluster_of,
            archive=archive,
            memory=Memory.share(settings.store_cache_bytes, topics.partitions),
        )
        self._status.show(engine, duties)
        topic_watch = self._topic_watch = TopicWatch(options.properties, topics, is_archived=archive is not None)
        self.metrics.watch(topic_watch.gauges)
        for looking in (self._status.look(engine), topic_watch.watch(self.fail)):
            self._beside.begin(looking)
        group = Group(
            options.bootstrap,
            settings.stream_group_id,
            topics.commands,
            topics.partitions,
            settings.stream_session_timeout_ms,
            options.security,
        )
        driver = options.make_driver(engine, group)
        return driver

    def _claimed(self) -> None:
        self._status.doing = None
        self._claimed_once.set()

    def _driver_ended(self, running: asyncio.Task[None]) -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None:
            self.fail(error)


async def work(options: WorkerOptions) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit code. Raises what kept it from starting."""
    worker = Worker(options)
    await worker.listen()
    try:
        return await run_service(worker, stop_on_signals())
    except SettingsError:
        raise
    except Exception as error:
        worker.fail(error)
        raise
