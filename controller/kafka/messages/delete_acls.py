"""DeleteAcls (31): access control entries, found by filters, to hold no more (KIP-140, KIP-290)."""

from controller.kafka.messages.message import Message


class DeleteAclsFilter(Message, frozen=True, kw_only=True):
    """Which entries are meant; see `controller.machine.commands.commands.AclFilter`."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


class DeleteAclsRequest(Message, frozen=True, kw_only=True):
    """Filters, each for itself."""

    filters: tuple[DeleteAclsFilter, ...] = ()


class DeleteAclsMatchingAcl(Message, frozen=True, kw_only=True):
    """An entry that a filter found, and that is gone."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsFilterResult(Message, frozen=True, kw_only=True):
    """What one filter found."""

    error_code: int = 0
    error_message: str | None = None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(Message, frozen=True, kw_only=True):
    """One outcome a filter, in the order of the request."""

    throttle_time_ms: int = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()
