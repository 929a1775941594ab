"""The interfaces for authors of policies: base classes, requests, and the exception that refuses a request.

Like `CreateTopicPolicy` (KIP-108) and `AlterConfigPolicy` (KIP-133) of Kafka's `org.apache.kafka.server.policy`.
Deriving from a base class is optional: any class with a method `validate(request)` is a policy.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from events.catalog import Observation


class RequestMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a client wants to create, after the built-in checks have passed.

    As in Kafka, either both counts are set and `replicas_assignments` is None, or the client assigned replicas manually
    and both counts are None. Default counts (-1) are replaced by `num.partitions` and `default.replication.factor`, as
    in Kafka's controller since KIP-464.

    `configs` are the explicit configs of the request; `configure` receives the cluster's defaults.
    `replicas_assignments` has the replicas of each partition, the preferred leader first. Beyond KIP-108, `principal`
    is the requester (`User:alice`) and `client_id` the client id, if any.
    """

    topic: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] = {}
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None


class AlterConfigMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Configs that a client wants to change, after the built-in checks have passed.

    `configs` are the new values, as in Kafka: those that the request sets or extends, without those that it deletes; or
    all, if the request replaces them. `resource_type` is `TOPIC` or `BROKER`, and `name` the topic or the id of the
    broker, empty for the defaults of all brokers. Beyond KIP-133, `principal` and `client_id` are the requester's.
    """

    resource_type: str
    name: str
    configs: Mapping[str, str] = {}
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None

    @property
    def topic(self) -> str:
        """The name of the resource, for error reports, which have the topic of a `RequestMetadata`."""
        return self.name


class PolicyViolation(Exception):
    """Raised by `validate` to refuse a request: the client gets POLICY_VIOLATION (44) with `message`.

    `rule` may name the violated rule. The log has it as `policy:<rule>`, or without a name as `policy:<class>`.
    """

    def __init__(self, message: str = "", *, rule: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule


class _Policy:
    """Base of both kinds of policies. A policy is instantiated once at the start, without arguments.

    Calls are sequential: `configure` once, then `validate` for each request, including dry runs and automatic
    creations, then `close`. `validate` is called in another thread than `configure`.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        """Receives the settings of Topicwright, by name. An exception stops the start, with its message."""

    def close(self) -> None:
        """Releases resources. Exceptions are logged."""


class CreateTopicPolicy(_Policy, ABC):
    """A policy for new topics (KIP-108)."""

    @abstractmethod
    def validate(self, request: RequestMetadata) -> Sequence[Observation] | None:
        """Raise PolicyViolation to refuse the topic; return to allow it.

        May return observations: rules that the topic breaks but that are not enforced yet. They are recorded in the
        log. Any other exception refuses this topic with UNKNOWN_SERVER_ERROR (-1).
        """


class AlterConfigPolicy(_Policy, ABC):
    """A policy for changes of configs (KIP-133)."""

    @abstractmethod
    def validate(self, request: AlterConfigMetadata) -> Sequence[Observation] | None:
        """Like `CreateTopicPolicy.validate`."""


Request = RequestMetadata | AlterConfigMetadata
