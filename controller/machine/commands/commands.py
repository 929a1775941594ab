"""What may be requested of the machine, or observed by it.

Commands are imperative. All that the machine must not find out by itself (the time, request ids, topic ids, the
authorizer's and the policies' answers) is stamped on them by the shell, so that the same command on the same state
always leads to the same decision.
"""

from __future__ import annotations

import msgspec

from controller.machine.commands import NO_TOPIC, Command, access, cluster
from controller.machine.partitions.blocks import Span
from events.catalog import Assignment, BrokerDetails, ConfigOp, Configs, Endpoint, Verdict
from events.names import BrokerId, Offset, TopicId, TopicName

AUTO_CREATION = "Metadata"
"""The API through which a client has a missing topic created (KIP-361)."""
LATEST_CREATE_TOPICS = 7
"""The newest CreateTopics version: requests that do not come through CreateTopics follow its rules."""


class DryRunResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the cluster that carries decisions out said of a command when it was tried there without effect: 0, or the
    error code and message with which it would refuse."""

    error_code: int = 0
    message: str = ""


class TopicCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of a client's requests: by whom, about which topic, through what.

    `api` is Kafka's name of the request, `Metadata` for an auto-creation, or `HTTP`; `api_version` its
    version. `denied` is the error code of the authorizer, 0 when it allows it. `duplicate` says that the request named
    the topic more than once; it is put once all the same. `validate_only` runs all the checks and changes
    nothing (KIP-108). `dry_run` is what the cluster says that carries decisions out, None while it was not asked, or
    where there is none. `throttle_ms` above 0 says for how long the requester's mutation quota is exhausted (KIP-599).
    `host` is the client's address.
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


class CreateTopic(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Create one topic (KIP-4). Counts of -1 ask for the cluster's defaults, or stand beside `assignments`.

    `topic_id` is the id that the topic gets if it is created. `timeout_ms` is how long the client waits for the topic
    to be complete. `verdict` is what the policies said, None while they were not asked.
    """

    topic_id: TopicId
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    timeout_ms: int = 0
    verdict: Verdict | None = None


class CreatePartitions(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Raise a topic's partition count to `count` (KIP-195); `assignments` holds the replicas of each new partition."""

    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


class DeleteTopic(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Delete a topic; with `topic_id` only if it still is the topic of that id (KIP-516)."""

    topic_id: TopicId | None = None


class AlterTopicConfigs(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Change a topic's explicit configs: by steps (`incremental`, KIP-339), or replacing them all."""

    ops: tuple[ConfigOp, ...]
    incremental: bool = True


class MembershipCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of how brokers come, live and go, and of the features that they share.

    What concerns a real broker is answered, under the empty name, with the machine's epoch of the broker as `number`;
    nobody waits for the others.
    """

    @property
    def topic(self) -> TopicName:
        """None: answers to it are filed under the empty name."""
        return NO_TOPIC


class RegisterBroker(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """A broker, or a new incarnation of it, reports in (KIP-631)."""

    broker_id: BrokerId
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    details: BrokerDetails | None = None


class UnregisterBroker(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """Forget a broker that will not return (KIP-746)."""

    broker_id: BrokerId
    reason: str


class FenceBroker(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """A broker is gone, or leaves."""

    broker_id: BrokerId
    reason: str
    broker_epoch: int | None = None
    """Of which registration; None for whichever there is."""


class UnfenceBroker(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """A broker has caught up with the log and may lead."""

    broker_id: BrokerId
    reason: str
    broker_epoch: int | None = None
    """Of which registration; None for whichever there is."""


class BeginShutdown(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """A live broker wants to leave in order: its leaderships are to move before it goes (KIP-841)."""

    broker_id: BrokerId
    broker_epoch: int | None = None
    """Of which registration; None for whichever there is."""


class ChangeLogDirs(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """The log directories of a broker that are online (KIP-858), and those that are cordoned (KIP-1066)."""

    broker_id: BrokerId
    log_dirs: tuple[bytes, ...]
    cordoned: tuple[bytes, ...] = ()
    broker_epoch: int | None = None
    """Of which registration; None for whichever there is."""


class BeginQuorumEpoch(Command, frozen=True, kw_only=True, gc=False):
    """The controller of real brokers starts, at this place. Levels of features are set with it where none are yet."""

    node_id: int
    kraft_version: int
    host: str
    port: int
    directory_id: bytes
    features: tuple[tuple[str, int], ...]
    epoch_min: int = 0
    """The epoch is this or a higher one."""
    priority: int = 0


class ChangeFeatures(MembershipCommand, frozen=True, kw_only=True, gc=False):
    """The finalized features are these, all of them; who puts it has checked that every broker supports them."""

    features: tuple[tuple[str, int], ...]
    reason: str


class PartitionsOfTopics(Command, frozen=True, kw_only=True, gc=False):
    """Base of what concerns topics: all their partitions, or a `span` of each. A worker of an earlier release takes
    all of them, which costs time and changes nothing else."""

    topics: tuple[TopicName, ...]
    span: Span | None = None


class ReconcileTopics(PartitionsOfTopics, frozen=True, kw_only=True, gc=False):
    """Look again at these topics with the brokers that are live now: leaders, in-sync sets, placeholders, readiness.

    Broker events concern every topic. To keep one decision small the shell sends the topics in slices; which slices is
    of no consequence, because a review is a function of the state alone and a second one changes nothing.
    """


class IsrReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The in-sync set of one partition as its leader sees it, with the epochs that it knew (KIP-497)."""

    partition: int
    isr: tuple[BrokerId, ...]
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False
    """Whether the leader still recovers from an unclean election (KIP-704)."""
    broker_epochs: tuple[int, ...] = ()
    """The epochs of the members of `isr` as the leader knows them, -1 where it does not (KIP-903)."""


class AlterPartition(Command, frozen=True, kw_only=True, gc=False):
    """A leader reports the in-sync sets of partitions of a topic (KIP-497). Reports with old epochs change nothing.

    A real broker gives its `broker_epoch` and the id of the topic, and is answered.
    """

    topic: TopicName
    broker_id: BrokerId
    reports: tuple[IsrReport, ...]
    broker_epoch: int | None = None
    topic_id: TopicId | None = None


class BrokerCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of what else a real broker requests. Refused with STALE_BROKER_EPOCH if it is not the broker's epoch."""

    broker_id: BrokerId
    broker_epoch: int
    topic: TopicName = TopicName("")


class AssignDirectories(BrokerCommand, frozen=True, kw_only=True, gc=False):
    """A broker reports in which log directories its replicas of a topic lie: partition and directory id (KIP-858)."""

    topic_id: TopicId
    directories: tuple[tuple[int, bytes], ...]


class AllocateProducerIds(BrokerCommand, frozen=True, kw_only=True, gc=False):
    """A broker requests a block of producer ids (KIP-730)."""


class ElectLeaders(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Elect the preferred leaders of a topic's partitions, or (`unclean`) any for those without one (KIP-460)."""

    partitions: tuple[int, ...]
    unclean: bool = False


class BalanceLeaders(PartitionsOfTopics, frozen=True, kw_only=True, gc=False):
    """Give the leadership of these topics' partitions back to the preferred replicas that are in sync."""


class Reassignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The replicas that a partition is to have; None ends the reassignment under way (KIP-455)."""

    partition: int
    replicas: tuple[BrokerId, ...] | None


class ReassignPartitions(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Move partitions of a topic to other replicas (KIP-455); `other_factors` allows to change how many they are."""

    reassignments: tuple[Reassignment, ...]
    other_factors: bool = True


class AlterResourceConfigs(TopicCommand, frozen=True, kw_only=True, gc=False):
    """Change the dynamic configs of a broker, of all, of a group or of a subscription to client metrics.

    `topic` is only the name under which the answer is found; `kind` and `name` are as in `ResourceConfigsChanged`.
    """

    kind: int
    name: str
    ops: tuple[ConfigOp, ...]
    incremental: bool = True


class CopyBrokerConfigs(Command, frozen=True, kw_only=True, gc=False):
    """The dynamic configs of brokers are these, by name, and no others: so they were decided in another partition.

    Where topics are decided in several partitions, each of them needs what all topics go by.
    """

    configs: tuple[tuple[str, Configs], ...]


class ConfirmMetadata(Command, frozen=True, kw_only=True, gc=False):
    """Brokers have applied the log up to and including `offset`.

    They confirmed before all up to and including `after`: topics created until then need no second look, however many
    of them wait for another broker.
    """

    brokers: tuple[BrokerId, ...]
    offset: Offset
    after: Offset = Offset(-1)


class ReportLeader(Command, frozen=True, kw_only=True, gc=False):
    """A broker serves as leader of a partition, or cannot: then another leader is elected."""

    topic: TopicName
    partition: int
    broker_id: BrokerId
    serving: bool
    reason: str = ""


class ExpireRequest(Command, frozen=True, kw_only=True, gc=False):
    """The deadline of a waiting create passed. `request_id` is that create's, `at_ms` not before its deadline."""

    topic: TopicName


class ChangeSettings(Command, frozen=True, kw_only=True, gc=False):
    """The settings that decisions depend on are these from here on."""

    settings: tuple[tuple[str, str], ...]
    release: str


class RecordHead(Command, frozen=True, kw_only=True, gc=False):
    """Record a head of the log that was signed; `HeadSigned` says what its parts are."""

    size: int
    root: bytes
    signed_at_ms: int
    public_key: bytes
    signature: bytes


ClientCommand = TopicCommand | access.ClusterCommand | AlterPartition | BrokerCommand | MembershipCommand
"""What is answered: by its request id and the name of its topic."""

AnyCommand = (
    CreateTopic
    | CreatePartitions
    | DeleteTopic
    | AlterTopicConfigs
    | RegisterBroker
    | UnregisterBroker
    | FenceBroker
    | UnfenceBroker
    | BeginShutdown
    | ChangeLogDirs
    | BeginQuorumEpoch
    | ChangeFeatures
    | ReconcileTopics
    | AlterPartition
    | AssignDirectories
    | AllocateProducerIds
    | ElectLeaders
    | BalanceLeaders
    | ReassignPartitions
    | AlterResourceConfigs
    | CopyBrokerConfigs
    | ConfirmMetadata
    | ReportLeader
    | ExpireRequest
    | cluster.DiscoverTopic
    | cluster.DiscoverDeletion
    | cluster.RefuseCreation
    | cluster.FinishChange
    | ChangeSettings
    | RecordHead
    | access.CreateAcls
    | access.DeleteAcls
    | access.AlterClientQuotas
    | access.AlterUserScramCredentials
    | access.DrawLoginSecret
    | access.RecordRefusals
)
