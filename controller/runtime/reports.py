"""What the controller says about itself: one log line a decision, and figures for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from events.access import ScramCredentialRemoved, ScramCredentialSet
from events.catalog import (
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ChangeCarriedOut,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreationRefused,
    FeaturesChanged,
    LogDirsChanged,
    PartitionsAdded,
    QuorumEpochBegun,
    Recorded,
    TopicConfigsChanged,
    TopicDeleted,
    TopicDiscovered,
    TopicVanished,
)

Line = dict[str, object]
Rules = dict[tuple[str, str], str]
"""The rule that rejected a create, by request and topic."""

_encode = msgspec.json.Encoder().encode


class LineSink(Protocol):
    """Where log lines go: bytes, each line with its newline."""

    def __call__(self, lines: bytes, /) -> object: ...


class Figures(Protocol):
    """What is counted and measured; see `controller.http.metrics`."""

    def committed(self, commands: int, events: int, seconds: float) -> None: ...
    def answered(self, api: str, code: int, waited_ms: int) -> None: ...
    def policy_judged(self, policy: str, outcome: str, seconds: float) -> None: ...
    def request(self, api: str, version: int, outcome: str, seconds: float) -> None: ...


class Reports:
    """Log lines for decisions, in JSON as structlog writes them elsewhere, and figures.

    Decisions are written a commit at a time: at tens of thousands of topics a second a logging call for each would cost
    more than the decision.
    """

    def __init__(self, log: Any, lines: LineSink, figures: Figures, *, decisions: bool = True) -> None:
        self.log = log
        self.figures = figures
        self._lines = lines
        self._decisions = decisions

    def committed(self, commands: int, events: int, seconds: float) -> None:
        """A commit is durable; `seconds` from its write to the end of its fsync."""
        self.figures.committed(commands, events, seconds)

    def decided(self, records: Sequence[Recorded]) -> None:
        """Events became durable: one line for each decision among them."""
        rules: Rules = {}
        out: list[bytes] = []
        for record in records:
            event: Any = record.event
            kind = type(event)
            if kind is CreateRejected:
                rules[event.request_id, event.topic] = event.rule
                continue
            if kind is CreateAnswered:
                self.figures.answered("CreateTopics", event.error_code, event.waited_ms)
            line = _LINES.get(kind)
            if line is not None and self._decisions:
                out.append(_encode(line(record, event, rules)))
        if out:
            self._lines(b"\n".join(out) + b"\n")

    def storage_failed(self, why: str) -> None:
        """The log could not be written."""
        self.log.error("storage failed", why=why)

    def storage_recovered(self, next_offset: int) -> None:
        """The log can be written again."""
        self.log.info("storage recovered", next_offset=next_offset)

    def controller_failed(self, error: BaseException) -> None:
        """A bug, or a log beyond recovery: nothing more is decided."""
        self.log.error("controller failed", why=f"{type(error).__name__}: {error}", exc_info=error)

    def policy_close_failed(self, failure: str) -> None:
        """A policy's `close` raised or did not return."""
        self.log.warning("policy close failed", why=failure)


def _create_answered(record: Recorded, event: Any, rules: Rules) -> Line:
    line = _decision(record, "CreateTopics", event)
    line["code"] = event.error_code
    line["rule"] = rules.get((event.request_id, event.topic), "")
    line["waited_ms"] = event.waited_ms
    if event.message:
        line["message"] = event.message
    return line


def _change_rejected(record: Recorded, event: Any, _: Rules) -> Line:
    line = _decision(record, event.ask, event)
    return {**line, "code": event.error_code, "rule": event.rule, "message": event.message}


def _topic_deleted(record: Recorded, event: Any, _: Rules) -> Line:
    return {**_decision(record, "DeleteTopics", event), "code": 0}


def _partitions_added(record: Recorded, event: Any, _: Rules) -> Line:
    count = event.first + len(event.partitions)
    return {**_decision(record, "CreatePartitions", event), "code": 0, "count": count}


def _configs_changed(record: Recorded, event: Any, _: Rules) -> Line:
    return {**_decision(record, "AlterConfigs", event), "code": 0}


def _of_cluster(record: Recorded, event: Any, _: Rules) -> Line:
    """What the cluster that carries decisions out did by itself, or refused."""
    line = {"at_ms": record.at_ms, "level": "info", "event": type(event).__name__, "topic": event.topic}
    line["offset"] = record.offset
    if isinstance(event, TopicDiscovered | TopicVanished):
        return {**line, "why": event.reason}
    if event.error_code:
        line["level"] = "warning"
    return {**line, "request": record.cause.request_id, "code": event.error_code, "message": event.message}


def _broker(record: Recorded, event: Any, _: Rules) -> Line:
    return {"at_ms": record.at_ms, "level": "info", "event": type(event).__name__, "broker": event.broker_id}


def _credential(record: Recorded, event: Any, _: Rules) -> Line:
    about = {
        "event": type(event).__name__,
        "user": event.user,
        "mechanism": event.mechanism,
        "principal": event.principal,
    }
    return {"at_ms": record.at_ms, "level": "info", **about, "request": event.request_id, "offset": record.offset}


def _quorum(record: Recorded, event: Any, _: Rules) -> Line:
    return {"at_ms": record.at_ms, "level": "info", "event": "QuorumEpochBegun", "epoch": event.leader_epoch}


def _features(record: Recorded, event: Any, _: Rules) -> Line:
    line: Line = {"at_ms": record.at_ms, "level": "info", "event": "FeaturesChanged", "reason": event.reason}
    return {**line, "features": dict(event.features)}


_LINES: dict[type, Callable[[Recorded, Any, Rules], Line]] = {
    CreateAnswered: _create_answered,
    ChangeRejected: _change_rejected,
    TopicDeleted: _topic_deleted,
    PartitionsAdded: _partitions_added,
    TopicConfigsChanged: _configs_changed,
    TopicDiscovered: _of_cluster,
    TopicVanished: _of_cluster,
    CreationRefused: _of_cluster,
    ChangeCarriedOut: _of_cluster,
    ScramCredentialSet: _credential,
    ScramCredentialRemoved: _credential,
    BrokerRegistered: _broker,
    BrokerFenced: _broker,
    BrokerUnfenced: _broker,
    BrokerUnregistered: _broker,
    BrokerLeaving: _broker,
    LogDirsChanged: _broker,
    QuorumEpochBegun: _quorum,
    FeaturesChanged: _features,
}


def _decision(record: Recorded, verb: str, event: Any) -> Line:
    return {
        "at_ms": record.at_ms,
        "level": "info",
        "event": "decided",
        "ask": verb,
        "request": event.request_id,
        "topic": event.topic,
        "offset": record.offset,
    }
