"""Permissions of the HTTP handlers; the same ACLs apply as over the Kafka protocol.

A topic, its events and its explanation need Describe on the topic; without it, clients cannot tell whether the topic
exists. All events, brokers and settings need Describe on the cluster.

A list examines a bounded number of names per page, so a page may end at a name that the caller may not see. Its cursor
is then encrypted, so that the cursor reveals no name. An encrypted cursor is valid only in the process that issued it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from litestar import Response

from controller.access.authorizer import Caller, Operation
from controller.controller_api import ControllerApi
from controller.http.errors import HttpRequest, refused
from controller.http.query_threads import QueryThreads
from controller.http.requests import caller_of
from controller.machine.errors import ErrorCode
from controller.machine.validation import NAME_LENGTH_MAX
from controller.store.request_index import IndexedRequest
from projections.queries.events import BadPlace
from projections.queries.query import Queries

_P = ParamSpec("_P")


class Reader(msgspec.Struct, frozen=True):
    """Permissions and queries of one caller, for the read handlers. Queries run in threads."""

    api: ControllerApi
    queries: Queries
    threads: QueryThreads
    caller: Caller = Caller()

    def of(self, request: HttpRequest) -> Reader:
        """The reader for the sender of a request."""
        return msgspec.structs.replace(self, caller=caller_of(request))

    async def answer(
        self, work: Callable[Concatenate[Queries, _P], object], *args: _P.args, **kwargs: _P.kwargs
    ) -> Response[Any]:
        """Answer with the result of a query; see `QueryThreads.answer`."""
        return await self.threads.answer(work, self.queries, *args, **kwargs)

    def allows(self, topic: str | None = None) -> bool:
        """True if the caller may describe the topic, or without a topic the cluster. A denial is not recorded."""
        return self.api.allows(self.caller, "Describe", topic)

    def require(self, topic: str | None = None, operation: Operation = "Describe") -> None:
        """Raise Refused unless the caller may do the operation on the topic, or without a topic on the cluster."""
        if self.api.grants(self.caller, operation, topic):
            return
        if topic is None:
            raise refused(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{operation} on the cluster is needed")
        raise refused(403, ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{operation} on topic {topic!r} is needed")

    async def require_request(self, request_id: str) -> None:
        """Raise Refused if the caller may not see the request; an unknown request gives the same error."""
        if not await self.may_see_request(request_id):
            self.require()

    async def may_see_request(self, request_id: str) -> bool:
        """True if the caller made the request, or may describe the cluster or every topic of the request."""
        if self.allows():
            return True
        topics, principal = await self.threads.run(_subjects_of, self.queries, request_id)
        if principal == self.caller.principal:
            return True
        return all(topic is not None and self.allows(topic) for topic in topics)

    def may_list(self, request: IndexedRequest) -> bool:
        """True if the list of requests contains this one for the caller: the rule of `may_see_request`. A request with
        more topics than the index names is listed only for its sender and for callers who may describe the cluster."""
        if request.principal == self.caller.principal or self.allows():
            return True
        is_named = 0 < request.num_topics == len(request.topics)
        return is_named and all(map(self.allows, request.topics))


def _subjects_of(queries: Queries, request_id: str) -> tuple[set[str | None], str]:
    """The topics of a request and its principal. None stands for the cluster, in place of a topic: for an event without
    a topic, and for a request that does not exist."""
    events = [record.event for part in queries.parts for record in part.request_events(request_id)]
    topics = {getattr(event, "topic", None) for event in events} or {None}
    return topics, next((event.principal for event in events if hasattr(event, "principal")), "")


MARK: Final = "~"
"""The prefix of encrypted cursors; no topic name begins with it."""


class SealedCursors:
    """Encrypts and decrypts cursors with a key that lasts as long as the process."""

    def __init__(self) -> None:
        self._fernet = Fernet(Fernet.generate_key())

    def seal(self, key: str) -> str:
        """A shard key as a cursor, padded to hide its length."""
        return MARK + self._fernet.encrypt(key.encode().ljust(NAME_LENGTH_MAX, b"\0")).decode()

    def open(self, cursor: str | None) -> str | None:
        """The name or shard key to continue after. Raises BadPlace."""
        if cursor is None or not cursor.startswith(MARK):
            return cursor
        try:
            return self._fernet.decrypt(cursor.removeprefix(MARK).encode()).rstrip(b"\0").decode()
        except (InvalidToken, UnicodeError):
            raise BadPlace("cursor: not a next_cursor of this process: start again without it") from None
