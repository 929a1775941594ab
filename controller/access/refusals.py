"""Limits the events that refused requests add to the log. The engine and the API handlers report each refusal here.

Similar refusals have the same principal, API, resource and rule. Refusals by the authorizer, and refused automatic
creations (which clients retry endlessly), are recorded in full the first time. Further similar refusals within an
interval are counted, and recorded as one `RequestsRefused` at its end. The number of different refusals of a principal
is limited too; the rest are counted together, with the resource `(others)`.

Refusals by rules, policies and quotas are recorded in full, because the requester may look them up. But a refusal whose
events are larger than `EVENTS_BYTES_MAX` is counted, because its request was not a serious one. The recorded refusals
of one principal through one API in an interval take at most `RECORDED_BYTES_MAX`; the rest are counted. So a principal
without permissions adds a few hundred events for each API and interval, and a limited number of bytes. The texts of
counted refusals are truncated.

A denied request counts as refused by the authorizer even if another rule answers it: Kafka checks duplicate names
before permissions.

Counts are lost in a crash. Requests are not slowed down here.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from controller.access.authorizer import Requester
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.commands import (
    AUTO_CREATION,
    AlterResourceConfigs,
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicCommand,
)
from controller.machine.decision import Decision
from controller.machine.errors import Rejection
from events.access import RequestsRefused
from events.errors import CLIENT_TEXT_MAX, shortened
from events.names import RequestId

INTERVAL_S: Final = 60.0  # counts are recorded once a minute, however many refusals there are
KINDS_MAX: Final = 50
"""Different refusals of one principal through one API in an interval."""
KINDS_ALTOGETHER_MAX: Final = 10_000
"""Different refusals of all principals; above this number the refusals of all principals are counted together."""
EVENTS_BYTES_MAX: Final = 1 << 15
"""Bytes of the events of a refusal that is recorded in full. The largest serious request takes a few kilobytes."""
RECORDED_BYTES_MAX: Final = 1 << 20
"""Bytes of events for refusals of one principal through one API that an interval records in full."""
OTHERS: Final = "(others)"
EVENTS_PER_COMMAND_MAX: Final = 500  # one command must not block the event loop for long
AUTHORIZER: Final = "authorizer"
_encode = msgspec.msgpack.Encoder().encode


class Stamps(Protocol):
    """The source of the times and request ids of commands."""

    def now_ms(self) -> int: ...

    def new_request_id(self, origin: str = "") -> RequestId:
        """A unique id; `origin` names the source of the request."""


class RefusalRecords:
    """Records refusals with internal commands: the first of several similar refusals immediately and in full, the
    others as a count after the interval."""

    def __init__(self, stamps: Stamps, submit_internal: Callable[[RecordRefusals], None]) -> None:
        self._stamps = stamps
        self._submit_internal = submit_internal
        self._kinds: dict[Hashable, RequestsRefused | None] = {}
        """Similar refusals that are not recorded yet, of each kind; None if all are."""
        self._distinct: Counter[Hashable] = Counter()
        self._bytes: Counter[Hashable] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def is_recorded(self, command: TopicCommand, decision: Decision) -> bool:
        """True if the events of a refused command must be recorded; if not, the refusal is counted."""
        self._schedule()
        rejection = decision.refusal
        assert rejection is not None, "only refusals are counted"
        operation = _operation(command, rejection)
        refused = self._refused(command, "", operation, f"Topic:{command.topic}", int(rejection.code), rejection.rule)
        group, size = _group(refused), len(_encode(decision.events))
        is_large = size > EVENTS_BYTES_MAX or self._bytes[group] + size > RECORDED_BYTES_MAX
        is_only_once = rejection.rule == AUTHORIZER or command.denied or command.api == AUTO_CREATION
        if not decision.events or is_large:
            self._count(refused)
            return False
        if is_only_once and not self._is_first(refused):
            return False
        self._bytes[group] += size
        return True

    def record_denial(
        self, requester: Requester, operation: str, resource: str, code: int, rule: str = AUTHORIZER
    ) -> None:
        """Records or counts the refusal of a request that leads to no command."""
        self._schedule()
        refused = self._refused(requester, requester.host, operation, resource, code, rule)
        if self._is_first(refused):
            self._record((refused,))

    def stop(self) -> None:
        """Records all counts and stops."""
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
        if self._kinds or self._bytes:
            self._schedule()

    def _record_counts(self) -> None:
        counted = self.take()
        for start in range(0, len(counted), EVENTS_PER_COMMAND_MAX):
            self._record(counted[start : start + EVENTS_PER_COMMAND_MAX])

    def _record(self, refusals: tuple[RequestsRefused, ...]) -> None:
        request_id = self._stamps.new_request_id("refusals")
        self._submit_internal(RecordRefusals(request_id=request_id, at_ms=self._stamps.now_ms(), refusals=refusals))

    def take(self) -> tuple[RequestsRefused, ...]:
        """Returns the counts of the interval. Kinds without any are dropped."""
        counted = {kind: each for kind, each in self._kinds.items() if each is not None}
        self._kinds = dict.fromkeys(counted)
        self._distinct = Counter(map(_group, counted.values()))
        self._bytes.clear()
        return tuple(counted.values())

    def _refused(
        self, by: TopicCommand | Requester, host: str, operation: str, resource: str, code: int, rule: str
    ) -> RequestsRefused:
        return RequestsRefused(
            principal=_truncated(by.principal),
            client_id=by.client_id and _truncated(by.client_id),
            host=_truncated(host),
            api=by.api,
            operation=operation,
            resource=_truncated(resource),
            error_code=code,
            rule=rule,
            count=1,
            since_ms=self._stamps.now_ms(),
        )

    def _is_first(self, refused: RequestsRefused) -> bool:
        if _kind(refused) in self._kinds or not self._has_room(refused):
            self._count(refused)
            return False
        self._kinds[_kind(refused)] = None
        self._distinct[_group(refused)] += 1
        return True

    def _count(self, refused: RequestsRefused) -> None:
        """Counts a refusal, with others of all kinds if there are too many kinds."""
        if _kind(refused) not in self._kinds:
            if not self._has_room(refused):
                principal = OTHERS if len(self._kinds) >= KINDS_ALTOGETHER_MAX else refused.principal
                refused = replace(refused, principal=principal, resource=OTHERS)
            self._distinct[_group(refused)] += _kind(refused) not in self._kinds
        known = self._kinds.get(_kind(refused))
        self._kinds[_kind(refused)] = refused if known is None else replace(known, count=known.count + 1)

    def _has_room(self, refused: RequestsRefused) -> bool:
        return len(self._kinds) < KINDS_ALTOGETHER_MAX and self._distinct[_group(refused)] < KINDS_MAX


def _kind(refused: RequestsRefused) -> Hashable:
    """Equal for similar refusals."""
    return *_group(refused), refused.operation, refused.resource, refused.rule, refused.error_code


def _group(refused: RequestsRefused) -> tuple[str, str]:
    return refused.principal, refused.api


def _truncated(text: str) -> str:
    return shortened(text, CLIENT_TEXT_MAX)


_OPERATIONS: Final[dict[type, str]] = {
    CreateTopic: "Create",
    CreatePartitions: "Alter",
    DeleteTopic: "Delete",
    AlterTopicConfigs: "AlterConfigs",
    AlterResourceConfigs: "AlterConfigs",
}


def _operation(command: TopicCommand, rejection: Rejection) -> str:
    is_denied = rejection.rule == AUTHORIZER or command.denied
    return _OPERATIONS.get(type(command), "") if is_denied else ""
