"""DescribeGroups (15): the state and the members of groups."""

from controller.kafka.messages.message import OPERATIONS_OMITTED, Message


class DescribeGroupsRequest(Message, frozen=True, kw_only=True):
    groups: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribedGroupMember(Message, frozen=True, kw_only=True):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Message, frozen=True, kw_only=True):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int = OPERATIONS_OMITTED


class DescribeGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    groups: tuple[DescribedGroup, ...] = ()
