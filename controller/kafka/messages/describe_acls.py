"""DescribeAcls (29): the access control entries that a filter finds (KIP-140, KIP-290)."""

from controller.kafka.messages.message import Message


class DescribeAclsRequest(Message, frozen=True, kw_only=True):
    """Which entries are meant; see `controller.machine.commands.commands.AclFilter`."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


class AclDescription(Message, frozen=True, kw_only=True):
    """Whom an entry is for, and what it says."""

    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DescribeAclsResource(Message, frozen=True, kw_only=True):
    """A resource pattern with its entries."""

    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: tuple[AclDescription, ...] = ()


class DescribeAclsResponse(Message, frozen=True, kw_only=True):
    """The entries found, by resource pattern."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    resources: tuple[DescribeAclsResource, ...] = ()
