"""Where the query commands get their answers: a running service over HTTP. `folder` has the other source.

Both give the structs of `projections.views.json_types`, so what is printed does not depend on where it came from.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from typing import Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from controller.cli.sources.http_access import Access, HttpAddress
from events.logs.heads import Head
from events.logs.proofs import Proof
from projections.queries.proving import LEAVES_MAX, Consistency, Leaves, ProofRequest
from projections.views import json_types, overview_types
from projections.views.overview_types import DifferenceView

ANSWERED_WITHIN_S = 60.0
"""The service gives a sign of life every 10 s while events are followed."""

_ANSWER_BYTES_MAX = 256 << 20
"""More than a topic of a million partitions takes. A service may lie, for example the one that `verify` looks at."""
_PIECE_BYTES = 1 << 20

_T = TypeVar("_T")


class SourceError(Exception):
    """The source cannot be read; the message says what to do."""


class Refusal(Exception):
    """The source's answer is an error, with the HTTP status that goes with it."""

    def __init__(self, status: int, error: json_types.ErrorView) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


class Create(msgspec.Struct, frozen=True, omit_defaults=True):
    """A create, as the body of `POST /topics`; counts of -1 stand for the cluster's defaults."""

    name: str
    configs: dict[str, str]
    num_partitions: int = -1
    replication_factor: int = -1
    timeout_ms: int | None = None


class Which(msgspec.Struct, frozen=True):
    """Which events: all, or those of a topic, of a request, of a partition where the log has several, of a type; up to
    a moment."""

    topic: str | None = None
    request_id: str | None = None
    partition: int | None = None
    kind: str | None = None
    at: str | None = None

    @property
    def parameters(self) -> dict[str, object]:
        """The same over HTTP."""
        of = {"topic": self.topic, "request": self.request_id, "partition": self.partition}
        return {**of, "type": self.kind, "at": self.at}


class WhichRequests(msgspec.Struct, frozen=True):
    """Which requests: all, or those with each of the values that are given; as of a moment."""

    principal: str | None = None
    outcome: str | None = None
    rule: str | None = None
    api: str | None = None
    host: str | None = None
    since: str | None = None
    until: str | None = None
    at: str | None = None

    @property
    def parameters(self) -> dict[str, object]:
        """The same over HTTP."""
        filters = {"principal": self.principal, "outcome": self.outcome, "rule": self.rule, "api": self.api}
        return {**filters, "host": self.host, "from": self.since, "to": self.until, "at": self.at}


class Source(Protocol):
    """What the query commands need. Every method raises Refusal and SourceError."""

    @property
    def archive_files(self) -> int:
        """How many files of the log's archive were fetched for the answers so far."""
        ...

    def topics(self, after: str | None, limit: int, at: str | None) -> json_types.TopicsView:
        """At most `limit` topics whose names come after `after`, as of a moment."""
        ...

    def topic(self, name: str, at: str | None) -> json_types.TopicView:
        """One topic as of a moment."""
        ...

    def requests(self, which: WhichRequests, limit: int, cursor: str | None = None) -> overview_types.RequestsView:
        """At most `limit` requests, the newest first, or from where `cursor` of an earlier answer says."""
        ...

    def request(self, request_id: str, at: str | None = None) -> json_types.RequestView:
        """One request with the outcome of each of its topics, as of a moment."""
        ...

    def diff(self, since: str, until: str | None, limit: int, cursor: str | None = None) -> DifferenceView:
        """What is different between two moments (None: now), at most `limit` topics of it."""
        ...

    def brokers(self, at: str | None) -> json_types.BrokersView:
        """The brokers and the settings that decide, as of a moment."""
        ...

    def dry_run(self, create: Create) -> json_types.CreatedView:
        """The outcome that a create would have; nothing is written."""
        ...

    def create(self, create: Create) -> json_types.CreatedView:
        """Create a topic; what it has got."""
        ...

    def delete(self, name: str) -> json_types.DeletedView:
        """Delete a topic."""
        ...

    def change(self, name: str, change: Mapping[str, object]) -> None:
        """Change configs of a topic, or how many partitions it has: the body of `PATCH /topics/NAME`."""
        ...

    def events(
        self, start: int, limit: int, which: Which, cursor: str | None = None, *, newest: bool = False
    ) -> json_types.EventsView:
        """At most `limit` events from offset `start` on, or from where `cursor` of an earlier answer says; with
        `newest` the newest first, wherever `start` is."""
        ...

    def follow(self, start: int | None, which: Which) -> Iterator[json_types.EventView]:
        """Events from offset `start` on (None: those that come from now on), and each new one as it is written; ends
        only by an error."""
        ...

    def proof(self, wanted: ProofRequest) -> Proof:
        """That events are in the log."""
        ...

    def explain(self, subject: str, at: str | None) -> json_types.ExplanationView:
        """The chain of events of a topic or a request up to a moment, in words."""
        ...


class HttpSource:
    """Answers questions by asking a running service over HTTP."""

    def __init__(self, address: HttpAddress, access: Access | None = None, within_s: float = ANSWERED_WITHIN_S) -> None:
        """Prepare a connection; it opens with the first question. Raises AccessError."""
        access = access or Access()
        self._address = str(address)
        self._headers = access.headers
        self._connection = access.connection(address, within_s)
        self._fetched = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def archive_files(self) -> int:
        """As `Source` has it."""
        return self._fetched

    def topics(self, after: str | None, limit: int, at: str | None) -> json_types.TopicsView:
        return self._get(json_types.TopicsView, "/topics", after=after, limit=limit, at=at)

    def topic(self, name: str, at: str | None) -> json_types.TopicView:
        return self._get(json_types.TopicView, f"/topics/{quote(name, safe='')}", at=at)

    def requests(self, which: WhichRequests, limit: int, cursor: str | None = None) -> overview_types.RequestsView:
        return self._get(overview_types.RequestsView, "/v1/requests", limit=limit, cursor=cursor, **which.parameters)

    def request(self, request_id: str, at: str | None = None) -> json_types.RequestView:
        return self._get(json_types.RequestView, f"/requests/{quote(request_id, safe='')}", at=at)

    def diff(self, since: str, until: str | None, limit: int, cursor: str | None = None) -> DifferenceView:
        parameters = {"from": since, "to": until, "limit": limit, "cursor": cursor}
        return self._get(DifferenceView, "/v1/diff", **parameters)

    def brokers(self, at: str | None) -> json_types.BrokersView:
        return self._get(json_types.BrokersView, "/brokers", at=at)

    def dry_run(self, create: Create) -> json_types.CreatedView:
        answer = self._send("POST", "/topics?validate_only=true", msgspec.json.encode(create))
        return self._decoded(answer, json_types.CreatedView)

    def create(self, create: Create) -> json_types.CreatedView:
        answer = self._send("POST", "/topics", msgspec.json.encode(create))
        return self._decoded(answer, json_types.CreatedView)

    def delete(self, name: str) -> json_types.DeletedView:
        return self._decoded(self._send("DELETE", f"/topics/{quote(name, safe='')}"), json_types.DeletedView)

    def change(self, name: str, change: Mapping[str, object]) -> None:
        answer = self._send("PATCH", f"/v1/topics/{quote(name, safe='')}", msgspec.json.encode(change))
        self._decoded(answer, dict[str, object])

    def events(
        self, start: int, limit: int, which: Which, cursor: str | None = None, *, newest: bool = False
    ) -> json_types.EventsView:
        parameters: dict[str, object] = {"from": start if cursor is None else None, "cursor": cursor, "limit": limit}
        if newest:
            parameters |= {"from": None, "order": "newest"}
        return self._get(json_types.EventsView, "/v1/events", **parameters, **which.parameters)

    def follow(self, start: int | None, which: Which) -> Iterator[json_types.EventView]:
        """As `Source` has it. Raises SourceError when the service stops too."""
        path = _with_parameters("/events/follow", {"from": start, **which.parameters})
        answer = self._send("GET", path)
        if answer.status != 200:
            self._decoded(answer, json_types.EventView)
        decode = msgspec.json.Decoder(json_types.EventView).decode
        try:
            while line := answer.readline(_ANSWER_BYTES_MAX + 1):
                if len(line) > _ANSWER_BYTES_MAX:
                    raise self._too_long()
                if line.strip():
                    yield decode(line)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        raise SourceError(f"the service at {self._address} has stopped")

    def explain(self, subject: str, at: str | None) -> json_types.ExplanationView:
        return self._get(json_types.ExplanationView, f"/explain/{quote(subject, safe='')}", at=at)

    def proof(self, wanted: ProofRequest) -> Proof:
        """As `Source` has it, by a head that is signed where the service has a key."""
        parameters = {
            "offset": wanted.offset,
            "topic": wanted.topic,
            "request": wanted.request_id,
            "from": wanted.start,
            "limit": wanted.limit,
            "partition": wanted.partition,
            "size": wanted.size,
        }
        return self._get(Proof, "/log/proof", **parameters)

    def head(self, partition: int | None) -> Head:
        """The head of the log."""
        return self._get(Consistency, "/log/head", partition=partition).head

    def leaves(self, start: int, partition: int | None) -> Leaves:
        """A page of the log's events from an offset on, as they are hashed."""
        return self._get(Leaves, "/log/leaves", **{"from": start, "limit": LEAVES_MAX, "partition": partition})

    def _get(self, shape: type[_T], path: str, **parameters: object) -> _T:
        return self._decoded(self._send("GET", _with_parameters(path, parameters)), shape)

    def _send(self, method: str, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
        headers = {
            "User-Agent": "topicwright",
            **self._headers,
            **({"Content-Type": "application/json"} if body else {}),
        }
        try:
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _decoded(self, answer: http.client.HTTPResponse, shape: type[_T]) -> _T:
        try:
            body = bytearray()
            while piece := answer.read(_PIECE_BYTES):
                body += piece
                if len(body) > _ANSWER_BYTES_MAX:
                    raise self._too_long()
            if answer.length:
                raise http.client.IncompleteRead(bytes(body), answer.length)
            self._fetched += int(answer.headers.get("topicwright-archive", "0"))
            if answer.status >= 400:
                raise Refusal(answer.status, msgspec.json.decode(body, type=json_types.ErrorView))
            return msgspec.json.decode(body, type=shape)
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors, as is that of a header
            raise SourceError(f"what answers at {self._address} is not Topicwright's HTTP: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _too_long(self) -> SourceError:
        return SourceError(f"the service at {self._address} sends more than {_ANSWER_BYTES_MAX} bytes in an answer")

    def _unreachable(self, error: Exception) -> SourceError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SourceError(
            f"no answer from a service at {self._address} ({why}): name the address of a running one with "
            "--http HOST:PORT, or the folder of a stopped one with --data DIR"
        )


def _with_parameters(path: str, parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
