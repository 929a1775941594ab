"""Kafka's own controller, as a process beside real brokers: what a cluster is taken over from, and given back to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.processes import Process
from tests.support.real_brokers import CLUSTER_ID, CONTROLLER, until


@dataclass(slots=True)
class KafkaController:
    """Node 3000 at a port, with its metadata in `folder/kafka-metadata`."""

    folder: Path
    port: int
    version: str
    kraft_version: int
    settings: Mapping[str, str] = field(default_factory=dict)
    process: Process | None = None

    @property
    def metadata(self) -> Path:
        """Its metadata.log.dir."""
        return self.folder / "kafka-metadata"

    @property
    def quorum(self) -> dict[str, str]:
        """The settings by which nodes find it."""
        if self.kraft_version:
            return {"controller.quorum.bootstrap.servers": f"127.0.0.1:{self.port}"}
        return {"controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self.port}"}

    def format(self) -> None:
        """What Kafka's storage tool writes into an empty folder."""
        self._write_properties()
        command = ["format", "-t", CLUSTER_ID, "-c", str(self._properties)]
        command += ["--standalone"] if self.kraft_version else []
        kafka_tools(self.version).output("kafka.tools.StorageTool", *command)

    def start(self) -> None:
        """Start it; it leads when this returns."""
        self._write_properties()
        before = self._quorum_state()
        argv = tools.java_command(tools.server_classpath(self.version), "kafka.Kafka", self._properties, logs="info")
        self.process = Process(argv, cwd=self.folder)
        until(lambda: self._leads_after(before), 300, f"Kafka's controller leads in an epoch after {before}")

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None, "the controller runs"
        self.process.kill()

    def _leads_after(self, before: dict[str, int]) -> bool:
        assert self.process is not None, "it was started"
        assert self.process.popen.poll() is None, self.process.output
        now = self._quorum_state()
        return now.get("leaderId") == CONTROLLER and now["leaderEpoch"] > before.get("leaderEpoch", 0)

    def _quorum_state(self) -> dict[str, int]:
        path = self.metadata / "__cluster_metadata-0" / "quorum-state"
        try:
            found: dict[str, int] = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    @property
    def _properties(self) -> Path:
        return self.folder / "controller.properties"

    def _write_properties(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "advertised.listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.metadata),
            **self.quorum,
            **self.settings,
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
