"""Workers and gateways as processes over a real Kafka, as their users start them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND, Topicwright

READY_S = 300
TOPIC_SETTINGS = ("stream.",)
"""Prefixes of the settings that workers and gateways must agree on."""


@dataclass
class Stream:
    """Workers and gateways of one Kafka; `names` is the prefix of their topics on a shared cluster."""

    folder: Path
    kafka: str
    names: str
    settings: Mapping[str, str]
    driver: str
    policies: Path
    held: ExitStack
    properties: Path | None = None
    """A file with librdkafka properties for the connection to Kafka."""
    workers: list[Process] = field(default_factory=list)
    gateways: list[Topicwright] = field(default_factory=list)

    @property
    def common(self) -> dict[str, str]:
        return {
            "stream.commands.topic": f"{self.names}.commands",
            "stream.events.topic": f"{self.names}.events",
            "stream.gateways.topic": f"{self.names}.gateways",
            "stream.group.id": f"{self.names}.workers",
            "stream.replication.factor": "1",  # nodes of a shared Kafka run in one JVM
            "stream.session.timeout.ms": "6000",
            "gateway.answer.timeout.ms": "120000",
            **{key: value for key, value in self.settings.items() if key.startswith(TOPIC_SETTINGS)},
        }

    def start_worker(self, brokers: str = "simulated:3") -> Process:
        """Start a worker; returns when it has claimed its partitions."""
        number = len(self.workers)
        argv = self._argv("worker", f"worker-{number}", {**self.common, **self.settings})
        argv += ["--driver", self.driver, "--brokers", brokers]
        process = self.held.enter_context(self._process(argv))
        self.workers.append(process)
        process.wait_for_line(r"^ready http=(\S+)$", within_s=READY_S)
        return process

    def start_gateway(self, settings: Mapping[str, str] | None = None, *, folder: str = "") -> Topicwright:
        """Start a gateway; returns when it answers."""
        name = folder or f"gateway-{len(self.gateways)}"
        argv = self._argv("gateway", name, {**self.common, **(settings or {})})
        process = self.held.enter_context(self._process([*argv, "--kafka", "127.0.0.1:0"]))
        ready = process.wait_for_line(r"^ready kafka=(\S+) http=(\S+)(?: listeners=\S+)?$", within_s=READY_S)
        gateway = Topicwright(process, ready[1], ready[2], self.folder / name)
        self.gateways.append(gateway)
        return gateway

    def _argv(self, command: str, name: str, settings: Mapping[str, str]) -> list[str | Path]:
        argv: list[str | Path] = [COMMAND, command, "--bootstrap", self.kafka, "--data", self.folder / name]
        argv += ["--http", "127.0.0.1:0"]
        argv += ["--kafka-properties", self.properties] if self.properties is not None else []
        for key, value in settings.items():
            argv += ["--set", f"{key}={value}"]
        return argv

    def _process(self, argv: Sequence[str | Path]) -> Process:
        return Process(argv, cwd=self.folder, env={"PYTHONPATH": str(self.policies)})


@contextmanager
def stream(
    folder: Path,
    kafka: str,
    names: str,
    settings: Mapping[str, str] | None = None,
    *,
    workers: int = 1,
    gateways: int = 1,
    brokers: str = "simulated:3",
    driver: str = "plain",
    policies: Path = ROOT,
    properties: Path | None = None,
) -> Iterator[Stream]:
    """Workers and gateways over the Kafka at an address until the end of the block.

    Processes that are still running then get SIGTERM and must end with exit code 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        running = Stream(folder, kafka, names, settings or {}, driver, policies, held, properties)
        for _ in range(workers):
            running.start_worker(brokers)
        for _ in range(gateways):
            running.start_gateway()
        yield running
        for process in (*(gateway.process for gateway in running.gateways), *running.workers):
            if process.popen.poll() is None:
                code = process.stop(within_s=120)
                assert code == 0, f"SIGTERM: ended with {code}\n{process.output[-4000:]}"
