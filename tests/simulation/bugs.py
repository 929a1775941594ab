"""Bugs planted in the one-process controller or in its log. The simulator must find each of them."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from controller.engine.requests import Stamps
from controller.engine.tasks import ApprovalExpiry, Deadlines, Reconciler
from controller.machine import apply
from controller.machine.state import Cluster
from controller.store import keys, store
from events.catalog import ApprovalDecided, Recorded, RulesApplied
from events.logs.log import EventLog
from events.names import ShardKey
from tests.simulation.faulty_log import FaultyLog
from tests.simulation.planting import Bugs


async def _answered_before_the_sync(log: FaultyLog) -> int:
    return int(log.next_offset)


def _forget_pending_creates(deadlines: Deadlines, waiting: Iterable[ShardKey]) -> None:
    _begin(deadlines, ())


_begin = Deadlines.begin


def _wall_clock_ms(stamps: Stamps, at_least_ms: int = 0) -> int:
    return stamps._clock_ms()


def _with_the_rules_before(cluster: Cluster, record: Recorded) -> Cluster:
    after = _apply_cluster(cluster, record)
    if not isinstance(record.event, RulesApplied) or after.rules is None:
        return after
    return replace(after, rules=replace(after.rules, text="" if cluster.rules is None else cluster.rules.text))


_apply_cluster = apply.apply_cluster


def _nothing(*_: object) -> None:
    return None


def _without_held(log: EventLog, cluster: Cluster) -> Cluster:
    return replace(_stored_access(log, cluster), held={})


_stored_access = keys.stored_access


def _still_held(cluster: Cluster, record: Recorded) -> Cluster:
    is_done = isinstance(record.event, ApprovalDecided) and record.event.outcome == "approved"
    return cluster if is_done else _apply_cluster(cluster, record)


BUGS: Final[Bugs] = {
    "clients are answered before the log is synced": [(FaultyLog, "flushed", _answered_before_the_sync)],
    "pending creates are forgotten at a restart": [(Deadlines, "begin", _forget_pending_creates)],
    "placeholders are not filled when a broker joins": [(Reconciler, "on_events", _nothing)],
    "decisions use the rules before the last version": [(apply, "apply_cluster", _with_the_rules_before)],
    "held requests are forgotten at a restart": [(store, "stored_access", _without_held)],
    "held requests do not expire": [(ApprovalExpiry, "begin", _nothing)],
    "an approved request can be approved again": [(apply, "apply_cluster", _still_held)],
    "the log's time goes back with the clock": [(Stamps, "now_ms", _wall_clock_ms)],
}
