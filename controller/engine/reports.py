"""Turns durable events into log lines, one for each decision, and counts commits and answers in the metrics. The engine
(`group_commit`) and the workers call `Reports` after each commit."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from controller.brokers.port import EventTypes
from controller.machine.rules.judging import FAILED
from controller.policy.chain import PolicyJudge
from events import access, catalog
from events.catalog import Recorded
from events.names import Offset
from projections.text.points_in_time import iso

Line = dict[str, object]
Rules = dict[tuple[str, str], str]
"""The name of the rule that rejected a create, by request id and topic."""
MakeLine = Callable[[Recorded, Any, Rules], Line]

POLICIES_CLOSE_S = 1.0
_encode = msgspec.json.Encoder().encode


class Figures(Protocol):
    """Port of the metrics, implemented by `controller.http.metrics`."""

    def committed(self, commands: int, events: int, seconds: float) -> None:
        """Count a durable commit; `seconds` is the time from write to the end of the fsync."""

    def answered(self, api: str, code: int, waited_ms: int) -> None: ...
    def command_failed(self, command: str) -> None: ...
    def rules_failed(self, count: int) -> None: ...


def _decision(record: Recorded, api: str, event: Any, more: Line) -> Line:
    line = {"at": iso(record.at_ms), "level": "info", "event": "decided", "api": api}
    return {**line, "request": event.request_id, "topic": event.topic, "offset": record.offset, **more}


def _create_answered(record: Recorded, event: catalog.CreateAnswered, rules: Rules) -> Line:
    rule = rules.get((event.request_id, event.topic), "")
    more: Line = {"code": event.error_code, "rule": rule, "waited_ms": event.waited_ms}
    return _decision(record, "CreateTopics", event, {**more, "message": event.message} if event.message else more)


def _change_rejected(record: Recorded, event: catalog.ChangeRejected, _: Rules) -> Line:
    more: Line = {"code": event.error_code, "rule": event.rule, "message": event.message}
    return _decision(record, event.request.api, event, more)


def _partitions_added(record: Recorded, event: catalog.PartitionsAdded, _: Rules) -> Line:
    return _decision(record, "CreatePartitions", event, {"code": 0, "count": event.first + len(event.partitions)})


def _done(api: str) -> MakeLine:
    return lambda record, event, _: _decision(record, api, event, {"code": 0})


def _happened(**fields: str) -> MakeLine:
    """A line named after the event's type; `fields` maps its keys to attributes of the event."""

    def line(record: Recorded, event: Any, _: Rules) -> Line:
        more = {key: getattr(event, attribute) for key, attribute in fields.items()}
        level = "warning" if more.get("code") else "info"
        head = {"at": iso(record.at_ms), "level": level, "event": type(event).__name__}
        return {**head, "request": record.cause.request_id, "offset": record.offset, **more}

    return line


def _features_changed(record: Recorded, event: catalog.FeaturesChanged, rules: Rules) -> Line:
    return {**_happened(reason="reason")(record, event, rules), "features": dict(event.features)}


_carried_out = _happened(topic="topic", code="error_code", message="message")
_credential = _happened(user="user", mechanism="mechanism", principal="principal")
_LINES: dict[type, MakeLine] = {
    catalog.CreateAnswered: _create_answered,
    catalog.ChangeRejected: _change_rejected,
    catalog.TopicDeleted: _done("DeleteTopics"),
    catalog.PartitionsAdded: _partitions_added,
    catalog.TopicConfigsChanged: _done("AlterConfigs"),
    **dict.fromkeys((catalog.TopicDiscovered, catalog.TopicVanished), _happened(topic="topic", why="reason")),
    **dict.fromkeys((catalog.CreationRefused, catalog.ChangeCarriedOut), _carried_out),
    **dict.fromkeys((access.ScramCredentialSet, access.ScramCredentialRemoved), _credential),
    **dict.fromkeys(catalog.BROKER_EVENTS, _happened(broker="broker_id")),
    catalog.QuorumEpochBegun: _happened(epoch="leader_epoch"),
    catalog.FeaturesChanged: _features_changed,
}


def _failed_rules(event: catalog.Event) -> int:
    """The number of changes on which expressions of rules failed."""
    if isinstance(event, catalog.RulesObserved):
        return sum(one.rule.endswith(FAILED) for one in (*event.warned, *event.observed))
    if isinstance(event, catalog.CreateRejected | catalog.ChangeRejected | access.RequestsRefused):
        return event.rule.endswith(FAILED) * getattr(event, "count", 1)
    return 0


class Reports:
    """Writes log lines of decisions, in the JSON that structlog writes elsewhere, and metrics.

    The lines of one commit are written together: a logging call for each would cost more than the decision.
    """

    handles: EventTypes = frozenset({*_LINES, catalog.CreateRejected, catalog.RulesObserved, access.RequestsRefused})

    def __init__(self, log: Any, lines: Callable[[bytes], object], figures: Figures, *, decisions: bool = True) -> None:
        """`lines` writes log lines as bytes, each with a newline."""
        self.log = log
        self.figures = figures
        self._lines = lines
        self._decisions = decisions

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        rules: Rules = {}
        out: list[bytes] = []
        for record in records:
            event = record.event
            if failed := _failed_rules(event):
                self.figures.rules_failed(failed)
            if isinstance(event, catalog.CreateRejected):
                rules[event.request_id, event.topic] = event.rule
            if type(event) not in _LINES:
                continue
            if isinstance(event, catalog.CreateAnswered):
                self.figures.answered("CreateTopics", event.error_code, event.waited_ms)
            if self._decisions:
                out.append(_encode(_LINES[type(event)](record, event, rules)))
        if out:
            self._lines(b"\n".join(out) + b"\n")

    async def close_policies(self, policies: PolicyJudge | None) -> None:
        """Close the policies, and log their errors. Policies that hang do not prevent the process from ending."""
        for failure in () if policies is None else await policies.close(POLICIES_CLOSE_S):
            self.log.warning("policy close failed", why=failure)
