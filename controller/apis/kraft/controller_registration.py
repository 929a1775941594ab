"""ControllerRegistration (KIP-919): a controller of the quorum reports where it listens, and what it works with."""

from __future__ import annotations

from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.raft.effects import NotLeader
from controller.brokers.kraft.registration import NAMED_MAX, controller_record
from controller.kafka.handling import RequestContext
from controller.kafka.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from controller.machine.errors import ErrorCode


class ControllerRegistrationHandler:
    """Answers ControllerRegistration: the metadata log has what was reported, and nothing is decided by it."""

    def __init__(self, node: QuorumNode) -> None:
        self._node = node

    async def __call__(
        self, _: RequestContext, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        """Once the record is committed."""
        if len(request.listeners) > NAMED_MAX or len(request.features) > NAMED_MAX:
            return ControllerRegistrationResponse(
                error_code=int(ErrorCode.INVALID_REQUEST), error_message=f"more than {NAMED_MAX} listeners or features"
            )
        if not self._follows(request.controller_id):
            return ControllerRegistrationResponse(
                error_code=int(ErrorCode.INVALID_REQUEST),
                error_message=f"node {request.controller_id} does not vote, nor has it fetched the metadata log",
            )
        try:
            await self._node.committed(self._node.append([(None, encode_record(controller_record(request)))]))
        except (NotLeader, OSError):  # without room for it, or with a disk that failed, which has ended the node
            return ControllerRegistrationResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        return ControllerRegistrationResponse()

    def _follows(self, node_id: int) -> bool:
        quorum = self._node.quorum
        return node_id in quorum.voters.by_id or (
            quorum.leading is not None and quorum.leading.progress.end_of(node_id) > 0
        )
