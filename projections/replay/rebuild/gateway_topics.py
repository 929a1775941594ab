"""The topics of a gateway, as it shows them over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import msgspec

from controller.machine.state import Topic
from events.catalog import Partition
from events.names import BrokerId, Offset, TopicId, TopicName
from projections.replay.errors import ReplayError
from projections.text.names import topic_id_bytes

_ADDRESS = re.compile(r"(?:http://)?(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]+):(\d{1,5})/?")
_WITHIN_S = 30.0
_PAGE = 1000
_NOT_FOUND, _DONE = 404, 200


class Shown(msgspec.Struct, frozen=True):
    """A topic as a gateway shows it, with the offset, in its log partition, of the newest event that this counts."""

    topic: Topic
    as_of: int


class GatewayTopics:
    """Asks one gateway. Everything raises ReplayError: it does not answer, or not as a gateway does."""

    def __init__(self, address: str) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise ReplayError(f"--http {address} is not HOST:PORT")
        self._address = f"{found[1]}:{found[2]}"
        self._connection = HTTPConnection(found[1].strip("[]"), int(found[2]), timeout=_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def all(self) -> Iterator[Shown]:
        """All topics there are; those that come or go meanwhile may be among them."""
        after: str | None = None
        while True:
            query = {"limit": str(_PAGE)} | ({} if after is None else {"after": after})
            page = self._got(f"/v1/topics?{urlencode(query)}")
            if page is None:
                raise self._strange("there are no topics to ask for")
            for summary in page["topics"]:
                shown = self.one(summary["name"])
                if shown is not None:
                    yield shown
            after = page["next_after"]
            if after is None:
                return

    def one(self, name: str) -> Shown | None:
        """One topic, None if it is not there."""
        found = self._got(f"/v1/topics/{quote(name, safe='')}")
        try:
            return None if found is None else _shown(found)
        except (KeyError, TypeError, ValueError) as error:
            raise self._strange(f"topic {name} is shown without {error}") from None

    def _got(self, path: str) -> Any:
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise ReplayError(f"the gateway at {self._address} does not answer: {error}") from None
        if answer.status == _NOT_FOUND:
            return None
        try:
            reply = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise self._strange(f"it answers {path} with {answer.status}, and no JSON") from None
        if answer.status != _DONE:
            raise self._strange(f"it answers {path} with {answer.status}: {reply}")
        return reply

    def _strange(self, why: str) -> ReplayError:
        return ReplayError(f"{self._address} does not answer as a gateway does: {why}")


def _shown(shown: Mapping[str, Any]) -> Shown:
    topic = Topic(
        TopicName(shown["name"]),
        TopicId(topic_id_bytes(shown["topic_id"])),
        tuple(_partition(one) for one in shown["partitions"]),
        tuple(sorted(shown["configs"].items())),
        shown["created_at_ms"],
        Offset(shown["created_offset"]),
        shown["ready_at_ms"],
    )
    return Shown(topic, shown["as_of"]["offset"])


def _partition(shown: Mapping[str, Any]) -> Partition:
    replicas, isr = (tuple(map(BrokerId, shown[name])) for name in ("replicas", "isr"))
    return Partition(replicas, isr, BrokerId(shown["leader"]), shown["leader_epoch"], shown["partition_epoch"])
