"""Handlers whose answers a test gives when it wants to."""

from __future__ import annotations

import asyncio

from controller.kafka.handling import NO_RESPONSE, Answer, Disconnect, RequestContext
from controller.kafka.messages.topics import MetadataRequest, MetadataResponse


class Gates:
    """A Metadata handler that keeps each request waiting until its topic's name is let through."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._gates: dict[str, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()

    async def __call__(self, context: RequestContext, request: MetadataRequest) -> Answer:
        assert request.topics is not None
        name = request.topics[0].name or ""
        self.begun.append(name)
        self._changed.set()
        if name.startswith("gate"):
            try:
                await self._gates.setdefault(name, asyncio.get_running_loop().create_future())
            except asyncio.CancelledError:
                self.cancelled.append(name)
                self._changed.set()
                raise
        return answer_of(name)

    def open(self, name: str) -> None:
        self._gates[name].set_result(None)

    async def until(self, begun: int = 0, cancelled: int = 0) -> None:
        while len(self.begun) < begun or len(self.cancelled) < cancelled:
            self._changed.clear()
            await self._changed.wait()


def answer_of(name: str) -> Answer:
    """The answer that the name of the topic calls for."""
    match name:
        case "nothing":
            return NO_RESPONSE
        case "disconnect":
            raise Disconnect("because I say so")
        case "raise":
            raise ZeroDivisionError("a bug")
        case "unencodable":
            return MetadataResponse(controller_id="no number")  # type: ignore[arg-type]
        case "nonsense":
            return "no message"  # type: ignore[return-value]
        case _:
            return MetadataResponse(cluster_id="x" * 100)


def at_once(context: RequestContext, request: MetadataRequest) -> Answer:
    assert request.topics is not None
    return answer_of(request.topics[0].name or "")
