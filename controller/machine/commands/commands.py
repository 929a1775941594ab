"""Commands for topics, brokers, partitions, configs and settings, and observations of the target cluster.

API handlers and the engine create commands, and `decide` decides on them. A command contains everything that `decide`
must not determine itself: the time, request ids, topic ids, the result of authorization, the verdict of policies. So
the same command on the same state always leads to the same decision.
"""

from typing import ClassVar

import msgspec

from controller.machine.commands import NO_TOPIC, Command, access
from controller.machine.state import RulesVersion, ScramCredential
from events import catalog
from events.catalog import Assignment, BrokerDetails, ConfigOp, Configs, Endpoint, HeadSigned, Partition, Verdict
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName
from events.values import GroupCounts

AUTO_CREATION = "Metadata"
"""The API through which clients create missing topics automatically (KIP-361)."""
HTTP = "HTTP"
"""The API of requests over HTTP, also those of the command line."""
LATEST_CREATE_TOPICS = 7
"""The newest CreateTopics version. Creates through other APIs follow its rules."""


class DryRunResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of a dry run at the target cluster: its error code and message; code 0 means success."""

    error_code: int = 0
    message: str = ""


class Approval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The approval of a request that was held under `request_id`, with the approver."""

    request_id: RequestId
    principal: str
    client_id: str | None = None
    host: str = ""


class TopicCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of client requests about a topic.

    `api` is Kafka's name of the request, `Metadata` for an automatic creation, or `HTTP`. `denied` is the authorizer's
    error code, or 0. `duplicate` is set if the request names the topic more than once; such a topic gets one command.
    `validate_only` checks the command without changes (KIP-108). `dry_run` is None until the target cluster has
    answered, or if there is none. `throttle_ms` is the remaining throttle time of an exhausted mutation quota
    (KIP-599). `host` is the client's address. `elsewhere` has the counts of groups of topics (`state.groups_of`) in the
    other partitions of the log, as the gateway knows them, for the limits of rules. `approval` is set if the command is
    a held request, resubmitted because somebody approved it.
    """

    topic: TopicName
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    api: str = "CreateTopics"
    api_version: int = LATEST_CREATE_TOPICS
    denied: int = 0
    duplicate: bool = False
    validate_only: bool = False
    dry_run: DryRunResult | None = None
    throttle_ms: int = 0
    host: str = ""
    elsewhere: GroupCounts = ()
    approval: Approval | None = None


class CreateTopic(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Create a topic (KIP-4). A count of -1 means the default, or that `assignments` determine it.

    `topic_id` is the id of the new topic. `timeout_ms` is how long the client waits until the topic is ready.
    `verdict` is None until the policies have returned it.
    """

    topic_id: TopicId
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    timeout_ms: int = 0
    verdict: Verdict | None = None


class CreatePartitions(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Raise the partition count to `count` (KIP-195). `assignments` has the replicas of each new partition."""

    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


class DeleteTopic(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Delete a topic; with `topic_id` only if the topic has this id (KIP-516)."""

    topic_id: TopicId | None = None


class AlterTopicConfigs(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Change the explicit configs of a topic, incrementally (KIP-339) or by replacing all. `verdict` is None until the
    policies have returned it."""

    ops: tuple[ConfigOp, ...]
    incremental: bool = True
    verdict: Verdict | None = None


class MembershipCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of commands about the registration of brokers and their features.

    Commands of KRaft brokers are answered with the broker epoch in `number`. Others get no answer.
    """

    topic: ClassVar[TopicName] = NO_TOPIC


class RegisterBroker(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """A broker registers, perhaps with a new incarnation id (KIP-631)."""

    broker_id: BrokerId
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    details: BrokerDetails | None = None


class RegisteredCommand(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """Base of commands about a registered broker. A `broker_epoch` of None means the current registration."""

    broker_id: BrokerId
    broker_epoch: int | None = None


class UnregisterBroker(RegisteredCommand, frozen=True, kw_only=True, gc=False):
    """Unregister a broker that will not return (KIP-746)."""

    reason: str


class FenceBroker(RegisteredCommand, frozen=True, kw_only=True, gc=False):
    """A broker has failed or shut down."""

    reason: str


class UnfenceBroker(RegisteredCommand, frozen=True, kw_only=True, gc=False):
    """A broker has caught up with the metadata log and may lead."""

    reason: str


class BeginShutdown(RegisteredCommand, frozen=True, kw_only=True, gc=False):
    """A live broker starts a controlled shutdown; its leaderships move first (KIP-841)."""


class ChangeLogDirs(RegisteredCommand, frozen=True, kw_only=True, gc=False):
    """The online log directories of a broker (KIP-858), and the cordoned ones (KIP-1066)."""

    log_dirs: tuple[bytes, ...]
    cordoned: tuple[bytes, ...] = ()


class BeginQuorumEpoch(Command, frozen=True, kw_only=True, gc=False):
    """A controller becomes leader of the KRaft quorum. The new epoch is that of `leader`, or a higher one. `features`
    are set if there are none yet."""

    leader: catalog.QuorumEpochBegun
    features: tuple[tuple[str, int], ...]


class ChangeFeatures(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """Finalize these features, replacing all others. The API handler has checked that all brokers support them."""

    features: tuple[tuple[str, int], ...]
    reason: str


class PartitionsOfTopics(Command, frozen=True, kw_only=True, gc=False):
    """Base of commands about several topics: all partitions of each topic, or those with these indexes."""

    topics: tuple[TopicName, ...]
    partitions: tuple[int, ...] | None = None


class ReconcileTopics(PartitionsOfTopics, frozen=True, kw_only=True, gc=False):
    """Bring topics in line with the live brokers: leaders, ISRs, placeholders, readiness.

    A broker event concerns every topic. The engine submits topics in slices to keep each decision small. The choice of
    slices does not matter, because the result depends only on the state, and repeating the command changes nothing.
    """


class IsrReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The ISR of a partition as its leader sees it, with the epochs known to the leader (KIP-497)."""

    partition: int
    isr: tuple[BrokerId, ...]
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False
    """True while the leader recovers from an unclean election (KIP-704)."""
    broker_epochs: tuple[int, ...] = ()
    """Broker epochs of the members of `isr`; -1 if the leader does not know them (KIP-903)."""


class AlterPartition(Command, frozen=True, kw_only=True, gc=False):
    """A leader reports ISRs of partitions of a topic (AlterPartition, KIP-497). Reports with old epochs change nothing.

    A KRaft broker sends its `broker_epoch` and the topic id, and gets an answer.
    """

    topic: TopicName
    broker_id: BrokerId
    reports: tuple[IsrReport, ...]
    broker_epoch: int | None = None
    topic_id: TopicId | None = None


class BrokerCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of further requests of KRaft brokers. A wrong broker epoch is refused with STALE_BROKER_EPOCH."""

    broker_id: BrokerId
    broker_epoch: int
    topic: TopicName = NO_TOPIC


class AssignDirectories(BrokerCommand, frozen=True, kw_only=True, gc=False):
    """A broker reports the log directories of its replicas: partition and directory id (KIP-858)."""

    topic_id: TopicId
    directories: tuple[tuple[int, bytes], ...]


class AllocateProducerIds(BrokerCommand, frozen=True, kw_only=True, gc=False):
    """A broker requests a block of producer ids (KIP-730)."""


class ElectLeaders(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Elect the preferred leaders of partitions, or with `unclean` any replica for partitions without a leader
    (KIP-460)."""

    partitions: tuple[int, ...]
    unclean: bool = False


class BalanceLeaders(PartitionsOfTopics, frozen=True, kw_only=True, gc=False):
    """Move leadership back to preferred replicas that are in sync."""


class Reassignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The new replicas of a partition; None cancels the reassignment in progress (KIP-455)."""

    partition: int
    replicas: tuple[BrokerId, ...] | None


class ReassignPartitions(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Move partitions to other replicas (KIP-455). `allow_factor_change` allows another replication factor."""

    reassignments: tuple[Reassignment, ...]
    allow_factor_change: bool = True

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(one.partition for one in self.reassignments)


class AlterResourceConfigs(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Change dynamic configs of a broker, of all brokers, of a group or of a client metrics subscription.

    `topic` only identifies the answer; `kind` and `name` are as in `ResourceConfigsChanged`.
    """

    kind: int
    name: str
    ops: tuple[ConfigOp, ...]
    incremental: bool = True
    verdict: Verdict | None = None


class ScramChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A SCRAM credential to set, or None to remove it; `mechanism` is Kafka's number."""

    user: str
    mechanism: int
    credential: ScramCredential | None = None


class AlterUserScramCredentials(access.ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Set and remove SCRAM credentials (KIP-554), each user independently. A credential has keys that are derived from
    a salted password, never the password (RFC 5802)."""

    changes: tuple[ScramChange, ...]


class CopyClusterState(Command, frozen=True, kw_only=True, gc=False):
    """Replace the dynamic configs of all brokers, and the rules, by those decided in another partition.

    With several partitions of topics, each of them needs the same broker configs and rules.
    """

    configs: tuple[tuple[str, Configs], ...]
    rules: RulesVersion | None = None


class ConfirmMetadata(Command, frozen=True, kw_only=True, gc=False):
    """Brokers have applied the log up to and including `offset`.

    The same brokers had confirmed up to `after` before, so topics created until `after` are not checked again.
    """

    brokers: tuple[BrokerId, ...]
    offset: Offset
    after: Offset = Offset(-1)


class ExpireRequest(Command, frozen=True, kw_only=True, gc=False):
    """The deadline of a pending create, whose id is `request_id`, has passed. `at_ms` is not before the deadline."""

    topic: TopicName


class ChangeSettings(Command, frozen=True, kw_only=True, gc=False):
    """Replace the settings that decisions depend on."""

    settings: tuple[tuple[str, str], ...]
    release: str


class RecordHead(Command, frozen=True, kw_only=True, gc=False):
    """Record a signed tree head."""

    head: HeadSigned


# Observations of the target cluster.


class DiscoverTopic(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster has this topic, with these partitions as in its metadata.

    `configs` are its explicit configs; None if they were not fetched. `known` is the partition count and the configs in
    Topicwright's state when the cluster was observed; None if it had no such topic. If the state has changed since,
    the observation is stale and is ignored.
    """

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    configs: Configs | None = None
    known: tuple[int, Configs] | None = None
    reason: str = ""


class DiscoverDeletion(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster no longer has the topic with this id, although Topicwright did not delete it."""

    topic: TopicName
    topic_id: TopicId
    reason: str


class RefuseCreation(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster refused to create a topic. `topic_id` is the id from the decision."""

    topic: TopicName
    topic_id: TopicId
    error_code: int
    message: str


class FinishChange(Command, frozen=True, kw_only=True, gc=False):
    """The target cluster carried out the change with this `request_id`, or refused it with `error_code`."""

    topic: TopicName
    error_code: int = 0
    message: str = ""


ClientCommand = TopicCommand | access.ClusterCommand | AlterPartition | BrokerCommand | MembershipCommand
"""Commands with an answer that the requester finds by request id and topic name."""

AnyCommand = Command
"""Every type of command; `decide.COMMANDS` lists the concrete ones."""
