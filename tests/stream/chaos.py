"""Workers under load that are killed, that join and leave, and that sleep past their session and wake as zombies; and
brokers of Kafka that are killed.

`python -m tests.stream.chaos` does the whole of it, for both drivers; the tests do a little. Either way every command
must have been decided exactly once and in order, and every ask answered once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.stream.checking import Found, check_topics, next_source
from tests.stream.load import Arrivals, Load, read_topic
from tests.support.kafka_cluster import KafkaCluster, kafka_cluster
from tests.support.processes import Process, ProcessFailure
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import COMMAND

PARTITIONS = 4


@dataclass(frozen=True)
class Plan:
    """How much of what; times in seconds."""

    kills: int = 2
    rebalances: int = 2
    zombies: int = 1
    broker_kills: int = 0
    rate: float = 150
    session_s: float = 1.5
    seed: int = 1

    @property
    def calm_s(self) -> float:
        """How long partitions may take to move."""
        return self.session_s + 3


@dataclass
class Told:
    """What a run found: counts, what was wrong, and for each kind of fault how long partitions stood still."""

    found: Found
    put: int
    poisons: int
    pauses: dict[str, list[float]] = field(default_factory=dict)
    restarts: int = 0

    def summary(self) -> str:
        """For people."""
        lines = [json.dumps({"put": self.put, **self.found.counts, "restarts": self.restarts})]
        for kind, pauses in self.pauses.items():
            ordered = sorted(pauses)
            middle = ordered[len(ordered) // 2]
            lines.append(
                f"{kind}: {len(ordered)} times; a partition stood still for {ordered[0]:.2f} to {ordered[-1]:.2f} s, "
                f"median {middle:.2f} s"
            )
        return "\n".join([*lines, *self.found.wrong[:20]])


class Supervised:
    """One worker, started again when it ends by itself, as whoever runs it would do."""

    def __init__(self, argv: Callable[[], list[str | Path]], cwd: Path) -> None:
        self._argv = argv
        self._cwd = cwd
        self._wanted = False
        self._lock = threading.Lock()
        self.process: Process | None = None
        self.restarts = 0
        self.outputs: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def start(self, wait: bool = True) -> None:
        """Start it; with `wait`, until it is ready."""
        with self._lock:
            self.process = process = Process(self._argv(), cwd=self._cwd)
            self._wanted = True
        if wait:
            process.wait_for_line(r"^ready http=(\S+)$", within_s=90)

    def kill(self) -> None:
        """kill -9, and leave it dead."""
        with self._lock:
            self._wanted = False
            if self.process is not None:
                self.process.kill()

    def leave(self) -> int:
        """SIGTERM: it leaves in order; its exit code."""
        with self._lock:
            self._wanted = False
            process = self.process
        assert process is not None
        return process.stop(within_s=20)

    def end(self) -> None:
        """Gone, and not started again."""
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
                    self.restarts += 1
                    self.process = Process(self._argv(), cwd=self._cwd)


class Chaos:
    """Two workers that take turns in misfortune, and a third that comes and goes."""

    def __init__(self, folder: Path, kafka: KafkaCluster | ReferenceKafka, driver: str, plan: Plan) -> None:
        self.plan = plan
        self._folder = folder
        self._cluster = kafka
        self._kafka = kafka.bootstrap
        self._driver = driver
        self._chance = random.Random(plan.seed)
        self._names = f"chaos-{driver}-{time.time_ns()}"
        self._workers = [Supervised(self._argv(number), folder) for number in range(3)]
        self._marks: dict[str, list[float]] = {}

    def run(self) -> Told:
        """Do it all, and judge what is in Kafka then."""
        try:
            for worker in self._workers[:2]:
                worker.start()
            arrivals = Arrivals(self._kafka, f"{self._names}.events", PARTITIONS)
            load = Load(self._kafka, f"{self._names}.commands", PARTITIONS, self.plan.rate, self.plan.seed)
            arrivals.start()
            load.start()
            time.sleep(1)
            self._misfortunes()
            load.end()
            self._wait_until_decided()
            arrivals.end()
            codes = [worker.leave() for worker in self._workers[:2]]
            assert codes == [0, 0], f"SIGTERM: ended with {codes}"
        finally:
            for worker in self._workers:
                worker.end()
        found = check_topics(*self._topics(), [self._folder / f"worker-{number}" for number in range(3)])
        within_s = self.plan.session_s + 8
        pauses = {kind: [arrivals.pause_after(at, within_s) for at in marks] for kind, marks in self._marks.items()}
        return Told(found, load.put, load.poisons, pauses, sum(worker.restarts for worker in self._workers))

    def _argv(self, number: int) -> Callable[[], list[str | Path]]:
        settings = {
            "stream.commands.topic": f"{self._names}.commands",
            "stream.events.topic": f"{self._names}.events",
            "stream.group.id": f"{self._names}.workers",
            "stream.session.timeout.ms": str(int(self.plan.session_s * 1000)),
            "log.level": "warning",
        }

        def argv() -> list[str | Path]:
            line: list[str | Path] = [COMMAND, "worker", "--bootstrap", self._kafka, "--driver", self._driver]
            line += ["--brokers", "simulated:3"]
            line += ["--http", "127.0.0.1:0", "--data", self._folder / f"worker-{number}"]
            for key, value in settings.items():
                line += ["--set", f"{key}={value}"]
            return line

        return argv

    def _misfortunes(self) -> None:
        plan = self.plan
        steps = [self._rebalance] * plan.rebalances + [self._kill] * plan.kills + [self._zombie] * plan.zombies
        steps += [self._kill_broker] * plan.broker_kills
        self._chance.shuffle(steps)
        for number, step in enumerate(steps):
            step(self._workers[number % 2])

    def _mark(self, kind: str) -> None:
        self._marks.setdefault(kind, []).append(time.monotonic())

    def _rebalance(self, _: Supervised) -> None:
        """The third worker joins, and leaves in order."""
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
        worker.start()
        time.sleep(1.5)

    def _zombie(self, worker: Supervised) -> None:
        """Stopped until its session is long over, then woken: it goes on where it was, and must do no harm."""
        assert worker.process is not None
        self._mark("zombie")
        os.kill(worker.process.pid, signal.SIGSTOP)
        time.sleep(self.plan.session_s * 1.5 + 3)
        with suppress(ProcessLookupError):
            os.kill(worker.process.pid, signal.SIGCONT)
        time.sleep(self.plan.calm_s)

    def _kill_broker(self, _: Supervised) -> None:
        """A broker of Kafka dies and comes back; the other two go on."""
        assert isinstance(self._cluster, KafkaCluster), "only nodes with processes of their own can be killed"
        node = self._chance.choice([2, 3])
        self._mark("kill -9 of a broker")
        self._cluster.kill(node)
        time.sleep(5)
        self._cluster.start(node)
        time.sleep(5)

    def _wait_until_decided(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            commands, events = self._topics()
            if all(next_source(each) == len(asked) for asked, each in zip(commands, events, strict=True)):
                return
            if time.monotonic() > deadline:
                told = [worker.process.output[-2000:] for worker in self._workers if worker.process is not None]
                raise ProcessFailure("commands are not decided\n" + "\n---\n".join(told))
            time.sleep(1)

    def _topics(self) -> tuple[list[list[bytes | None]], list[list[bytes | None]]]:
        commands = read_topic(self._kafka, f"{self._names}.commands", PARTITIONS)
        return commands, read_topic(self._kafka, f"{self._names}.events", PARTITIONS)


def main() -> int:
    """Run from the command line; 1 if anything was lost, decided twice, or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream.chaos", description=__doc__)
    parser.add_argument("--driver", choices=("plain", "faust", "both"), default="both")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rebalances", type=int, default=20)
    parser.add_argument("--zombies", type=int, default=5)
    parser.add_argument("--broker-kills", type=int, default=2)
    parser.add_argument("--rate", type=float, default=100, help="commands a second")
    parser.add_argument("--session", type=float, default=6, help="seconds")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000)
    options = parser.parse_args()
    plan = Plan(
        options.kills,
        options.rebalances,
        options.zombies,
        options.broker_kills,
        options.rate,
        options.session,
        options.seed,
    )
    print(f"seed {plan.seed}", flush=True)
    wrong = 0
    with TemporaryDirectory(prefix="topicwright-chaos-") as held:
        folder = Path(held)
        with kafka_cluster(
            folder / "kafka",
            group_min_session_timeout_ms="1000",
            offsets_topic_replication_factor="3",
            offsets_topic_num_partitions="3",
        ) as kafka:
            for driver in ("plain", "faust") if options.driver == "both" else (options.driver,):
                (folder / driver).mkdir()
                told = Chaos(folder / driver, kafka, driver, plan).run()
                print(f"--- {driver}\n{told.summary()}", flush=True)
                counts = told.found.counts
                wrong += len(told.found.wrong) + counts["lost"] + counts["decided twice"] + counts["out of order"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
