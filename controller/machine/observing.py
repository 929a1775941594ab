"""Decisions of `decide` on commands from brokers, the controller itself and timers: registration, fencing, features,
metadata propagation, deadlines."""

from __future__ import annotations

from collections.abc import Callable

from controller.machine import readiness
from controller.machine.commands import NO_TOPIC, commands
from controller.machine.configs.changes import with_one_min_isr
from controller.machine.decision import NOTHING, Answer, Decision, topic_named
from controller.machine.errors import ErrorCode
from controller.machine.partitions import requests
from controller.machine.partitions.changes import Reconciliation
from controller.machine.readiness import answer_pending_create
from controller.machine.state import Broker, State, settings_from_pairs
from events import catalog
from events.catalog import Event
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


def unregister(state: State, command: commands.UnregisterBroker) -> Decision:
    """Unregisters a broker (KIP-746). Its replicas stay in the topics' replica lists, as in Kafka."""
    return _of_broker(state, command, lambda known: catalog.BrokerUnregistered(*_id(known), command.reason))


def fence(state: State, command: commands.FenceBroker) -> Decision:
    """Fences a broker. `reconcile` then elects other leaders."""
    return _of_broker(
        state, command, lambda known: None if known.fenced else catalog.BrokerFenced(*_id(known), command.reason)
    )


def unfence(state: State, command: commands.UnfenceBroker) -> Decision:
    """Unfences a broker. `reconcile` then elects leaders and fills placeholders."""
    return _of_broker(
        state, command, lambda known: catalog.BrokerUnfenced(*_id(known), command.reason) if known.fenced else None
    )


def begin_shutdown(state: State, command: commands.BeginShutdown) -> Decision:
    """Starts the controlled shutdown of a broker. `reconcile` then moves its leaderships."""
    return _of_broker(state, command, lambda known: catalog.BrokerLeaving(*_id(known)) if known.is_live else None)


def change_log_dirs(state: State, command: commands.ChangeLogDirs) -> Decision:
    """Records the online and cordoned log directories of a broker. `reconcile` then updates the topics."""
    dirs = command.log_dirs, command.cordoned
    return _of_broker(
        state,
        command,
        lambda known: None if (known.log_dirs, known.cordoned) == dirs else catalog.LogDirsChanged(*_id(known), *dirs),
    )


def _of_broker(
    state: State, command: commands.RegisteredCommand, event_of: Callable[[Broker], Event | None]
) -> Decision:
    """The decision on a command about a registered broker. `event_of` returns the event, or None if nothing changes.
    The answer to a KRaft broker has the broker's epoch."""
    known = state.cluster.brokers.get(command.broker_id)
    if known is None:
        return Decision((), (Answer(command.request_id, NO_TOPIC, int(ErrorCode.BROKER_ID_NOT_REGISTERED)),))
    if command.broker_epoch not in (None, known.broker_epoch):
        return requests.stale(command.request_id, command.topic, state.cluster, command.broker_id)
    event = event_of(known)
    answers = (Answer(command.request_id, NO_TOPIC, 0, number=known.broker_epoch),) if known.features else ()
    return Decision(() if event is None else (event,), answers)


def _id(broker: Broker) -> tuple[BrokerId, int]:
    return broker.broker_id, broker.broker_epoch


def begin_epoch(state: State, command: commands.BeginQuorumEpoch) -> Decision:
    """Starts the next leader epoch of the quorum. Without finalized features it also finalizes those of the command."""
    cluster = state.cluster
    last = cluster.quorum.leader_epoch if cluster.quorum is not None else 0
    epoch = max(last + 1, command.epoch_min)
    begun = catalog.QuorumEpochBegun(
        epoch,
        command.node_id,
        command.kraft_version,
        command.host,
        command.port,
        command.directory_id,
        command.priority,
    )
    events: list[Event] = [begun]
    if not cluster.features:
        events.append(catalog.FeaturesChanged(command.features, "initial features"))
        events += with_one_min_isr(cluster, command.features, command.request_id)
    return Decision(tuple(events))


def change_features(state: State, command: commands.ChangeFeatures) -> Decision:
    """Finalizes features. No event if they are unchanged."""
    answers = (Answer(command.request_id, command.topic, 0),)
    if command.features == state.cluster.features:
        return Decision((), answers)
    safe = with_one_min_isr(state.cluster, command.features, command.request_id)
    return Decision((catalog.FeaturesChanged(command.features, command.reason), *safe), answers)


def reconcile(state: State, command: commands.ReconcileTopics) -> Decision:
    """Brings topics in line with the live brokers. This may complete pending creates."""
    events: list[Event] = []
    answers: list[Answer] = []
    reconciliation = Reconciliation(state.cluster)
    for name in dict.fromkeys(command.topics):
        topic = topic_named(state, name)
        if topic is not None:
            settled, changes = reconciliation.reconcile(topic, "live brokers changed", command.span)
            events += changes
            if settled.ready_at_ms is None:
                completed = readiness.complete(settled, settled.propagated, state.cluster, command.at_ms)
                events += completed.events
                answers += completed.answers
    return Decision(tuple(events), tuple(answers))


def confirm(state: State, command: commands.ConfirmMetadata) -> Decision:
    """Records that brokers have applied the log up to an offset. This may complete pending creates, oldest first."""
    cluster, topics = state.cluster, state.topics
    events: list[Event] = []
    answers: list[Answer] = []
    for key in _created_between(state, command.after, command.offset):
        topic = topics.get(key)
        assert topic is not None, "what waits exists"
        confirmed = readiness.confirm(topic, command.brokers, cluster, command.at_ms)
        events += confirmed.events
        answers += confirmed.answers
    return Decision(tuple(events), tuple(answers))


def _created_between(state: State, after: int, until: int) -> list[ShardKey]:
    """Returns incomplete topics created after offset `after` and up to `until`, oldest first.

    Searches from the newest, because many old topics may be waiting for a slow broker.
    """
    keys: list[ShardKey] = []
    for key, created_offset in reversed(state.waiting.items()):
        if created_offset <= after:
            break
        if created_offset <= until:
            keys.append(key)
    keys.reverse()
    return keys


def change_settings(state: State, command: commands.ChangeSettings) -> Decision:
    """Records new settings; no event if unchanged. Raises msgspec.ValidationError for invalid ones, which is a bug:
    settings are validated before the command is submitted."""
    cluster = state.cluster
    if cluster.release and (cluster.settings_pairs, cluster.release) == (command.settings, command.release):
        return NOTHING
    settings_from_pairs(command.settings)
    before = cluster.settings_pairs if cluster.release else None
    return Decision((catalog.SettingsChanged(command.settings, command.release, before),))


def record_head(state: State, command: commands.RecordHead) -> Decision:
    """Records a signed tree head, which does not change the state."""
    signed = command.size, command.root, command.signed_at_ms, command.public_key, command.signature
    return Decision((catalog.HeadSigned(*signed),))


def expire(state: State, command: commands.ExpireRequest) -> Decision:
    """Answers a create whose deadline has passed; its topic may still become complete. Does nothing if the create is
    already answered, or if `at_ms` is before its deadline."""
    topic = topic_named(state, command.topic)
    if topic is None or topic.pending_create is None or topic.pending_create.request_id != command.request_id:
        return NOTHING
    if command.at_ms < topic.pending_create.deadline_ms:
        return NOTHING
    message = f"The topic was created, but was not complete in time: {readiness.progress_text(topic, state.cluster)}."
    return answer_pending_create(topic, ErrorCode.REQUEST_TIMED_OUT, message, command.at_ms)
