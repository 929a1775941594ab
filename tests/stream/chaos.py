"""Fault injection on a real Kafka: workers under load are killed, also while rules are applied, rebalanced, and stopped
beyond their session (zombies). Gateways are killed under requests of real clients. One Kafka broker is killed, then all
of them for a minute.

`python -m tests.stream.chaos` runs the full plan, the test a small one. Workers of both drivers share a group. Workers
must decide every command exactly once and in order, and answer every request once. The answers of clients must match
the events. At the end, replay checks every invariant of the events topic and decides every request again.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.stream.checking import Found, check_topics, next_source
from tests.stream.gateway.load import Changes, ClientReport, decided_otherwise, shown_otherwise
from tests.stream.load import Arrivals, Load, read_topic
from tests.support.partition_limits import apply_limit
from tests.support.ports import free_ports
from tests.support.processes import Process, ProcessFailure
from tests.support.reference_kafka import KafkaCluster, ReferenceKafka, kafka_cluster
from tests.support.stream import Stream
from tests.support.tools import ROOT
from tests.support.topicwright import command

PARTITIONS = 4
CLIENTS = 3
OUTAGE_S = 60
DRIVERS = ("plain", "faust")
READY = r"^ready (?:kafka=\S+ )?http=(\S+)$"
READY_S = 300


class Supervised:
    """A process that restarts when it ends by itself, as under a supervisor."""

    def __init__(self, argv: list[str | Path], cwd: Path) -> None:
        self._argv = argv
        self._cwd = cwd
        self._wanted = False
        self._lock = threading.Lock()
        self.process: Process | None = None
        self.http = ""
        self.outputs: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def start(self, wait: bool = True) -> None:
        """With `wait`, returns when the process is ready."""
        with self._lock:
            self.process = process = Process(self._argv, cwd=self._cwd)
            self._wanted = True
        if wait:
            self.http = process.wait_for_line(READY, within_s=READY_S)[1]

    def running(self) -> Process:
        """Returns the live process; waits for the restart if it has just ended."""
        deadline = time.monotonic() + READY_S
        while self.process is None or self.process.popen.poll() is not None:
            assert time.monotonic() < deadline, "the process was not restarted"
            time.sleep(0.05)
        return self.process

    def kill(self) -> None:
        """Send SIGKILL, without a restart."""
        with self._lock:
            self._wanted = False
            if self.process is not None:
                self.process.kill()

    def leave(self) -> int:
        """Send SIGTERM; returns the exit code."""
        with self._lock:
            self._wanted = False
            process = self.process
        assert process is not None
        return process.stop(within_s=120)

    def end(self) -> None:
        """Stop the process, without a restart."""
        self._over.set()
        self._thread.join(10)
        if self.process is not None:
            self.process.stop()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            with self._lock:
                if self._wanted and self.process is not None and self.process.popen.poll() is not None:
                    self.outputs.append(self.process.output[-3000:])
                    self.process.stop()
                    self.process = Process(self._argv, cwd=self._cwd)


@dataclass(frozen=True)
class Plan:
    """The number of faults of each kind, and the load. Times are in seconds."""

    kills: int = 20
    rebalances: int = 20
    zombies: int = 5
    gateway_kills: int = 5
    broker_kills: int = 2
    outages: int = 1
    """Outages of all Kafka brokers, `OUTAGE_S` each."""
    rules: int = 0
    """Versions of the rules; while each is applied, one of three workers is killed. Only without `gateway_kills`,
    because the clients of gateways expect that no rule refuses their requests."""
    rate: float = 100.0
    """Commands a second."""
    session_s: float = 6.0
    seed: int = 1

    @property
    def calm_s(self) -> float:
        """The time allowed for partitions to move to another worker."""
        return self.session_s + 3


@dataclass
class Outcome:
    """The results of a run: counts, errors, and for each kind of fault the longest pauses of partitions."""

    found: Found
    put: int
    poisons: int
    pauses: dict[str, list[float]] = field(default_factory=dict)
    why_restarted: list[str] = field(default_factory=list)
    """The reasons of workers that ended by themselves and were restarted."""
    clients: list[ClientReport] = field(default_factory=list)
    replayed: str = ""

    @property
    def bad(self) -> int:
        """The number of commands lost, decided twice or out of order, and of errors."""
        counts = self.found.counts
        return len(self.found.wrong) + counts["lost"] + counts["decided twice"] + counts["out of order"]

    def summary(self) -> str:
        """The result as text."""
        lines = [json.dumps({"put": self.put, **self.found.counts, "restarts": len(self.why_restarted)})]
        for kind, pauses in self.pauses.items():
            lines.append(f"{kind}: {len(pauses)} times; a partition stood still for {_spread(pauses)}")
        answers, again = (sum(getattr(one, name) for one in self.clients) for name in ("answers", "again"))
        lines.append(f"clients of gateways: {answers} answers; {again} requests without one were sent again")
        if detours := [each for one in self.clients for each in one.detours_s]:
            lines.append(f"an answer after such a request: {len(detours)} times, after {_spread(detours)}")
        lines += [f"a worker ended by itself, and was started again: {why}" for why in self.why_restarted]
        return "\n".join([*lines, self.replayed, *self.found.wrong[:20]])


def _why(output: str) -> str:
    """Returns the last line of a process's log that has a reason."""
    lines = [line for line in output.splitlines() if '"why"' in line]
    return (lines or output.splitlines() or ["it said nothing"])[-1][:300]


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[0]:.2f} to {ordered[-1]:.2f} s, median {ordered[len(ordered) // 2]:.2f} s"


class Chaos:
    """Injects faults into two workers and two gateways; a third worker joins and leaves."""

    def __init__(
        self, folder: Path, kafka: KafkaCluster | ReferenceKafka, plan: Plan, drivers: Sequence[str] = DRIVERS
    ) -> None:
        """The workers take the `drivers` in turn."""
        self.plan = plan
        self._folder = folder
        self._cluster = kafka
        self._kafka = kafka.bootstrap
        self._chance = random.Random(plan.seed)
        self._names = f"chaos-{time.time_ns()}"
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(2 if plan.gateway_kills else min(plan.rules, 1))]
        self._lasting = 3 if plan.rules else 2
        """The number of workers that do not join and leave."""
        self._version = 0
        settings = {"stream.session.timeout.ms": str(int(plan.session_s * 1000))}
        if isinstance(kafka, KafkaCluster):
            settings["stream.replication.factor"] = "3"
        self._stream = Stream(folder, self._kafka, self._names, settings, "", ROOT, ExitStack())
        self._workers = [
            self._process("worker", number, "--driver", driver, "--brokers", "simulated:3")
            for number, driver in zip(range(3), cycle(drivers), strict=False)
        ]
        self._gateways = [self._process("gateway", n, "--kafka", at) for n, at in enumerate(self._addresses)]
        self._marks: list[tuple[float, str]] = []

    def run(self) -> Outcome:
        """Run the plan, then check both topics."""
        try:
            for each in (*self._workers[: self._lasting], *self._gateways):
                each.start()
            arrivals = Arrivals(self._kafka, f"{self._names}.events", PARTITIONS)
            load = Load(self._kafka, f"{self._names}.commands", PARTITIONS, self.plan.rate, self.plan.seed)
            clients = [
                Changes(f"client-{n}", ",".join(self._addresses), 2, 0.2, kept=3, by_brokers=False)
                for n in range(CLIENTS if self.plan.gateway_kills else 0)
            ]
            for thread in (arrivals, load, *clients):
                thread.start()
            time.sleep(1)
            self._misfortunes()
            load.end()
            reports = [client.end() for client in clients]
            self._wait_until_decided()
            arrivals.end()
            wrong = [each for address in self._addresses for each in shown_otherwise(reports, address)]
            codes = [each.leave() for each in (*self._gateways, *self._workers[: self._lasting])]
            assert not any(codes), f"SIGTERM: ended with {codes}"
        finally:
            for each in (*self._workers, *self._gateways):
                each.end()
        commands, events = self._topics()
        found = check_topics(commands, events, [self._folder / f"worker-{number}" for number in range(3)])
        found.wrong += [*wrong, *(each for one in reports for each in one.wrong), *decided_otherwise(reports, events)]
        found.wrong += [f"a gateway ended by itself: {output}" for each in self._gateways for output in each.outputs]
        pauses: dict[str, list[float]] = {}
        for (_, kind), pause in zip(self._marks, arrivals.pauses([at for at, _ in self._marks]), strict=True):
            pauses.setdefault(kind, []).append(pause)
        ended = [_why(output) for worker in self._workers for output in worker.outputs]
        return Outcome(found, load.put, load.poisons, pauses, ended, reports)

    def replay(self, outcome: Outcome) -> None:
        """Check every invariant of the events topic, and decide every request again."""
        log = f"kafka://{self._kafka}/{self._names}.events"
        for what in ("invariants", "redecide"):
            done = command("replay", what, log, "--local")
            outcome.replayed += "".join(f"{line}\n" for line in done.stdout.splitlines() if line and " ok " not in line)
            if done.returncode:
                outcome.found.wrong.append(f"{what} ended with {done.returncode}: {done.stdout}{done.stderr[-3000:]}")

    def _process(self, what: str, number: int, *more: str) -> Supervised:
        """Returns a worker or a gateway that is not started. Gateways have the default answer timeout."""
        settings = {**self._stream.common, "log.level": "warning"}
        del settings["gateway.answer.timeout.ms"]
        return Supervised([*self._stream._argv(what, f"{what}-{number}", settings), *more], self._folder)

    def _misfortunes(self) -> None:
        plan = self.plan
        counts = {
            self._rebalance: plan.rebalances,
            self._kill: plan.kills,
            self._zombie: plan.zombies,
            self._kill_gateway: plan.gateway_kills,
            self._kill_broker: plan.broker_kills,
            self._kafka_gone: plan.outages,
            self._apply_rules: plan.rules,
        }
        steps = [(step, self._workers[number % 2]) for step, count in counts.items() for number in range(count)]
        self._chance.shuffle(steps)
        for step, worker in steps:
            step(worker)

    def _mark(self, kind: str) -> None:
        self._marks.append((time.monotonic(), kind))

    def _rebalance(self, _: Supervised) -> None:
        """A third worker joins the group and leaves it with SIGTERM."""
        third = self._workers[2]
        self._mark("join")
        third.start()
        time.sleep(self._chance.uniform(0.5, 1.5))
        self._mark("leave")
        third.leave()
        time.sleep(2)

    def _kill(self, worker: Supervised) -> None:
        self._mark("kill -9")
        worker.kill()
        time.sleep(self.plan.calm_s + self._chance.uniform(0, 0.5))
        self._mark("back after kill -9")
        worker.start()
        time.sleep(1.5)

    def _zombie(self, worker: Supervised) -> None:
        """SIGSTOP a worker beyond its session, then continue it. Fences of the new owners invalidate its records."""
        process = worker.running()
        self._mark("zombie")
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        time.sleep(self.plan.session_s * 1.5 + 3)
        self._mark("zombie wakes")
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        time.sleep(self.plan.calm_s)

    def _kill_gateway(self, _: Supervised) -> None:
        """Kill a gateway. Its clients use the other one; it restarts at the same address."""
        gateway = self._chance.choice(self._gateways)
        self._mark("kill -9 of a gateway")
        gateway.kill()
        time.sleep(self._chance.uniform(1, 3))
        gateway.start()
        time.sleep(1)

    def _apply_rules(self, _: Supervised) -> None:
        """Kill a worker while rules are applied. They must become effective in all partitions without it."""
        self._version += 1
        worker = self._workers[self._version % 3]
        with ThreadPoolExecutor() as threads:
            applied = threads.submit(apply_limit, self._gateways[0].http, 1 + self._version % 4)
            time.sleep(self._chance.uniform(0, 0.1))
            self._mark("kill -9 while rules are applied")
            worker.kill()
            assert applied.result() == self._version, "each version is applied once"
        worker.start(wait=False)

    def _kafka_gone(self, _: Supervised) -> None:
        """Kill all Kafka brokers, and start them again a minute later."""
        assert isinstance(self._cluster, KafkaCluster), "only nodes of a KafkaCluster have processes of their own"
        self._mark("all of Kafka away")
        self._cluster.kill(*self._cluster.brokers)
        time.sleep(OUTAGE_S)
        self._cluster.start(*self._cluster.brokers)
        time.sleep(20)

    def _kill_broker(self, _: Supervised) -> None:
        """Kill a Kafka broker and start it again. The other two stay up."""
        assert isinstance(self._cluster, KafkaCluster), "only nodes of a KafkaCluster have processes of their own"
        node = self._chance.choice([2, 3])
        self._mark("kill -9 of a broker")
        self._cluster.kill(node)
        time.sleep(5)
        self._cluster.start(node)
        time.sleep(5)

    def _wait_until_decided(self) -> None:
        deadline = time.monotonic() + 240
        while True:
            commands, events = self._topics()
            if all(next_source(each) == len(sent) for sent, each in zip(commands, events, strict=True)):
                return
            if time.monotonic() > deadline:
                outputs = [worker.process.output[-2000:] for worker in self._workers if worker.process is not None]
                raise ProcessFailure("commands are not decided\n" + "\n---\n".join(outputs))
            time.sleep(1)

    def _topics(self) -> tuple[list[list[bytes | None]], list[list[bytes | None]]]:
        commands = read_topic(self._kafka, f"{self._names}.commands", PARTITIONS)
        return commands, read_topic(self._kafka, f"{self._names}.events", PARTITIONS)


def main() -> int:
    """Returns 1 if anything was lost, decided twice or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream.chaos", description=__doc__)
    parser.add_argument("--driver", choices=(*DRIVERS, "both"), default="both")
    for each in fields(Plan):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default)
    parser.set_defaults(seed=time.time_ns() % 1000)
    options = vars(parser.parse_args())
    driver, plan = options.pop("driver"), Plan(**options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # stops its processes
    print(f"seed {plan.seed}", flush=True)
    with TemporaryDirectory(prefix="topicwright-chaos-") as held:
        folder = Path(held)
        with kafka_cluster(
            folder / "kafka",
            group_min_session_timeout_ms="1000",
            offsets_topic_replication_factor="3",
            offsets_topic_num_partitions="3",
        ) as kafka:
            drivers = DRIVERS if driver == "both" else (driver,)
            chaos = Chaos(folder, kafka, plan, drivers)
            outcome = chaos.run()
            chaos.replay(outcome)
            print(outcome.summary(), flush=True)
    return 1 if outcome.bad else 0


if __name__ == "__main__":
    sys.exit(main())
