"""ListGroups (16): the groups that a broker coordinates."""

from controller.kafka.messages.message import Message


class ListGroupsRequest(Message, frozen=True, kw_only=True):
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(Message, frozen=True, kw_only=True):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: tuple[ListedGroup, ...] = ()
