"""Events that concern the whole cluster: brokers, features, configs, settings. See `events.catalog`."""

from __future__ import annotations

from events.names import BrokerId, RequestId
from events.values import BrokerDetails, Configs, Endpoint, Fact, are_cordoned


class BrokerRegistered(Fact, frozen=True, tag=True):
    """A broker (or a new incarnation of it) is known; it is fenced until it has caught up (KIP-631)."""

    broker_id: BrokerId
    broker_epoch: int
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    details: BrokerDetails | None = None
    """None for a simulated broker."""


class BrokerFenced(Fact, frozen=True, tag=True):
    """A broker is not to lead or to be placed on."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class BrokerUnfenced(Fact, frozen=True, tag=True):
    """A broker is live."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class BrokerUnregistered(Fact, frozen=True, tag=True):
    """A broker is forgotten."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class ResourceConfigsChanged(Fact, frozen=True, tag=True):
    """The dynamic configs of something other than a topic are these from here on (KIP-226, KIP-714, KIP-848)."""

    request_id: RequestId
    kind: int
    """Kafka's number of what it is: a broker 4, a subscription to client metrics 16, a group 32."""
    name: str
    """Its name, as a broker's id; the empty text for the defaults of all brokers."""
    configs: Configs
    principal: str
    client_id: str | None
    host: str = ""
    """The client's address; empty where nobody sent a request, and in events of earlier releases."""
    before: Configs | None = None
    """What they were; None in events of earlier releases."""


class ProducerIdsAllocated(Fact, frozen=True, tag=True):
    """A broker was given a block of producer ids (KIP-730)."""

    broker_id: BrokerId
    broker_epoch: int
    first: int
    next_producer_id: int
    """The first id after the block."""


class BrokerLeaving(Fact, frozen=True, tag=True):
    """A broker is in controlled shutdown: it still serves, but is not to lead or to be placed on (KIP-841)."""

    broker_id: BrokerId
    broker_epoch: int


class LogDirsChanged(Fact, frozen=True, tag=True):
    """A broker's log directories that are online (KIP-858), and those that get no new replicas (KIP-1066)."""

    broker_id: BrokerId
    broker_epoch: int
    log_dirs: tuple[bytes, ...]
    cordoned: tuple[bytes, ...] = ()

    @property
    def is_cordoned(self) -> bool:
        """True if all directories are cordoned, so that the broker gets no new replicas."""
        return are_cordoned(self.log_dirs, self.cordoned)


class QuorumEpochBegun(Fact, frozen=True, tag=True):
    """This controller leads real brokers from here on, in an epoch of its own (KIP-595)."""

    leader_epoch: int
    node_id: int
    kraft_version: int
    """Level of the feature kraft.version: with 1 the brokers learn from the metadata log who votes (KIP-853)."""
    host: str
    """Where the brokers reach the controller."""
    port: int
    directory_id: bytes
    """The id (16 bytes) under which the controller votes with kraft.version 1."""
    priority: int = 0
    """How much it wants to lead, above other voters of Topicwright; -1 of Kafka's own controllers."""


class MetadataAdopted(Fact, frozen=True, tag=True):
    """The metadata log of another controller was taken over as it is; the events beside this one say what was in it."""

    source: int
    """The node whose copy it was: the controller itself, or a broker."""
    leader_epoch: int
    """The newest epoch that this copy knew of."""
    end_offset: int
    """The offset after the last record that was taken."""
    kept: tuple[bytes, ...]
    """Records that no event holds, as Kafka encodes them: delegation tokens, those of newer releases."""


class MetadataHandedBack(Fact, frozen=True, tag=True):
    """The metadata log was written for Kafka's own controller, which leads on: this one is not to lead again."""

    folder: str
    """Where it was written to, on the machine where that was asked for."""
    leader_epoch: int
    """The last epoch led here."""
    end_offset: int
    """The offset after the last record that was written."""


class HeadSigned(Fact, frozen=True, tag=True):
    """A head of this log was signed: whoever trusts the key knows which events stood below `size` at that time."""

    size: int
    root: bytes
    """The root of the Merkle tree over the events below `size` (RFC 9162)."""
    signed_at_ms: int
    public_key: bytes
    """Ed25519, 32 bytes."""
    signature: bytes
    """Of the text that `events.logs.tree_heads` describes."""


class HistorySkipped(Fact, frozen=True, tag=True):
    """What was decided between two offsets of the metadata log is not known step by step: a snapshot was taken in its
    place. The events beside this one, of the same cause, say what had changed at its end."""

    start_offset: int
    """The first offset of the metadata log that is not known."""
    end_offset: int
    """The offset after the last one that is not known, which is that of the snapshot."""
    leader_epoch: int
    """The epoch of the record before that."""
    reason: str


class FeaturesChanged(Fact, frozen=True, tag=True):
    """The finalized features of the cluster with their levels are these from here on, by name (KIP-584)."""

    features: tuple[tuple[str, int], ...]
    reason: str


class SettingsChanged(Fact, frozen=True, tag=True):
    """Every setting that decisions depend on, by Kafka's names; the first event of every log."""

    settings: tuple[tuple[str, str], ...]
    release: str
    """The release of Topicwright whose rules decide from here on."""
    before: tuple[tuple[str, str], ...] | None = None
    """What they were; None in the first event of a log, and in events of earlier releases."""
