"""Decisions of `decide` on commands from brokers, the controller itself and timers: registration, fencing, features,
metadata propagation, deadlines. A new topic is complete when every partition has a live leader, and every live broker
has applied its metadata."""

from collections.abc import Iterable
from itertools import filterfalse

from msgspec.structs import replace

from controller.machine.commands import commands
from controller.machine.configs.changes import with_one_min_isr
from controller.machine.decision import NOTHING, Answer, Decision, answered, topic_named
from controller.machine.errors import ErrorCode
from controller.machine.partitions import requests
from controller.machine.partitions.changes import Reconciliation
from controller.machine.state import Broker, Cluster, State, Topic, settings_from_pairs
from events import catalog
from events.catalog import CreateAnswered, Event, MetadataPropagated, TopicReady
from events.names import BrokerId, ShardKey


def register(state: State, command: commands.RegisterBroker) -> Decision:
    """Registers a broker as fenced. A live broker with another incarnation id is fenced first (KIP-631)."""
    known = state.cluster.brokers.get(command.broker_id)
    same = (command.incarnation, command.rack, command.endpoints)
    is_known = known is not None and (known.incarnation, known.rack, known.endpoints) == same
    epoch = known.broker_epoch if known is not None and is_known else state.cluster.last_broker_epoch + 1
    answers = (Answer(command.request_id, command.topic, 0, number=epoch),) if command.details is not None else ()
    if is_known:
        return Decision((), answers)
    event = catalog.BrokerRegistered(
        command.broker_id, epoch, command.incarnation, command.rack, command.endpoints, command.details
    )
    if known is None or known.fenced:
        return Decision((event,), answers)
    return Decision((catalog.BrokerFenced(command.broker_id, known.broker_epoch, "registered again"), event), answers)


def change_broker(state: State, command: commands.RegisteredCommand) -> Decision:
    """Decides on a command about a registered broker. `reconcile` then brings the topics in line with it. The answer to
    a KRaft broker has the broker's epoch."""
    known = state.cluster.brokers.get(command.broker_id)
    if known is None:
        return answered(command, code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if (refused := requests.stale(state.cluster, command)) is not None:
        return refused
    event = _change_of_broker(known, command)
    answers = (Answer(command.request_id, command.topic, 0, number=known.broker_epoch),) if known.features else ()
    return Decision(() if event is None else (event,), answers)


def _change_of_broker(known: Broker, command: commands.RegisteredCommand) -> Event | None:
    broker = (known.broker_id, known.broker_epoch)
    match command:
        case commands.UnregisterBroker():  # KIP-746: its replicas stay in the topics' replica lists, as in Kafka
            return catalog.BrokerUnregistered(*broker, command.reason)
        case commands.FenceBroker() if not known.fenced:
            return catalog.BrokerFenced(*broker, command.reason)
        case commands.UnfenceBroker() if known.fenced:
            return catalog.BrokerUnfenced(*broker, command.reason)
        case commands.BeginShutdown() if known.is_live:
            return catalog.BrokerLeaving(*broker)
        case commands.ChangeLogDirs() if (known.log_dirs, known.cordoned) != (command.log_dirs, command.cordoned):
            return catalog.LogDirsChanged(*broker, command.log_dirs, command.cordoned)
        case _:
            return None


def begin_epoch(state: State, command: commands.BeginQuorumEpoch) -> Decision:
    """Starts the next leader epoch of the quorum. Without finalized features it also finalizes those of the command."""
    cluster = state.cluster
    last = cluster.quorum.leader_epoch if cluster.quorum is not None else 0
    events: list[Event] = [replace(command.leader, leader_epoch=max(last + 1, command.leader.leader_epoch))]
    if not cluster.features:
        events.append(catalog.FeaturesChanged(command.features, "initial features"))
        events += with_one_min_isr(cluster, command.features, command.request_id)
    return Decision(tuple(events))


def change_features(state: State, command: commands.ChangeFeatures) -> Decision:
    if command.features == state.cluster.features:
        return answered(command)
    safe = with_one_min_isr(state.cluster, command.features, command.request_id)
    return answered(command, catalog.FeaturesChanged(command.features, command.reason), *safe)


def reconcile(state: State, command: commands.ReconcileTopics) -> Decision:
    """Brings topics in line with the live brokers. This may complete pending creates."""
    events: list[Event] = []
    answers: list[Answer] = []
    reconciliation = Reconciliation(state.cluster)
    for name in dict.fromkeys(command.topics):
        topic = topic_named(state, name)
        if topic is not None:
            settled, changes = reconciliation.reconcile(topic, "live brokers changed", command.partitions)
            events += changes
            if settled.ready_at_ms is None:
                completed = complete(settled, settled.propagated, state.cluster, command.at_ms)
                events += completed.events
                answers += completed.answers
    return Decision(tuple(events), tuple(answers))


def confirm(state: State, command: commands.ConfirmMetadata) -> Decision:
    """Records that brokers have applied the log up to an offset. This may complete pending creates, oldest first."""
    keys: list[ShardKey] = []
    for key, created_offset in reversed(state.waiting.items()):  # many old topics may be waiting for a slow broker
        if created_offset <= command.after:
            break
        if created_offset <= command.offset:
            keys.append(key)
    events: list[Event] = []
    answers: list[Answer] = []
    for key in reversed(keys):
        topic = state.topics.get(key)
        assert topic is not None, "what waits exists"
        known, fresh = topic.propagated, command.brokers
        if known:
            fresh = tuple(filterfalse(frozenset(known).__contains__, fresh))
        propagated = (MetadataPropagated(topic.name, fresh),) if fresh else ()
        confirmed = complete(topic, known + fresh, state.cluster, command.at_ms, propagated)
        events += confirmed.events
        answers += confirmed.answers
    return Decision(tuple(events), tuple(answers))


def change_settings(state: State, command: commands.ChangeSettings) -> Decision:
    """Records new settings; no event if unchanged. Raises msgspec.ValidationError for invalid ones, which is a bug:
    settings are validated before the command is submitted."""
    cluster = state.cluster
    if cluster.release and (cluster.settings_pairs, cluster.release) == (command.settings, command.release):
        return NOTHING
    settings_from_pairs(command.settings)
    before = cluster.settings_pairs if cluster.release else None
    return Decision((catalog.SettingsChanged(command.settings, command.release, before),))


def expire(state: State, command: commands.ExpireRequest) -> Decision:
    """Answers a create whose deadline has passed; its topic may still become complete. Does nothing if the create is
    already answered, or if `at_ms` is before its deadline."""
    topic = topic_named(state, command.topic)
    if topic is None or topic.pending_create is None or topic.pending_create.request_id != command.request_id:
        return NOTHING
    if command.at_ms < topic.pending_create.deadline_ms:
        return NOTHING
    message = f"The topic was created, but was not complete in time: {progress_text(topic, state.cluster)}."
    return answer_pending_create(topic, ErrorCode.REQUEST_TIMED_OUT, message, command.at_ms)


# When a new topic is complete.


def complete(
    topic: Topic, propagated: tuple[BrokerId, ...], cluster: Cluster, at_ms: int, before: tuple[Event, ...] = ()
) -> Decision:
    """Returns the events `before`, and if the topic is complete `TopicReady` and the answer to the pending create.

    A partition with a fenced leader is not complete, because that broker may never serve clients.
    """
    live = cluster.live
    is_propagated = propagated == live or frozenset(propagated).issuperset(live)
    if not is_propagated or not {partition.leader for partition in topic.partitions}.issubset(live):
        return Decision(before)
    warning = "" if topic.pending_create is None else topic.pending_create.warning
    return answer_pending_create(topic, ErrorCode.NONE, warning, at_ms, *before, TopicReady(topic.name))


def not_propagated(topic: Topic, live: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """The live brokers that have not applied the creation of a topic."""
    return tuple(filterfalse(frozenset(topic.propagated).__contains__, live))


NAMED_MAX = 10


def progress_text(topic: Topic, cluster: Cluster) -> str:
    """Describes the progress of a topic, for the message of REQUEST_TIMED_OUT."""
    leaders = sum(1 for partition in topic.partitions if partition.leader in cluster.live)
    missing = not_propagated(topic, cluster.live)
    names = ", ".join(map(str, missing[:NAMED_MAX])) + (", …" if len(missing) > NAMED_MAX else "")
    waits = f"; it waits for {'broker' if len(missing) == 1 else 'brokers'} {names}" if missing else ""
    return (
        f"{leaders} of {len(topic.partitions)} partitions have a leader and "
        f"{len(cluster.live) - len(missing)} of {len(cluster.live)} live brokers have applied it{waits}"
    )


def answer_pending_create(topic: Topic, code: int, message: str, at_ms: int, *before: Event) -> Decision:
    """Returns the events `before`, and the answer to the pending create, if there is one."""
    pending, code = topic.pending_create, int(code)
    if pending is None:
        return Decision(before)
    waited_ms = max(0, at_ms - pending.requested_at_ms)
    event = CreateAnswered(pending.request_id, topic.name, code, message, waited_ms)
    answer = Answer(pending.request_id, topic.name, code, message, "", waited_ms, topic)
    return Decision((*before, event), (answer,))
