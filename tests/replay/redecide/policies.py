"""Policies that the backtests try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.policy import CreateTopicPolicy, Observation, PolicyViolation, RequestMetadata


class FewPartitions(CreateTopicPolicy):
    """At most `policy.partitions.max` partitions, 2 unless it is set; more than 8 are no better than a bug."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the limit."""
        self.limit = int(settings.get("policy.partitions.max", "2"))

    def validate(self, request: RequestMetadata) -> None:
        """Refuse what is over it."""
        if request.topic == "broken":
            raise KeyError("broken")
        if (request.num_partitions or 0) > self.limit:
            raise PolicyViolation(f"at most {self.limit} partitions", rule="partitions")


class Noting(CreateTopicPolicy):
    """Refuses nothing, and notes every factor of 1."""

    def validate(self, request: RequestMetadata) -> Sequence[Observation]:
        """Note it."""
        return (Observation("factor", "a factor of 1"),) if request.replication_factor == 1 else ()


class Leaving(CreateTopicPolicy):
    """Says in a file that it was configured, and that it was closed."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Say so."""
        self.path = Path(settings["policy.diary"])
        self._announce("configured")

    def validate(self, request: RequestMetadata) -> None:
        """Say so."""
        self._announce(f"judged {request.topic}")

    def close(self) -> None:
        """Say so."""
        self._announce("closed")

    def _announce(self, what: str) -> None:
        with self.path.open("a") as diary:
            diary.write(what + "\n")
