"""Keeps refused requests from filling the log.

What the authorizer refuses, and auto-creations that are refused (their clients send them again and again), are recorded
at once and in full the first time. Further ones like it within an interval are counted, and recorded together as one
`AsksRefused` when the interval is over. Alike are refusals of the same principal, API, resource and rule. How many
kinds one principal can have recorded in an interval is bounded too: what is beyond goes to a common count, whose
resource is `(others)`.

Refusals by rules, policies and quotas are each recorded in full, because whoever sent them may look them up, until one
principal has had so many through one API in an interval that it must be a program gone wild; from then on they are
counted in the same way.

What is kept of a refusal is short (`controller.machine.keeping`), and all of one principal through one API in an
interval takes at most `RECORDED_BYTES_MAX`: the rest is counted. So a principal that may do nothing adds to the log
some hundred events an interval for each API, and at most so many bytes, whatever it sends.

Who was not allowed a request counts as refused by the authorizer, also where another rule has the first word: Kafka
answers a name that stands twice in a request before it looks at permissions.

What it does not do: keep counts over a crash, or slow anybody down.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec.structs import asdict

from controller.access.authorizer import Requester
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.commands import AUTO_CREATION, TopicCommand
from controller.machine.decision import Decision
from controller.machine.errors import Rejection
from controller.machine.keeping import cut
from events.access import AsksRefused
from events.names import RequestId

INTERVAL_S: Final = 60.0  # counts are recorded once a minute, however many refusals there are
KINDS_MAX: Final = 50
"""Kinds of refusals of one principal through one API that are told apart in an interval."""
RECORDED_MAX: Final = 1000
"""Refusals by rules, policies and quotas of one principal through one API that are recorded in full in an interval."""
KINDS_ALTOGETHER_MAX: Final = 10_000
"""Kinds of refusals of everybody, past which principals are not told apart either."""
RECORDED_BYTES_MAX: Final = 1 << 20
"""Bytes of the events of refusals of one principal through one API that are recorded in full in an interval."""
OTHERS: Final = "(others)"
EVENTS_PER_COMMAND_MAX: Final = 500  # one command must not hold up the loop
AUTHORIZER: Final = "authorizer"
_Group = tuple[str, str]
"""Principal and API."""


_encode = msgspec.msgpack.Encoder().encode


class _Kind(msgspec.Struct, frozen=True):
    """What makes refusals alike."""

    principal: str
    api: str
    operation: str
    resource: str
    rule: str
    error_code: int


class _Count(msgspec.Struct):
    """Refusals of a kind that are not recorded yet; who and since when is of the first of them."""

    count: int = 0
    since_ms: int = 0
    client_id: str | None = None
    host: str = ""


class Stamps(Protocol):
    """The time and the ids to stamp on commands."""

    def now_ms(self) -> int: ...
    def new_request_id(self, origin: str = "") -> RequestId: ...


class RefusalRecords:
    """Records refusals by commands, which `submit_internal` puts: the first of a kind as it comes, the others after an
    interval."""

    def __init__(self, stamps: Stamps, submit_internal: Callable[[RecordRefusals], None]) -> None:
        self._stamps = stamps
        self._submit_internal = submit_internal
        self._counts = RefusalCounts(stamps.now_ms)
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def is_recorded(self, command: TopicCommand, decision: Decision) -> bool:
        """Whether the events of a refused command are to be recorded; if not, it is counted."""
        is_recorded = self._counts.is_recorded(command, decision)
        self._schedule()
        return is_recorded

    def note_denial(
        self, requester: Requester, operation: str, resource: str, code: int, rule: str = AUTHORIZER
    ) -> None:
        """Somebody was denied what leads to no command, or sent one that failed."""
        first = self._counts.is_first_look(requester, operation, resource, code, rule)
        if first is not None:
            self._record((first,))
        self._schedule()

    def stop(self) -> None:
        """Record what was counted, for the last time."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._record_counts()

    def _schedule(self) -> None:
        if self._timer is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._interval_over)

    def _interval_over(self) -> None:
        self._timer = None
        self._record_counts()
        if not self._counts.is_idle:
            self._schedule()

    def _record_counts(self) -> None:
        counted = self._counts.take()
        for start in range(0, len(counted), EVENTS_PER_COMMAND_MAX):
            self._record(counted[start : start + EVENTS_PER_COMMAND_MAX])

    def _record(self, refusals: tuple[AsksRefused, ...]) -> None:
        request_id = self._stamps.new_request_id("refusals")
        self._submit_internal(RecordRefusals(request_id=request_id, at_ms=self._stamps.now_ms(), refusals=refusals))


class RefusalCounts:
    """Counts refusals: says of each whether it is to be recorded in full, and gives what was counted."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._kinds: dict[_Kind, _Count] = {}
        self._distinct: Counter[_Group] = Counter()
        self._recorded: Counter[_Group] = Counter()
        self._bytes: Counter[_Group] = Counter()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self._kinds or self._recorded or self._bytes)

    def is_recorded(self, command: TopicCommand, decision: Decision) -> bool:
        """Whether the events of a refused command are to be recorded; if not, it is counted."""
        rejection = decision.refusal
        assert rejection is not None, "only refusals are counted"
        operation = _operation(command, rejection)
        resource = f"Topic:{command.topic}"
        kind = _kind(command, operation, resource, rejection.rule, int(rejection.code))
        group, size = _group(kind), len(_encode(decision.events))
        if not decision.events or self._bytes[group] + size > RECORDED_BYTES_MAX:
            self._count(kind, command.client_id, "")
            return False
        if rejection.rule == AUTHORIZER or command.denied or command.api == AUTO_CREATION:
            is_recorded = self._is_first(kind, command.client_id, "")
        elif self._recorded[group] < RECORDED_MAX:
            is_recorded = True
            self._recorded[group] += 1
        else:
            is_recorded = False
            self._count(kind, command.client_id, "")
        self._bytes[group] += size if is_recorded else 0
        return is_recorded

    def is_first_look(
        self, requester: Requester, operation: str, resource: str, code: int, rule: str = AUTHORIZER
    ) -> AsksRefused | None:
        """What to record at once of a look, or another request without a record of its own, that was denied; None if
        it is counted."""
        kind = _kind(requester, operation, resource, rule, code)
        if not self._is_first(kind, requester.client_id, requester.host):
            return None
        return _event(kind, _Count(1, self._clock_ms(), _cut(requester.client_id), cut(requester.host)))

    def take(self) -> tuple[AsksRefused, ...]:
        """What was counted since the last time. Kinds of which there were none are forgotten: their next is a first."""
        counted = {kind: count for kind, count in self._kinds.items() if count.count}
        self._kinds = {kind: _Count() for kind in counted}
        self._distinct = Counter(_group(kind) for kind in counted)
        self._recorded.clear()
        self._bytes.clear()
        return tuple(_event(kind, count) for kind, count in counted.items())

    def _is_first(self, kind: _Kind, client_id: str | None, host: str) -> bool:
        if kind in self._kinds or not self._has_room(kind):
            self._count(kind, client_id, host)
            return False
        self._kinds[kind] = _Count()
        self._distinct[_group(kind)] += 1
        return True

    def _count(self, kind: _Kind, client_id: str | None, host: str) -> None:
        """One more of a kind; of a common one where there are too many kinds."""
        if kind not in self._kinds:
            kind = kind if self._has_room(kind) else self._common(kind)
            self._distinct[_group(kind)] += kind not in self._kinds
        count = self._kinds.setdefault(kind, _Count())
        if not count.count:
            count.since_ms, count.client_id, count.host = self._clock_ms(), _cut(client_id), cut(host)
        count.count += 1

    def _has_room(self, kind: _Kind) -> bool:
        return len(self._kinds) < KINDS_ALTOGETHER_MAX and self._distinct[_group(kind)] < KINDS_MAX

    def _common(self, kind: _Kind) -> _Kind:
        principal = OTHERS if len(self._kinds) >= KINDS_ALTOGETHER_MAX else kind.principal
        return _Kind(principal, kind.api, kind.operation, OTHERS, kind.rule, kind.error_code)


def _kind(by: TopicCommand | Requester, operation: str, resource: str, rule: str, code: int) -> _Kind:
    return _Kind(cut(by.principal), by.api, operation, cut(resource), rule, code)


def _cut(client_id: str | None) -> str | None:
    return None if client_id is None else cut(client_id)


def _group(kind: _Kind) -> _Group:
    return kind.principal, kind.api


_OPERATIONS: Final = {
    "CreateTopics": "Create",
    "Metadata": "Create",
    "CreatePartitions": "Alter",
    "DeleteTopics": "Delete",
    "AlterConfigs": "AlterConfigs",
    "IncrementalAlterConfigs": "AlterConfigs",
}


def _operation(command: TopicCommand, rejection: Rejection) -> str:
    """What the requester may not do: for `HTTP`, which has several, the kind of command says it."""
    if rejection.rule != AUTHORIZER and not command.denied:
        return ""
    return _OPERATIONS.get(command.api) or {"CreateTopic": "Create", "DeleteTopic": "Delete"}.get(
        type(command).__name__, ""
    )


def _event(kind: _Kind, count: _Count) -> AsksRefused:
    return AsksRefused(**asdict(kind), **asdict(count))
