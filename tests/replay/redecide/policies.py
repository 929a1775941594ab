"""Policies for backtests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.policy import CreateTopicPolicy, Observation, PolicyViolation, RequestMetadata


class FewPartitions(CreateTopicPolicy):
    """Allows at most `policy.partitions.max` partitions, by default 2. Raises KeyError for topic `broken`."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Read the limit."""
        self.limit = int(settings.get("policy.partitions.max", "2"))

    def validate(self, request: RequestMetadata) -> None:
        """Refuse requests over the limit."""
        if request.topic == "broken":
            raise KeyError("broken")
        if (request.num_partitions or 0) > self.limit:
            raise PolicyViolation(f"at most {self.limit} partitions", rule="partitions")


class Noting(CreateTopicPolicy):
    """Refuses nothing; observes every replication factor of 1."""

    def validate(self, request: RequestMetadata) -> Sequence[Observation]:
        return (Observation("factor", "a factor of 1"),) if request.replication_factor == 1 else ()


class Leaving(CreateTopicPolicy):
    """Writes each of its calls to a file."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self.path = Path(settings["policy.diary"])
        self._announce("configured")

    def validate(self, request: RequestMetadata) -> None:
        self._announce(f"judged {request.topic}")

    def close(self) -> None:
        self._announce("closed")

    def _announce(self, what: str) -> None:
        with self.path.open("a") as diary:
            diary.write(what + "\n")
