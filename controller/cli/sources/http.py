"""Where the query commands get their answers: a running service over HTTP. `folder` has the other source.

Both give the structs of `projections.shown.json_types`, so what is printed does not depend on where it came from.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from typing import Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from controller.cli.sources.http_access import Access, HttpAddress
from events.logs.proofs import Proof
from projections.queries.proving import LEAVES_MAX, Consistency, Leaves, Wanted
from projections.shown import json_types

ANSWERED_WITHIN_S = 60.0
"""The service gives a sign of life every 10 s while events are followed."""

_T = TypeVar("_T")


class SourceError(Exception):
    """The source cannot be read; the message says what to do."""


class Refusal(Exception):
    """The source's answer is an error, with the HTTP status that goes with it."""

    def __init__(self, status: int, error: json_types.ErrorShape) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


class DryRun(msgspec.Struct, frozen=True):
    """A create to try, as the body of `POST /topics`; counts of -1 stand for the cluster's defaults."""

    name: str
    configs: dict[str, str]
    num_partitions: int = -1
    replication_factor: int = -1


class Which(msgspec.Struct, frozen=True):
    """Which events: all, or those of a topic, of a request, or of a partition where the log has several."""

    topic: str | None = None
    request_id: str | None = None
    partition: int | None = None

    @property
    def parameters(self) -> dict[str, object]:
        """The same over HTTP."""
        return {"topic": self.topic, "request": self.request_id, "partition": self.partition}


class Source(Protocol):
    """What the query commands need. Every method raises Refusal and SourceError."""

    def topics(self, after: str | None, limit: int, at: str | None) -> json_types.TopicsShape:
        """At most `limit` topics whose names come after `after`, as of a moment."""
        ...

    def topic(self, name: str, at: str | None) -> json_types.TopicShape:
        """One topic as of a moment."""
        ...

    def dry_run(self, create: DryRun) -> json_types.CreatedShape:
        """The outcome that a create would have; nothing is written."""
        ...

    def events(self, start: int, limit: int, which: Which, cursor: str | None = None) -> json_types.EventsShape:
        """At most `limit` events from offset `start` on, or from where `cursor` of an earlier answer says."""
        ...

    def follow(self, start: int | None, which: Which) -> Iterator[json_types.EventShape]:
        """Events from offset `start` on (None: those that come from now on), and each new one as it is written; ends
        only by an error."""
        ...

    def proof(self, wanted: Wanted) -> Proof:
        """That events are in the log."""
        ...

    def explain(self, subject: str) -> json_types.ExplanationShape:
        """The chain of events of a topic or a request, in words."""
        ...


class HttpSource:
    """Answers questions by asking a running service over HTTP."""

    def __init__(self, address: HttpAddress, access: Access | None = None) -> None:
        """Prepare a connection; it opens with the first question. Raises AccessError."""
        access = access or Access()
        self._address = str(address)
        self._headers = access.headers
        self._connection = access.connection(address, ANSWERED_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def topics(self, after: str | None, limit: int, at: str | None) -> json_types.TopicsShape:
        return self._get(json_types.TopicsShape, "/topics", after=after, limit=limit, at=at)

    def topic(self, name: str, at: str | None) -> json_types.TopicShape:
        return self._get(json_types.TopicShape, f"/topics/{quote(name, safe='')}", at=at)

    def dry_run(self, create: DryRun) -> json_types.CreatedShape:
        answer = self._send("POST", "/topics?validate_only=true", msgspec.json.encode(create))
        return self._decoded(answer, json_types.CreatedShape)

    def events(self, start: int, limit: int, which: Which, cursor: str | None = None) -> json_types.EventsShape:
        parameters = {"from": start if cursor is None else None, "cursor": cursor, "limit": limit}
        return self._get(json_types.EventsShape, "/events", **parameters, **which.parameters)

    def follow(self, start: int | None, which: Which) -> Iterator[json_types.EventShape]:
        """As `Source` has it. Raises SourceError when the service stops too."""
        path = _with_parameters("/events/follow", {"from": start, **which.parameters})
        answer = self._send("GET", path)
        if answer.status != 200:
            self._decoded(answer, json_types.EventShape)
        decode = msgspec.json.Decoder(json_types.EventShape).decode
        try:
            while line := answer.readline():
                if line.strip():
                    yield decode(line)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        raise SourceError(f"the service at {self._address} has stopped")

    def explain(self, subject: str) -> json_types.ExplanationShape:
        return self._get(json_types.ExplanationShape, f"/explain/{quote(subject, safe='')}")

    def proof(self, wanted: Wanted) -> Proof:
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

    def head(self, partition: int | None, since: int | None) -> Consistency:
        """The head of the log, and that it goes on from its first `since` events."""
        return self._get(Consistency, "/log/head", partition=partition, since=since)

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
            body = answer.read()
            if answer.status >= 400:
                raise Refusal(answer.status, msgspec.json.decode(body, type=json_types.ErrorShape))
            return msgspec.json.decode(body, type=shape)
        except msgspec.DecodeError as error:
            raise SourceError(f"what answers at {self._address} is not Topicwright's HTTP: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> SourceError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SourceError(
            f"no answer from a service at {self._address} ({why}): name the address of a running one with "
            "--http HOST:PORT, or the folder of a stopped one with --data DIR"
        )


def _with_parameters(path: str, parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
