"""`topicwright worker`: one of any number of processes that decide what fronts put into the commands topic.

It prints `ready http=HOST:PORT` when it has joined the group and claimed what it was assigned. Kafka that cannot be
reached is waited for, with a line in the log and not-ready over HTTP; topics that are not what they must be, and
settings that nothing can start with, end it with 2. What would make a decision wrong (a gap, events of a newer release,
a bug) ends it at once with 3, with nothing acknowledged that is not in Kafka.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from controller.brokers.cluster_security import Security
from controller.brokers.cluster_wire import ClusterUnreachable
from controller.http.metrics import Metrics
from controller.http.server import HttpListener
from controller.http.worker import build_worker_app
from controller.policy.chain import PolicyChain, PolicyProbe
from controller.policy.loading import load_policies
from controller.policy.runner import PolicyRunner
from controller.release import RELEASE
from controller.runtime.collecting import settle
from controller.runtime.entrance import Address
from controller.runtime.logs import write_lines
from controller.runtime.reaching import ReachedCluster, decision_settings, reach_as, security_in, watch_times
from controller.runtime.reports import Reports
from controller.runtime.serve import FAILED
from controller.runtime.settings import ServeSettings, SettingsError
from controller.runtime.stream.carrying_out import PartitionCluster
from controller.runtime.stream.deciding import Copy, Fault
from controller.runtime.stream.driver import Driver, DriverEnded, Group
from controller.runtime.stream.engine import Engine, Identity, Lost
from controller.runtime.stream.folder import hold_folder
from controller.runtime.stream.topic_watch import TopicWatch
from controller.runtime.stream.topics import KafkaUnreachable, TopicsMismatch, Wanted, prepare_topics
from controller.runtime.stream.transport import NO_SECURITY, KafkaTransport, KafkaTrouble, Topics
from controller.runtime.stream.watching import MakeFleet, Surroundings, Watching
from events.catalog import Recorded

POLICIES_CLOSE_S = 1.0
LEAVE_S = 10.0
"""How long a worker that is told to stop may take to decide what it has in hand and to leave the group. Without Kafka
neither ends; to go without is to be found missing when the session is over, like a worker that was killed."""
TRY_AGAIN_S = 2.0
LOOK_EVERY_S = 2.0
LOOK_TIMEOUT_S = 5.0

MakeDriver = Callable[[Engine, Group], Driver]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `worker` was asked to do."""

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
    """Everything that one `worker` runs. Made with its folder held: raises FolderHeld and PolicyLoadError."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.metrics = Metrics()
        self._log = structlog.get_logger("topicwright")
        self._policies = self._load_policies()
        self._folder = hold_folder(options.data)
        self._writer = os.urandom(5).hex()
        self._figures = WorkerFigures()
        settings = options.settings
        decisions = settings.log_level in ("debug", "info")
        self._reports = Reports(self._log, write_lines, self.metrics, decisions=decisions)
        self._stopping = asyncio.Event()
        self._http = HttpListener()
        self._engine: Engine | None = None
        self._watching: Watching | None = None
        self._cluster: ReachedCluster | None = None
        self._why_not: str | None = "starting"
        self._unreachable: str | None = None
        self._gone = False
        """Whether it leaves without Kafka having heard of it: what still waits for Kafka is not waited for."""

    def why_not_ready(self) -> str | None:
        """Why nothing can be decided now; None when it can."""
        trouble = self._watching.trouble if self._watching is not None else None
        return self._why_not or self._unreachable or (trouble and f"the cluster cannot be reached: {trouble}")

    def stop(self) -> None:
        """End in order: the batch in hand, then the group."""
        self._stopping.set()

    async def listen(self) -> None:
        """Answer over HTTP from now on. Raises OSError where the address cannot be had."""
        http = self.options.http
        self.metrics.watch(self._gauges)
        app = build_worker_app(self.why_not_ready, self.metrics, self.options.release)
        self._ready_line = f"ready http={Address(http.host, await self._http.start(app, http.host, http.port))}"

    async def run(self) -> int:
        """Run until stopped; the exit code. Raises TopicsMismatch, and whatever ends the process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        judge = PolicyRunner(self._policies, probe=self._probe()) if self._policies else None
        try:
            topics = await self._topics()
            make_fleet = await self._fleet(topics) if topics is not None else None
            if topics is not None and make_fleet is not None:
                await self._work(topics, make_fleet, judge)
        finally:
            if self._cluster is not None:
                self._cluster.link.close()
            if judge is not None:
                for failure in await judge.close(POLICIES_CLOSE_S):
                    self._reports.policy_close_failed(failure)
            await self._http.stop()
        if self._gone:
            sys.stdout.flush()
            os._exit(0)
        return 0

    async def _topics(self) -> Topics | None:
        """The topics, as soon as Kafka answers; None if told to stop before it does."""
        properties = self.options.properties
        wanted = Wanted.by(self.options.settings)
        told = ""
        while not self._stopping.is_set():
            try:
                return await asyncio.to_thread(prepare_topics, properties, wanted)
            except KafkaUnreachable as error:
                self._why_not = str(error)
                if told != str(error):
                    told = str(error)
                    self._log.warning("waiting for Kafka", bootstrap=self.options.bootstrap, why=told)
            await self._rest()
        return None

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), TRY_AGAIN_S)

    async def _fleet(self, topics: Topics) -> MakeFleet | None:
        """Whose the partitions' topics are, as soon as the cluster answers; None if told to stop before it does. Raises
        SettingsError."""
        options, settings = self.options, self.options.settings
        if options.make_fleet is not None:
            return options.make_fleet
        bootstrap, file = options.cluster or options.bootstrap, settings.cluster_client_properties_file
        security = security_in(file) if file is not None else options.security
        told = False
        while self._cluster is None and not self._stopping.is_set():
            try:
                self._cluster = await reach_as(security, bootstrap, self._log, within_s=0)
            except ClusterUnreachable as error:
                self._why_not = str(error)
                if not told:
                    told = True
                    self._log.warning("waiting for the cluster that carries decisions out", why=str(error))
                await self._rest()
        return None if self._cluster is None else self._on(self._cluster, topics)

    def _on(self, cluster: ReachedCluster, topics: Topics) -> MakeFleet:
        settings, same = self.options.settings, cluster.cluster_id == topics.cluster_id
        hidden = {topics.commands, topics.events, settings.stream_fronts_topic} if same else set()
        times = watch_times(settings)
        return lambda partition: PartitionCluster(cluster.link, partition, topics.partitions, times, self._log, hidden)

    async def _work(self, topics: Topics, make_fleet: MakeFleet, judge: PolicyRunner | None) -> None:
        options, settings = self.options, self.options.settings
        around = Surroundings(
            writer=self._writer,
            partitions=topics.partitions,
            transport=lambda: engine.transport,
            clock_ms=_clock_ms,
            make_fleet=make_fleet,
            on_trouble=lambda why: self._troubled(driver, why),
            on_failure=self.fail,
        )
        watching = self._watching = Watching(around)
        engine = self._engine = Engine(
            options.data,
            topics,
            Identity(self._writer, options.release, decision_settings(settings, self._cluster is not None)),
            connect=lambda: KafkaTransport(options.bootstrap, topics, options.security),
            owner=watching,
            watcher=self,
            clock=time.perf_counter,
            clock_ms=_clock_ms,
            judge=judge,
            cluster_of=watching.cluster_of,
        )
        group = Group(
            options.bootstrap,
            settings.stream_group_id,
            topics.commands,
            topics.partitions,
            settings.stream_session_timeout_ms,
            options.security,
        )
        driver = options.make_driver(engine, group)
        self._why_not = "joining the group"
        topic_watch = TopicWatch(self.options.properties, topics)
        looking = [asyncio.create_task(each) for each in (self._look_at_kafka(engine), topic_watch.watch(self.fail))]
        try:
            await self._run_until_left(driver)
        finally:
            self._why_not = "stopping"
            for each in looking:
                each.cancel()
            if not self._gone:
                await engine.close()

    async def _run_until_left(self, driver: Driver) -> None:
        running = asyncio.create_task(driver.run(self._stopping, self._claimed))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        ended, _ = await asyncio.wait((running,), timeout=LEAVE_S)
        if ended:
            running.result()
        else:
            self._gone = True
            self._log.warning("left the group without a word", why=f"Kafka does not answer within {LEAVE_S:g} s")

    def _claimed(self) -> None:
        self._why_not = None
        if not self._figures.claimed_once:
            self._figures.claimed_once = True
            settle()
            print(self._ready_line, flush=True)

    def _troubled(self, driver: Driver, why: str) -> None:
        self.lost(why)
        driver.claim_anew()

    def fail(self, error: BaseException) -> None:
        """End the process at once: whatever is not in Kafka was acknowledged to nobody."""
        told = isinstance(error, Lost | DriverEnded)
        self._log.error("worker failed", why=f"{type(error).__name__}: {error}", exc_info=None if told else error)
        os._exit(FAILED)

    # --- told by the engine

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None:
        """A partition is ours."""
        self._figures.claims += 1
        self._log.info("partition claimed", partition=partition, epoch=epoch, read=read, ms=round(seconds * 1000))

    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None:
        """Decisions are in Kafka."""
        self._figures.commands += commands
        self._reports.committed(commands, len(records), seconds)
        self._reports.decided(records)

    def passed_over(self, fault: Fault) -> None:
        """A poison command is recorded as one."""
        self._figures.faults += 1
        self._log.error(
            "command passed over", partition=fault.partition, offset=fault.offset, why=fault.why, exc_info=fault.error
        )

    def decided_before(self, copy: Copy) -> None:
        """A command was in Kafka twice, and counted once."""
        self._figures.copies += 1
        self._log.info(
            "duplicate command passed over",
            partition=copy.partition,
            offset=copy.offset,
            command=copy.what,
            request=copy.request_id,
            topic=copy.topic,
        )

    def lost(self, why: str) -> None:
        """The partitions are to be claimed anew."""
        self._figures.losses += 1
        self._why_not = f"partitions are claimed anew: {why}"
        self._log.warning("partitions lost, to be claimed anew", why=why)

    # --- looking

    async def _look_at_kafka(self, engine: Engine) -> None:
        """Ask Kafka now and then how far commands are: it also tells whether Kafka answers at all."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                for partition in sorted(engine.active) or [0]:
                    _, end = await asyncio.wait_for(engine.transport.commands_range(partition), LOOK_TIMEOUT_S)
                    self._figures.ends[partition] = end
                self._unreachable = None
            except (KafkaTrouble, TimeoutError) as error:
                why = f"Kafka does not answer: {error or 'no answer in time'}"
                if self._unreachable is None:
                    self._log.warning("Kafka lost", why=why)
                self._unreachable = why

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        figures, engine = self._figures, self._engine
        active = sorted(engine.active) if engine is not None else []
        behind = 0
        for partition in active:
            assert engine is not None
            behind += max(0, figures.ends.get(partition, 0) - engine.next_source(partition))
        yield "ready", "1 when commands are decided.", float(self.why_not_ready() is None)
        yield "partitions_owned", "Partitions that this worker decides.", len(active)
        yield "commands_decided", "Commands decided since the start.", figures.commands
        yield "commands_passed_over", "Commands that could not be decided, and are recorded as faults.", figures.faults
        yield "commands_duplicate", "Commands passed over as copies of one decided a short time before.", figures.copies
        yield "commands_behind", "Commands that wait, as of the last look, every 2 s.", behind
        yield "claims", "Partitions taken over since the start.", figures.claims
        yield "losses", "Times that partitions were lost and claimed anew.", figures.losses

    # --- policies

    def _load_policies(self) -> PolicyChain | None:
        settings = self.options.settings
        names = settings.create_topic_policy_class_name
        return load_policies(names, settings.as_mapping()) if names else None

    def _probe(self) -> PolicyProbe:
        def failed(policy: str, topic: str, error: BaseException) -> None:
            self._log.error("policy failed", policy=policy, topic=topic, exc_info=error)

        return PolicyProbe(clock=time.perf_counter, on_judged=self.metrics.policy_judged, on_exception=failed)


class WorkerFigures:
    """What is counted, for the metrics."""

    def __init__(self) -> None:
        self.claimed_once = False
        self.claims = self.commands = self.faults = self.copies = self.losses = 0
        self.ends: dict[int, int] = {}
        """The offset of the next command of each owned partition, as of the last look."""


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def work(options: WorkerOptions) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit code. Raises what kept it from starting."""
    worker = Worker(options)
    await worker.listen()
    try:
        return await worker.run()
    except (TopicsMismatch, SettingsError):
        raise
    except Exception as error:
        worker.fail(error)
        raise
