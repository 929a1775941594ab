"""CreateAcls (30): access control entries to hold from now on (KIP-140, KIP-290)."""

from controller.kafka.messages.message import Message


class AclCreation(Message, frozen=True, kw_only=True):
    """One entry, in the codes of Kafka's protocol; see `events.catalog.Acl`."""

    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class CreateAclsRequest(Message, frozen=True, kw_only=True):
    """Entries to create."""

    creations: tuple[AclCreation, ...] = ()


class AclCreationResult(Message, frozen=True, kw_only=True):
    """What became of one entry."""

    error_code: int = 0
    error_message: str | None = None


class CreateAclsResponse(Message, frozen=True, kw_only=True):
    """One outcome an entry, in the order of the request."""

    throttle_time_ms: int = 0
    results: tuple[AclCreationResult, ...] = ()
