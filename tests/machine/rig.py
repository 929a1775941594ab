"""Runs the machine without an engine: decides commands, and applies and stores their events."""

from collections.abc import Iterable, Sequence

import msgspec

from controller.machine.access.acls import Acls
from controller.machine.apply import apply
from controller.machine.commands import commands
from controller.machine.commands.commands import AnyCommand
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.state import Broker, Cluster, DictTopics, ScramCredential, State, Topic, settings_from_pairs
from events.access import Acl, QuotaEntity
from events.catalog import Cause, Endpoint, Recorded
from events.codec import decode_event, encode_event
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicId

TOPIC_ID = TopicId(b"0123456789abcdef")
BORN_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z, the start of the rig's clock."""


class Rig:
    """A state and its log. Each command that the rig creates advances the clock by a millisecond."""

    def __init__(self) -> None:
        self.state = State(DictTopics())
        self.log: list[Recorded] = []
        self.now_ms = BORN_MS

    def put(self, command: AnyCommand) -> Decision:
        """Decide a command, and apply its events after an encoding round trip."""
        decision = decide(self.state, command)
        cause = Cause(type(command).__name__, command.request_id)
        for event in decision.events:
            offset = Offset(len(self.log))
            record = decode_event(offset, encode_event(command.at_ms, cause, event))
            assert record == Recorded(offset, command.at_ms, cause, event), "encoding preserves the event"
            apply(self.state, record)
            self.log.append(record)
        return decision

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def settings(self, pairs: Iterable[tuple[str, str]] = ()) -> Decision:
        return self.put(
            commands.ChangeSettings(request_id=_id("s"), at_ms=self.tick(), settings=tuple(pairs), release="1.0")
        )

    def register(self, broker_id: int, rack: str | None = None, incarnation: str = "first") -> Decision:
        return self.put(
            commands.RegisterBroker(
                request_id=_id(f"b{broker_id}"),
                at_ms=self.tick(),
                broker_id=BrokerId(broker_id),
                incarnation=incarnation,
                rack=rack,
                endpoints=(Endpoint("PLAINTEXT", "localhost", 9092),),
            )
        )

    def unfence(self, broker_id: int) -> Decision:
        command = commands.UnfenceBroker(
            request_id=_id(f"b{broker_id}"), at_ms=self.tick(), broker_id=BrokerId(broker_id), reason="caught up"
        )
        return self.put(command)

    def reconcile(self, *names: str) -> Decision:
        topics = names or tuple(topic.name for topic in topics_of(self.state))
        return self.put(commands.ReconcileTopics(request_id=_id("r"), at_ms=self.tick(), topics=topics))  # type: ignore[arg-type]

    def confirm(self, *broker_ids: int) -> Decision:
        """Confirm the last offset for these brokers, or for all live ones."""
        brokers = tuple(BrokerId(broker_id) for broker_id in broker_ids) or self.state.cluster.live
        offset = Offset(len(self.log) - 1)
        return self.put(
            commands.ConfirmMetadata(request_id=_id("c"), at_ms=self.tick(), brokers=brokers, offset=offset)
        )

    def topic(self, name: str) -> Topic:
        """Returns the topic of this name, which must exist."""
        topic = next((topic for topic in topics_of(self.state) if topic.name == name), None)
        assert topic is not None, f"no topic {name}"
        return topic


def _id(text: str) -> RequestId:
    return RequestId(text)


def topics_of(state: State) -> list[Topic]:
    """Returns all topics of a state by shard key."""
    assert isinstance(state.topics, DictTopics), "the rig stores topics in a dict"
    return [state.topics[key] for key in sorted(state.topics)]


def fold(records: Sequence[Recorded], state: State | None = None) -> State:
    state = State(DictTopics()) if state is None else state
    for record in records:
        apply(state, record)
    return state


class _Stored(msgspec.Struct, array_like=True):
    topics: tuple[Topic, ...]
    settings: tuple[tuple[str, str], ...]
    release: str
    brokers: tuple[Broker, ...]
    last_broker_epoch: int
    waiting: tuple[tuple[Offset, ShardKey], ...]
    acls: tuple[Acl, ...] = ()
    quotas: tuple[tuple[QuotaEntity, tuple[tuple[str, float], ...]], ...] = ()
    scram: tuple[tuple[tuple[str, str], ScramCredential], ...] = ()


def stored(state: State) -> bytes:
    """Returns a state as bytes, in an order that does not depend on its history."""
    cluster = state.cluster
    kept = _Stored(
        tuple(topics_of(state)),
        cluster.settings_pairs,
        cluster.release,
        tuple(cluster.brokers[broker_id] for broker_id in sorted(cluster.brokers)),
        cluster.last_broker_epoch,
        tuple((offset, key) for key, offset in state.waiting.items()),
        tuple(sorted(cluster.acls)),
        tuple(sorted(cluster.quotas.items(), key=str)),
        tuple(sorted(cluster.scram.items())),
    )
    # Without ACLs, quotas and credentials the bytes equal those of earlier releases.
    fields = msgspec.structs.astuple(kept)
    return msgspec.msgpack.encode(fields if any(fields[6:]) else fields[:6])


def restored(value: bytes) -> State:
    """Returns the state of `stored`, as after a restart."""
    kept = msgspec.msgpack.decode(value, type=_Stored)
    topics = DictTopics()
    for topic in kept.topics:
        topics[ShardKey(topic.name.replace(".", "_"))] = topic
    cluster = Cluster(settings_from_pairs(kept.settings), kept.settings, kept.release)
    cluster = msgspec.structs.replace(
        cluster,
        last_broker_epoch=kept.last_broker_epoch,
        acls=Acls().with_all(kept.acls),
        quotas=dict(kept.quotas),
        scram=dict(kept.scram),
    )
    cluster = cluster.with_brokers({broker.broker_id: broker for broker in kept.brokers})
    return State(topics, cluster, {key: offset for offset, key in sorted(kept.waiting)})
