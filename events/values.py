"""The structs that events in `events.catalog` have as fields: partitions, assignments, verdicts, requested changes.

As events do, these structs are frozen and encode as arrays; new fields go to the end, with a default. `events.catalog`
describes the fields that several have.
"""

from typing import Literal

import msgspec

from events.names import BrokerId, TopicId

Configs = tuple[tuple[str, str], ...]
"""Explicit topic configs, sorted by name."""


GroupCounts = tuple[tuple[str, int, int], ...]
"""The numbers of topics and partitions of groups of topics, such as those of a principal."""


class Fact(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of every value in the log: immutable, compared by value, encoded as an array.

    An array with more fields than this release knows is rejected: a newer release's field may have changed a decision.
    """


class ReplicaMetadata(Fact, frozen=True):
    """The metadata of a partition in KRaft mode besides replicas, leader and ISR (KIP-455, 704, 858, 966).

    `directories` are the log directory ids (16 bytes) of the replicas, in the order of the replicas; `adding` and
    `removing` belong to a reassignment in progress, and are among the replicas until the reassignment is done.
    """

    directories: tuple[bytes, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    """Replicas out of sync that have every acknowledged record, and so may lead when the ISR is empty."""
    last_known_elr: tuple[BrokerId, ...] = ()
    """The last leader, recorded only while there is no leader."""
    recovering: bool = False
    """The leader was elected uncleanly and has not recovered yet."""


class Partition(Fact, frozen=True):
    """The current state of a partition.

    `replicas` begins with the preferred leader; a negative id is a placeholder (KIP-409). `leader` is -1 if there is
    none. `partition_epoch` rises with every change, `leader_epoch` with every change of leader (KIP-101, KIP-497).
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0
    replica_metadata: ReplicaMetadata | None = None
    """None outside KRaft mode."""


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
    """A listener: name, host, port."""

    name: str
    host: str
    port: int


class SupportedFeature(Fact, frozen=True):
    """The supported levels of a feature, inclusive (KIP-584)."""

    name: str
    lowest: int
    highest: int


class BrokerDetails(Fact, frozen=True):
    """The registration of a KRaft broker besides its endpoints (KIP-631, KIP-858, KIP-966)."""

    security_protocols: tuple[int, ...]
    """Kafka's protocol number of each endpoint, in order: PLAINTEXT 0, SSL 1, SASL_PLAINTEXT 2, SASL_SSL 3."""
    features: tuple[SupportedFeature, ...]
    log_dirs: tuple[bytes, ...]
    """The ids (16 bytes) of its online log directories."""
    clean: bool = True
    """True if its last incarnation shut down cleanly, so that its replicas have all acknowledged records."""


class FilledDefault(Fact, frozen=True):
    """A value that a create request left out: the rule that filled it, `partitions`, `replication_factor` or the name
    of a config, and the value."""

    rule: str
    name: str
    value: str


Outcome = Literal["allowed", "refused", "failed"]


class Observation(Fact, frozen=True):
    """A rule that a topic breaks, recorded instead of enforced.

    `rule` names the rule (`policy:rules/naming`), `message` says what is wrong and what is allowed.
    """

    rule: str
    message: str


class Verdict(Fact, frozen=True):
    """The result of the whole chain of create-topic policies for one topic (KIP-108).

    `outcome`: `allowed` if no policy is configured or none objects; `refused` if one raised PolicyViolation, which the
    client gets as POLICY_VIOLATION (44) with `message`; `failed` if one raised anything else: UNKNOWN_SERVER_ERROR
    (-1). `policy` is the deciding class and `rule` its rule, both empty if allowed. `observed` has the violations that
    were recorded and not enforced.

    Policies are the operator's code: slow, impure, and able to raise. So they run before the state machine decides,
    which gets only their verdict, as a field of the command: a decision can be repeated from the log without policies.
    """

    outcome: Outcome
    policy: str = ""
    rule: str = ""
    message: str = ""
    observed: tuple[Observation, ...] = ()


class RequestedPartitions(Fact, frozen=True, tag="partitions"):
    """An increase to `count` partitions (KIP-195); `assignments` has the replicas of each new partition, None to have
    them placed."""

    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None


class RequestedDeletion(Fact, frozen=True, tag="deletion"):
    """A deletion of the topic; `topic_id`, if set, must match (KIP-516)."""

    topic_id: TopicId | None


class RequestedConfigs(Fact, frozen=True, tag="configs"):
    """A change of the explicit configs by the steps `ops` (`incremental`, KIP-339), or their replacement by the configs
    that `ops` set."""

    ops: tuple[ConfigOp, ...]
    incremental: bool
    verdict: Verdict | None = None
    """The verdict of the policies; None without a policy."""


class RequestedCreation(Fact, frozen=True, tag="creation"):
    """The creation of a topic, in a request that waits for approval; see `CreateRequested`."""

    num_partitions: int
    replication_factor: int
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str | None], ...]


Requested = RequestedPartitions | RequestedDeletion | RequestedConfigs | RequestedCreation


class RequestedChange(Fact, frozen=True):
    """A change request for a topic: together with its event, every input of the decision."""

    api: str
    """`CreatePartitions`, `DeleteTopics`, `AlterConfigs`, `IncrementalAlterConfigs` or `HTTP`."""
    api_version: int
    change: Requested
    duplicate: bool = False
    denied: int = 0
    host: str = ""
    elsewhere: GroupCounts = ()


def are_cordoned(log_dirs: tuple[bytes, ...], cordoned: tuple[bytes, ...]) -> bool:
    """True if a broker has log directories and all are cordoned, as Kafka's `BrokerRegistration.hasUncordonedDirs`."""
    return bool(log_dirs) and set(log_dirs) <= set(cordoned)
