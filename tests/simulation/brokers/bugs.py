"""Bugs planted in the controller of Kafka brokers. The simulator must find each; the last was once a real bug."""

from typing import Any, Final

from msgspec.structs import replace

from controller.brokers.kraft.membership import Membership
from controller.engine.tasks import Reconciler
from controller.machine.commands.commands import CreateTopic
from controller.machine.partitions import changes, requests
from controller.machine.partitions.changes import Reconciliation
from controller.machine.rules import judging
from events.names import NO_LEADER
from tests.simulation.planting import Bugs


def _nothing(*_: object) -> None:
    return None


def _of_any_epoch(partition: Any, broker_id: Any, report: Any, cluster: Any) -> Any:
    newest = replace(report, partition_epoch=partition.partition_epoch, leader_epoch=partition.leader_epoch)
    return _refusal(partition, broker_id, newest, cluster)


_refusal = requests.refusal


def _any_incarnation(membership: Membership, broker_id: Any, epoch: int) -> Any:
    return membership.cluster.brokers.get(broker_id)


def _reconciled_without_leader(self: Any, partition: Any, min_isr: int) -> bool:
    if partition.leader == NO_LEADER:
        return not any(map(self._cluster.is_live, partition.replicas))
    return _is_reconciled(self, partition, min_isr)


_is_reconciled = Reconciliation._is_reconciled

_judge_decision = judging.judge_decision


def _creates_alone_judged(rules: Any, state: Any, command: Any, *others: Any) -> Any:
    return _judge_decision(rules, state, command, *others) if isinstance(command, CreateTopic) else judging.ALLOWED


BUGS: Final[Bugs] = {
    "a fenced broker stays leader": [(Reconciler, "on_events", _nothing)],
    "an outdated report of an in-sync set counts": [(requests, "refusal", _of_any_epoch)],
    "a report of a broker's old incarnation counts": [(requests, "stale", lambda *_: None)],
    "a replica that is not in sync is elected without unclean election": [
        (changes, "allows_unclean_election", lambda *_: True)
    ],
    "a heartbeat of an old incarnation counts": [(Membership, "broker", _any_incarnation)],
    "every restart of a broker counts as clean": [(Membership, "shut_down_cleanly", lambda *_: True)],
    "rules do not apply to new partitions": [(judging, "judge_decision", _creates_alone_judged)],
    "a replica of a leaderless partition stays eligible after an unclean restart": [
        (Reconciliation, "_is_reconciled", _reconciled_without_leader)
    ],
}
