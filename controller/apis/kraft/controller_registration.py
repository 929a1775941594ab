"""ControllerRegistration (KIP-919): a controller of the quorum reports where it listens, and what it works with.
UnregisterController (KIP-1312): that is removed of a controller that will not return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import BrokenBatch
from controller.brokers.kraft.log.metadata_codec import MalformedRecord, encode_record
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.raft.effects import NotLeader
from controller.brokers.kraft.quorum.registered import RegisteredControllers
from controller.brokers.kraft.registration import NAMED_MAX, controller_record
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from controller.machine.errors import ErrorCode

UNREGISTERED_SINCE: Final = 33
"""4.4-IV2: the level of metadata.version from which on a registration can be removed."""


class ControllerRegistrationHandler:
    """Answers ControllerRegistration: the metadata log has what was reported, and nothing is decided by it.

    A node may register that votes, that fetched the metadata log, or that is registered: whoever removed a node may
    register it without limits (`registered`).
    """

    def __init__(self, node: QuorumNode, registered: RegisteredControllers) -> None:
        self._node = node
        self._registered = registered

    async def __call__(
        self, _: RequestContext, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        """Once the record is committed."""
        if len(request.listeners) > NAMED_MAX or len(request.features) > NAMED_MAX:
            return ControllerRegistrationResponse(
                error_code=int(ErrorCode.INVALID_REQUEST), error_message=f"more than {NAMED_MAX} listeners or features"
            )
        node_id = request.controller_id
        try:
            if not self._follows(node_id) and node_id not in await self._registered.all():
                return ControllerRegistrationResponse(
                    error_code=int(ErrorCode.INVALID_REQUEST),
                    error_message=f"node {node_id} does not vote, is not registered, and has not fetched the metadata "
                    "log",
                )
            await self._node.committed(self._node.append([(None, encode_record(controller_record(request)))]))
        except (NotLeader, OSError, BrokenBatch, MalformedRecord):  # a full or damaged disk: the client tries again
            return ControllerRegistrationResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        return ControllerRegistrationResponse()

    def _follows(self, node_id: int) -> bool:
        quorum = self._node.quorum
        return node_id in quorum.voters.by_id or (
            quorum.leading is not None and quorum.leading.progress.end_of(node_id) > 0
        )


class UnregisterControllerHandler:
    """Answers UnregisterController. `level` gives the level of metadata.version.

    A Kafka controller ends when it replays the removal of a registration that is not there. So one request is handled
    at a time, and nothing may be appended between the look into the log and the record.
    """

    def __init__(self, node: QuorumNode, registered: RegisteredControllers, level: Callable[[], int]) -> None:
        self._node, self._registered, self._level = node, registered, level
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, _: RequestContext, request: UnregisterControllerRequest) -> UnregisterControllerResponse:
        """Once the record is committed."""
        controller_id = request.controller_id
        if controller_id == self._node.quorum.me.id:
            return _not_unregistered(
                ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
            )
        if self._level() < UNREGISTERED_SINCE:
            return _not_unregistered(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller unregistration.",
            )
        try:
            async with self._one_at_a_time:
                if controller_id not in await self._registered.all():
                    return _not_unregistered(
                        ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
                        f"Controller ID {controller_id} is not currently registered.",
                    )
                record = kinds.UnregisterControllerRecord(controller_id=controller_id)
                offset = self._node.append([(None, encode_record(record))])
            await self._node.committed(offset)
        except (NotLeader, OSError, BrokenBatch, MalformedRecord):  # as above
            return _not_unregistered(ErrorCode.NOT_CONTROLLER, None)
        return UnregisterControllerResponse()


def _not_unregistered(code: ErrorCode, message: str | None) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(error_code=int(code), error_message=message)
