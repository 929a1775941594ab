"""Deciding on what only real brokers and their controller know: epochs of the quorum, features, leaving, log dirs."""

from __future__ import annotations

from controller.machine.commands import BeginQuorumEpoch, BeginShutdown, ChangeFeatures, ChangeLogDirs
from controller.machine.decision import NOTHING, Decision
from controller.machine.resource_configs import with_one_min_isr
from controller.machine.state import State
from events.catalog import BrokerLeaving, Event, FeaturesChanged, LogDirsChanged, QuorumEpochBegun


def begin_epoch(state: State, command: BeginQuorumEpoch) -> Decision:
    """The controller leads in the next epoch. A log without features gets those of the command."""
    cluster = state.cluster
    last = cluster.quorum.leader_epoch if cluster.quorum is not None else 0
    epoch = max(last + 1, command.epoch_min)
    begun = QuorumEpochBegun(
        epoch, command.node_id, command.kraft_version, command.host, command.port, command.directory_id
    )
    events: list[Event] = [begun]
    if not cluster.features:
        events.append(FeaturesChanged(command.features, "the cluster's first"))
        events += with_one_min_isr(cluster, command.features, command.request_id)
    return Decision(tuple(events))


def change_features(state: State, command: ChangeFeatures) -> Decision:
    """The finalized features from here on; nothing if they are."""
    if command.features == state.cluster.features:
        return NOTHING
    safe = with_one_min_isr(state.cluster, command.features, command.request_id)
    return Decision((FeaturesChanged(command.features, command.reason), *safe))


def begin_shutdown(state: State, command: BeginShutdown) -> Decision:
    """A live broker leaves: it is not to lead any more. Its topics are looked at by `review`."""
    known = state.cluster.brokers.get(command.broker_id)
    if known is None or known.fenced or known.leaving:
        return NOTHING
    return Decision((BrokerLeaving(command.broker_id, known.broker_epoch),))


def change_log_dirs(state: State, command: ChangeLogDirs) -> Decision:
    """Other log directories of a broker are online. Its topics are looked at by `review`."""
    known = state.cluster.brokers.get(command.broker_id)
    if known is None or known.log_dirs == command.log_dirs:
        return NOTHING
    return Decision((LogDirsChanged(command.broker_id, known.broker_epoch, command.log_dirs),))
