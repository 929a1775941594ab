"""UpdateRaftVoter (82): a voter's endpoints, and the kraft.version that it speaks (KIP-853)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class Listener(Message, frozen=True, kw_only=True):
    name: str = ""
    host: str = ""
    port: int = 0


class KRaftVersionFeature(Message, frozen=True, kw_only=True):
    min_supported_version: int = 0
    max_supported_version: int = 0


class UpdateRaftVoterRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: tuple[Listener, ...] = ()
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class CurrentLeader(Message, frozen=True, kw_only=True):
    leader_id: int = -1
    leader_epoch: int = -1
    host: str = ""
    port: int = 0


class UpdateRaftVoterResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    current_leader: CurrentLeader = CurrentLeader()
