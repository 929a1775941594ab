"""What events are made of: the values that stand in their fields, each described.

The rules of `events.catalog` hold here too: frozen structs that encode as arrays, whose fields are only ever added at
the end, with a default.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from events.names import BrokerId, TopicId

Configs = tuple[tuple[str, str], ...]
"""Explicit topic configs, sorted by name."""


class Fact(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of every value in the log: immutable, compared by value, encoded as an array.

    A longer array than this release knows is refused, not cut: what a newer release added may have changed a decision.
    """


class ReplicaMetadata(Fact, frozen=True):
    """What real brokers learn of a partition beside its replicas, leader and in-sync set (KIP-455, 704, 858, 966).

    `directories` are the ids (16 bytes) of the log directories that the replicas lie in, in their order; `adding` and
    `removing` are replicas of a reassignment under way, both part of the partition's replicas until it is done.
    """

    directories: tuple[bytes, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    """Replicas out of sync that still have every acknowledged record, and so may lead when nobody is in sync."""
    last_known_elr: tuple[BrokerId, ...] = ()
    """The last leader, while nobody leads."""
    recovering: bool = False
    """The leader was elected uncleanly and has not recovered since."""


class Partition(Fact, frozen=True):
    """One partition as it stands.

    `replicas` begins with the preferred leader; a negative id is a placeholder (KIP-409). `leader` is -1 when there
    is none. `partition_epoch` rises with every change, `leader_epoch` with every change of leader (KIP-101, KIP-497).
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0
    replica_metadata: ReplicaMetadata | None = None
    """None where the brokers are not real ones."""


class Assignment(Fact, frozen=True):
    """A manual assignment of one partition, as requested."""

    partition: int
    replicas: tuple[BrokerId, ...]


class ConfigOp(Fact, frozen=True):
    """One change of a topic config; `op` is SET 0, DELETE 1, APPEND 2 or SUBTRACT 3 (KIP-339)."""

    name: str
    op: int
    value: str | None


class Endpoint(Fact, frozen=True):
    """Where a broker listens: listener name, host, port."""

    name: str
    host: str
    port: int


class SupportedFeature(Fact, frozen=True):
    """The levels of a feature that a broker can work with, both included (KIP-584)."""

    name: str
    lowest: int
    highest: int


class BrokerDetails(Fact, frozen=True):
    """What a real broker says of itself as it registers, beside its endpoints (KIP-631, KIP-858, KIP-966)."""

    security_protocols: tuple[int, ...]
    """Kafka's number of each endpoint's protocol, in their order: PLAINTEXT 0, SSL 1, SASL_PLAINTEXT 2, SASL_SSL 3."""
    features: tuple[SupportedFeature, ...]
    log_dirs: tuple[bytes, ...]
    """The ids (16 bytes) of its log directories that are online."""
    clean: bool = True
    """Whether its last incarnation ended in order, so that its replicas have all that they acknowledged."""


Outcome = Literal["allowed", "refused", "failed"]


class Observation(Fact, frozen=True):
    """A rule that a topic breaks and that was recorded instead of enforced.

    `rule` names the rule (`policy:rules/naming`), `message` says what is broken and what is allowed.
    """

    rule: str
    message: str


class Verdict(Fact, frozen=True):
    """The answer of the whole chain of create-topic policies for one topic (KIP-108).

    `outcome`: `allowed` when no policy objects or there is none; `refused` when one raised PolicyViolation, which the
    client sees as POLICY_VIOLATION (44) with `message`; `failed` when one raised anything else, which costs that topic
    UNKNOWN_SERVER_ERROR (-1). `policy` is the class that decided and `rule` its rule, both empty when allowed.
    `observed` holds what was recorded and not enforced, whatever the outcome.

    Policies are an operator's own code: slow, impure, able to raise. So they run before the machine decides, and only
    their verdict enters it, as data on the command: a decision can be repeated from the log years later without them.
    """

    outcome: Outcome
    policy: str = ""
    rule: str = ""
    message: str = ""
    observed: tuple[Observation, ...] = ()


class PartitionsWanted(Fact, frozen=True, tag="partitions"):
    """`count` partitions altogether (KIP-195); `assignments` holds the replicas of each new one, None to have them
    placed."""

    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None


class DeletionWanted(Fact, frozen=True, tag="deletion"):
    """The topic gone; with `topic_id` only if it still is the topic of that id (KIP-516)."""

    topic_id: TopicId | None


class ConfigsWanted(Fact, frozen=True, tag="configs"):
    """Explicit configs changed by these steps (`incremental`, KIP-339), or replaced by what the steps set."""

    ops: tuple[ConfigOp, ...]
    incremental: bool


class ChangeAsked(Fact, frozen=True):
    """How a change of a topic was requested: with the event that holds it, every input of the decision."""

    api: str
    """`CreatePartitions`, `DeleteTopics`, `AlterConfigs`, `IncrementalAlterConfigs` or `HTTP`."""
    api_version: int
    wanted: PartitionsWanted | DeletionWanted | ConfigsWanted
    duplicate: bool = False
    """The topic stood more than once in its request."""
    denied: int = 0
    """The error code of the authorizer, 0 when it allowed the request."""
    host: str = ""
    """The client's address; empty in events of earlier releases."""


def are_cordoned(log_dirs: tuple[bytes, ...], cordoned: tuple[bytes, ...]) -> bool:
    """True if a broker has log directories and all are cordoned, as Kafka's `BrokerRegistration.hasUncordonedDirs`."""
    return bool(log_dirs) and set(log_dirs) <= set(cordoned)
