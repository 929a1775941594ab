"""Events that concern the whole cluster: brokers, features, configs, settings. `events.catalog` exports them all."""

from typing import Literal

from events.names import BrokerId, RequestId, TopicId, TopicName
from events.values import BrokerDetails, Configs, Endpoint, Fact, RequestedChange, are_cordoned


class BrokerRegistered(Fact, frozen=True, tag=True):
    """A broker, or a new incarnation of it, registered. It is fenced until it has caught up (KIP-631)."""

    broker_id: BrokerId
    broker_epoch: int
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    details: BrokerDetails | None = None
    """None for a simulated broker."""


class BrokerFenced(Fact, frozen=True, tag=True):
    """A broker is fenced: it gets neither leaderships nor replicas."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class BrokerUnfenced(Fact, frozen=True, tag=True):
    """A broker is unfenced (live)."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class BrokerUnregistered(Fact, frozen=True, tag=True):
    """A broker is unregistered."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class ResourceConfigsChanged(Fact, frozen=True, tag=True):
    """The dynamic configs of a resource other than a topic changed to these (KIP-226, KIP-714, KIP-848)."""

    request_id: RequestId
    kind: int
    """Kafka's resource type: broker 4, client metrics subscription 16, group 32."""
    name: str
    """The resource's name, such as a broker id; empty for the defaults of all brokers."""
    configs: Configs
    principal: str
    client_id: str | None
    host: str = ""
    before: Configs | None = None
    """The previous configs, None if unknown."""


class ProducerIdsAllocated(Fact, frozen=True, tag=True):
    """A broker received a block of producer ids (KIP-730)."""

    broker_id: BrokerId
    broker_epoch: int
    first: int
    next_producer_id: int
    """The first id after the block."""


class BrokerLeaving(Fact, frozen=True, tag=True):
    """A broker is in controlled shutdown: it still serves, but gets neither leaderships nor replicas (KIP-841)."""

    broker_id: BrokerId
    broker_epoch: int


class LogDirsChanged(Fact, frozen=True, tag=True):
    """A broker reported its online log directories (KIP-858), and those cordoned from new replicas (KIP-1066)."""

    broker_id: BrokerId
    broker_epoch: int
    log_dirs: tuple[bytes, ...]
    cordoned: tuple[bytes, ...] = ()

    @property
    def is_cordoned(self) -> bool:
        """True if all directories are cordoned, so that the broker gets no new replicas."""
        return are_cordoned(self.log_dirs, self.cordoned)


BROKER_EVENTS: frozenset[type[Fact]] = frozenset(
    {BrokerRegistered, BrokerUnfenced, BrokerLeaving, BrokerFenced, BrokerUnregistered, LogDirsChanged}
)
"""The events that change one broker."""


class QuorumEpochBegun(Fact, frozen=True, tag=True):
    """This controller leads the KRaft brokers in an epoch of its own (KIP-595)."""

    leader_epoch: int
    node_id: int
    kraft_version: int
    """The level of the feature kraft.version. With 1, brokers learn the voters from the metadata log (KIP-853)."""
    host: str
    """The address at which brokers reach the controller."""
    port: int
    directory_id: bytes
    """The directory id (16 bytes) of the controller as a voter with kraft.version 1."""
    priority: int = 0
    """The leader priority among Topicwright voters; -1 for Kafka's own controllers."""


class MetadataAdopted(Fact, frozen=True, tag=True):
    """The metadata log of another controller was adopted. The other events of the same cause have its contents, but not
    delegation tokens and records of newer releases."""

    source: int
    """The node whose copy was read: the controller itself, or a broker."""
    leader_epoch: int
    """The newest epoch in this copy."""
    end_offset: int
    """The offset after the last record that was adopted."""


class MetadataHandedBack(Fact, frozen=True, tag=True):
    """The metadata log was written for Kafka's own controller, which leads from now on. This controller must not lead
    again."""

    folder: str
    """The folder with the written metadata log, on the machine of the request."""
    leader_epoch: int
    """The last epoch of this controller."""
    end_offset: int
    """The offset after the last record that was written."""


class HeadSigned(Fact, frozen=True, tag=True):
    """A tree head of this log was signed: it proves which events were below `size` at that time."""

    size: int
    root: bytes
    """The root of the Merkle tree over the events below `size` (RFC 9162)."""
    signed_at_ms: int
    public_key: bytes
    """Ed25519, 32 bytes."""
    signature: bytes
    """The signature of the text that `events.logs.tree_heads` describes."""


class HistorySkipped(Fact, frozen=True, tag=True):
    """A snapshot replaced the records between two offsets of the metadata log, so the single decisions are unknown.

    The other events of the same cause record the differences at the end of these records.
    """

    start_offset: int
    """The first skipped offset of the metadata log."""
    end_offset: int
    """The offset after the last skipped record: the snapshot's."""
    leader_epoch: int
    """The epoch of the record before `end_offset`."""
    reason: str


class FeaturesChanged(Fact, frozen=True, tag=True):
    """The finalized features of the cluster changed to these levels, by name (KIP-584)."""

    features: tuple[tuple[str, int], ...]
    reason: str


class RulesApplied(Fact, frozen=True, tag=True):
    """From this event on, `text` has the rules for changes of topics; an empty text means none."""

    request_id: RequestId
    number: int
    """The version: 1, 2, …"""
    text: str
    """The whole text, as TOML."""
    sha256: str
    """The hash of the text, in hexadecimal."""
    is_file: bool
    """True if `text` is the content of `topic.rules.file`, applied by the controller itself."""
    principal: str
    client_id: str | None
    host: str = ""


class ApprovalRequested(Fact, frozen=True, tag=True):
    """Rules hold a request for one topic: it was refused, and is decided again once somebody approves it."""

    request_id: RequestId
    name: TopicName
    """The topic."""
    principal: str
    client_id: str | None
    request: RequestedChange
    rules: tuple[tuple[str, tuple[str, ...]], ...]
    """The rules that hold it, each with the principals (as patterns) and roles of which one must approve."""
    expires_at_ms: int
    topic_id: TopicId | None = None
    """The topic that the request changes or deletes; None for a creation."""


class ApprovalDecided(Fact, frozen=True, tag=True):
    """A held request is no longer held: it was approved and done, denied, or has expired."""

    request_id: RequestId
    name: TopicName
    """The topic."""
    outcome: Literal["approved", "denied", "expired"]
    reason: str
    """The reason of a denial, or the id of the request that did what was approved."""
    principal: str
    """The approver; empty for an expiry."""
    client_id: str | None = None
    host: str = ""


class SettingsChanged(Fact, frozen=True, tag=True):
    """The settings that decisions depend on changed to `settings`, with Kafka's names. The first event of every log.

    With Python policies, `settings` also has theirs, and the hash of the source of each class."""

    settings: tuple[tuple[str, str], ...]
    release: str
    """The release of Topicwright whose rules decide from here on."""
    before: tuple[tuple[str, str], ...] | None = None
    """The previous settings; None in the first event of a log."""
