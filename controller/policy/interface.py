"""What a policy's author sees: the base class, the request it judges, and the exception that refuses.

The shape is that of Kafka's `org.apache.kafka.server.policy.CreateTopicPolicy` (KIP-108). A class need not derive from
`CreateTopicPolicy`: one with a method `validate(request)` will do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from events.catalog import Observation


class RequestMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One topic that a client wants to create, after the built-in checks have passed.

    As in Kafka, either both counts are set and `replicas_assignments` is None, or the client assigned replicas by hand
    and both counts are None. Counts are resolved: where the client left one to the cluster (-1), the policy sees
    `num.partitions` or `default.replication.factor` in its place (Kafka's controller does so since KIP-464).

    `configs` are those of the request alone, without the cluster's defaults, which `configure` receives.
    `replicas_assignments` goes from partition to its replicas, the preferred leader first. Beyond KIP-108, `principal`
    is who wants it (`User:alice`) and `client_id` what the client calls itself, if anything.

    Raises ValueError for counts beside an assignment, or neither: what breaks KIP-108's promise is not a valid request.
    """

    topic: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] = {}
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None

    def __post_init__(self) -> None:
        counts_wanted = self.replicas_assignments is None
        if (self.num_partitions is not None) is not counts_wanted or (
            self.replication_factor is not None
        ) is not counts_wanted:
            raise ValueError(
                f"topic {self.topic!r}: num_partitions={self.num_partitions}, replication_factor="
                f"{self.replication_factor} and replicas_assignments={self.replicas_assignments}; "
                "give both counts or an assignment, not both"
            )


class PolicyViolation(Exception):
    """Raised by `validate` to refuse a topic: the client gets POLICY_VIOLATION (44) with `message`.

    `rule` may name the rule that is broken, for the log: it appears there as `policy:<rule>`, and without one as
    `policy:<class>`. `observed` are broken rules that are only recorded, as `validate` may also return.
    """

    def __init__(self, message: str = "", *, rule: str = "", observed: Sequence[Observation] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.observed = tuple(observed)


class CreateTopicPolicy(ABC):
    """A policy for topic creation (KIP-108), made once at the start by calling the class without arguments.

    Calls come one at a time: `configure` once, then `validate` for each topic, dry runs and auto-creations
    included, then `close`. `validate` runs on a thread of its own, not the one that called `configure`.
    """

    def configure(self, settings: Mapping[str, str]) -> None:  # noqa: B027 - a policy without settings leaves it out
        """Take the cluster's settings, by name. What is raised here stops the start, with the message of it."""

    @abstractmethod
    def validate(self, request: RequestMetadata) -> Sequence[Observation] | None:
        """Refuse by raising PolicyViolation; return to allow.

        May return observations: rules that the topic breaks and that are not enforced yet. They go to the event log
        and the topic is allowed. Any other exception costs this topic, and no other, UNKNOWN_SERVER_ERROR (-1).
        """

    def close(self) -> None:  # noqa: B027 - a policy that holds nothing leaves it out
        """Let go of what `configure` took. What is raised here is logged."""


class RuleInForce(msgspec.Struct, frozen=True):
    """A rule of a file: `written` is what the file says of it, by key."""

    name: str
    enforced: bool
    written: dict[str, str]


class PolicyInForce(msgspec.Struct, frozen=True):
    """A policy by the name of its class, with the rules that it has from a file."""

    name: str
    rules: tuple[RuleInForce, ...] = ()
