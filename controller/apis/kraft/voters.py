"""AddRaftVoter and RemoveRaftVoter (KIP-853): refused, since this controller leads alone."""

from __future__ import annotations

from controller.kafka.handling import RequestContext
from controller.kafka.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from controller.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from controller.machine.errors import ErrorCode

_ALONE = "Topicwright is the only voter of its quorum: voters can be neither added nor removed."
_REFUSED = int(ErrorCode.UNSUPPORTED_VERSION)
"""What Kafka answers where kraft.version does not support it."""


def refuse_adding(_: RequestContext, __: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """No voter is added."""
    return AddRaftVoterResponse(error_code=_REFUSED, error_message=_ALONE)


def refuse_removal(_: RequestContext, __: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """No voter is removed."""
    return RemoveRaftVoterResponse(error_code=_REFUSED, error_message=_ALONE)
