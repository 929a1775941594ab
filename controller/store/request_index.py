"""Index of clients' requests by time, principal, API, outcome and rule. `Recorder` writes it, request lists read it.

State keys of the log; INVERTED is the offset of a request's first event, inverted (`controller.store.keys`):

    h INVERTED                   the request's summary (MessagePack of `IndexedRequest`)
    f KIND VALUE NUL INVERTED    the same request under its principal, its API, an outcome of one of its topics, or a
                                 rule that refused one; empty value

A request has one `h` key, with the names of its first topics and the number of all, and an `f` key for each different
value. The `f` key has only the first characters of the value, so readers compare the request too. Counted refusals
(`RequestsRefused`) have an entry for each event. An archived segment has the keys of the requests that began in it.
When its events are dropped from the log, the log retains only the keys that changed after the segment was archived.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import merge
from itertools import chain, groupby
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from controller.machine.errors import ErrorCode
from controller.store.keys import Puts, inverted, offset_at_end, put_entries
from events import access, catalog
from events.catalog import Recorded
from events.codec import decode_event
from events.external_decision import FOLLOW
from events.logs.archive.whole_log import archived_requests
from events.logs.log import Entry, EventLog, read_one, request_offsets

REQUEST, FACET = b"h", b"f"
NAMED_MAX: Final = 10
"""The number of topics that a summary names."""
RECENT_MAX: Final = 4096
"""Number of recently changed requests in memory. The commands of a request arrive close together. So an event of BEGINS
whose request is not in memory begins a new request."""
_VALUE_CHARACTERS_MAX: Final = 200
FACETS_CACHED: Final = 1000

Kind = Literal[b"p", b"a", b"o", b"r"]
PRINCIPAL: Final[Kind] = b"p"
API: Final[Kind] = b"a"
OUTCOME: Final[Kind] = b"o"
RULE: Final[Kind] = b"r"

_encode = msgspec.msgpack.Encoder().encode


class IndexedRequest(msgspec.Struct, array_like=True, gc=False):
    """The summary of a request. `outcomes` counts its topics by status (`projections.views.requests.RequestStatus`;
    `done` for a request without topics); `rules` are the rules that refused a topic."""

    request_id: str
    requested_at_ms: int
    requested_offset: int
    newest_offset: int
    """The offset of its newest event; the summary is valid from there on."""
    principal: str
    client_id: str | None
    api: str
    topics: tuple[str, ...] = ()
    """The names of its first `NAMED_MAX` topics."""
    num_topics: int = 0
    outcomes: dict[str, int] = {}
    rules: tuple[str, ...] = ()
    rejected_offset: int = -1
    """The offset of the newest CreateRejected, whose CreateAnswered is the next event."""
    host: str = ""
    """The client's address; empty if the event has none."""
    counted: bool = False
    """True for counted refusals (`RequestsRefused`) instead of one request; `outcomes` has their number."""

    def fold(self, record: Recorded) -> None:
        """Update the summary with the next event of the request."""
        event, self.newest_offset = record.event, record.offset
        match event:
            case catalog.CreateRequested():
                self._add_topic(event.topic, "requested")
            case catalog.TopicCreated():
                self._move("requested", "waiting")
            case catalog.CreateAnswered():
                if self.rejected_offset != record.offset - 1:
                    self._move("waiting", answer_outcome(event.error_code))
            case catalog.CreateRejected():
                self.rejected_offset = record.offset
                self._add_rule(event.rule)
                self._move("requested", "rejected")
            case catalog.ChangeCarriedOut():
                if event.error_code:
                    self._refused_by_cluster()
            case catalog.ChangeRejected():
                self._add_rule(event.rule)
                self._add_topic(event.topic, "rejected")
            case catalog.PartitionsAdded() | catalog.TopicDeleted() | catalog.TopicConfigsChanged():
                self._add_topic(event.topic, CHANGES[type(event)])
            case _ if not self.num_topics:
                self.outcomes = {"done": 1}

    def _add_topic(self, topic: str, outcome: str) -> None:
        if len(self.topics) < NAMED_MAX:
            self.topics = (*self.topics, topic)
        self.num_topics += 1
        self._move("done", outcome)

    def _add_rule(self, rule: str) -> None:
        if rule not in self.rules:
            self.rules = (*self.rules, rule)

    def _refused_by_cluster(self) -> None:
        """The target cluster refused a change; all changes of a request have the same type."""
        was = next((outcome for outcome in self.outcomes if outcome != "rejected"), "")
        self._add_rule("cluster")
        self._move(was, "rejected")

    def _move(self, before: str, after: str) -> None:
        counts = self.outcomes
        counts[after] = counts.get(after, 0) + 1
        if before in counts:
            counts[before] -= 1
            if not counts[before]:
                del counts[before]


class RequestIndex:
    """Maintains the index of a log. After a failed commit the caller must create a new one."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._recent: dict[str, IndexedRequest] = {}
        self._unknown = RECENT_MAX if log.next_offset else 0
        """The number of requests still to look up in the log after a restart."""

    def changes(self, records: Iterable[Recorded], entries: Iterable[Entry]) -> Puts:
        """The state keys to write in the commit of these events."""
        puts: Puts = {}
        changed: dict[str, tuple[IndexedRequest | None, IndexedRequest]] = {}
        for record, entry in zip(records, entries, strict=True):
            request_id = entry.request_id
            if not request_id:
                if type(record.event) is access.RequestsRefused:
                    _put(puts, None, _counted(record, record.event))
                continue
            known = changed.get(request_id)
            if known is None:
                if record.cause.command == FOLLOW:
                    continue
                stored = self._known(request_id, record)
                summary = _summary_before(stored, record)
                if summary is None:
                    continue
                known = changed[request_id] = stored, summary
            known[1].fold(record)
        for request_id, (stored, summary) in changed.items():
            _put(puts, stored, summary)
            self._recent.pop(request_id, None)
            self._recent[request_id] = summary
        while len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        return puts

    def _known(self, request_id: str, record: Recorded) -> IndexedRequest | None:
        """The request before this event. Does not read the log if the event begins a new request."""
        recent = self._recent.get(request_id)
        if recent is not None:
            return recent
        if type(record.event) in BEGINS:
            if not self._unknown:
                return None
            self._unknown -= 1
        first = next(request_offsets(self._log, request_id, self._log.start_offset), None)
        return None if first is None else stored_request(self._log, first)


def stored_request(log: EventLog, first: int) -> IndexedRequest | None:
    """The summary of the request whose first event is at this offset; None if there is none."""
    key = REQUEST + inverted(first)
    value = log.get(key)
    if value is None and first < log.start_offset:
        value = next((keys.get(key) for segment, keys in archived_requests(log, first + 1) if segment <= first), None)
    return None if value is None else decode_request(value)


decode_request = msgspec.msgpack.Decoder(IndexedRequest).decode


def newest_requests(log: EventLog, end: int, facet: tuple[Kind, str] | None = None) -> Iterator[int]:
    """The offsets below `end` at which requests began, the newest first: all, or those under the index
    value `facet`, which may be outdated."""
    prefix = REQUEST if facet is None else _facet(*facet)
    reached, start = end, -1
    while start != (start := log.start_offset):  # repeat if segments were dropped meanwhile
        for key, _ in log.scan(prefix, prefix + inverted(reached)):
            if offset_at_end(key) < start:
                break
            reached = offset_at_end(key)
            yield reached
    below = min(reached, start)
    archived = (keys.scan(prefix, prefix + inverted(reached)) for _, keys in archived_requests(log, below))
    local = log.scan(prefix, prefix + inverted(below))
    both = merge(chain.from_iterable(archived), local)
    yield from (offset_at_end(key) for key, _ in groupby(key for key, _ in both))


def requests_between(log: EventLog, start: int, end: int) -> dict[bytes, bytes]:
    """The state keys of the requests that began from `start` until before `end`. Raises LogError."""
    found: dict[bytes, bytes] = {}
    for key, value in log.scan(REQUEST, REQUEST + inverted(end)):
        if offset_at_end(key) < start:
            break
        found |= facets_of(decode_request(value))
        found[key] = value
    return found


def request_until(log: EventLog, first: int, end: int) -> IndexedRequest | None:
    """The summary at `end` of the request whose first event is at an offset; None without such a request."""
    entry = stored_request(log, first)
    if entry is None or entry.newest_offset < end:
        return entry
    summary: IndexedRequest | None = None
    for offset in request_offsets(log, entry.request_id):
        if offset >= end:
            break
        record = decode_event(offset, read_one(log, offset))
        summary = summary or _summary_before(None, record)
        if summary is not None:
            summary.fold(record)
    return summary


def values_of(log: EventLog, kind: Kind) -> Iterator[str]:
    """The different values of a kind, such as all principals, in byte order."""
    prefix = FACET + kind
    key = next((key for key, _ in log.scan(prefix)), None)
    while key is not None:
        value = key[len(prefix) : -9]
        yield value.decode("utf-8", "surrogatepass")
        key = next((key for key, _ in log.scan(prefix, prefix + value + b"\1")), None)


# --- folding

CHANGES: dict[type, str] = {
    catalog.PartitionsAdded: "partitions-added",
    catalog.TopicDeleted: "deleted",
    catalog.TopicConfigsChanged: "configs-changed",
    catalog.ChangeRejected: "rejected",
}
_OF_CLUSTER = (
    access.AclsCreated,
    access.AclsDeleted,
    access.QuotasChanged,
    access.ScramCredentialSet,
    access.ScramCredentialRemoved,
    catalog.ResourceConfigsChanged,
    catalog.RulesApplied,
)
BEGINS = frozenset((catalog.CreateRequested, *CHANGES, *_OF_CLUSTER))
"""Events that begin a request."""


def _summary_before(stored: IndexedRequest | None, record: Recorded) -> IndexedRequest | None:
    """The summary to fold an event into; None if the log lacks the first event of the request."""
    if stored is not None:
        return replace(stored, outcomes=dict(stored.outcomes))
    return _begun(record) if type(record.event) in BEGINS else None


def answer_outcome(code: int) -> str:
    return "created" if code == 0 else "timed-out" if code == ErrorCode.REQUEST_TIMED_OUT else "failed"


def _begun(record: Recorded) -> IndexedRequest:
    event: Any = record.event
    request = getattr(event, "request", event)
    return IndexedRequest(
        getattr(event, "request_id", record.cause.request_id),
        record.at_ms,
        record.offset,
        record.offset,
        event.principal,
        event.client_id,
        getattr(request, "api", record.cause.command),
        host=getattr(request, "host", ""),
    )


def _counted(record: Recorded, event: access.RequestsRefused) -> IndexedRequest:
    topics = tuple(name for name in (event.resource.removeprefix("Topic:"),) if name != event.resource)
    outcomes = {"rejected": event.count}
    summary = _begun(record)
    return replace(summary, topics=topics, num_topics=len(topics), outcomes=outcomes, rules=(event.rule,), counted=True)


# --- keys


def _put(puts: Puts, before: IndexedRequest | None, entry: IndexedRequest) -> None:
    puts[REQUEST + inverted(entry.requested_offset)] = _encode(entry)
    if before is None:
        puts |= facets_of(entry)
    elif (before.outcomes.keys(), before.rules) != (entry.outcomes.keys(), entry.rules):
        put_entries(puts, facets_of(before), facets_of(entry))


def facets_of(entry: IndexedRequest) -> dict[bytes, bytes]:
    """The `f` keys of a request, with empty values."""
    at = inverted(entry.requested_offset)
    return {_facet(*one) + at: b"" for one in index_values(entry)}


def index_values(entry: IndexedRequest) -> Iterator[tuple[Kind, str]]:
    yield PRINCIPAL, entry.principal
    yield API, entry.api
    for outcome in entry.outcomes:
        yield OUTCOME, outcome
    for rule in entry.rules:
        yield RULE, rule


@lru_cache(FACETS_CACHED)
def _facet(kind: Kind, value: str) -> bytes:
    return FACET + kind + value[:_VALUE_CHARACTERS_MAX].replace("\0", " ").encode("utf-8", "surrogatepass") + b"\0"
