"""DescribeClientQuotas (48): quotas of users, client ids and addresses (KIP-546)."""

from controller.kafka.messages.message import Message


class ComponentData(Message, frozen=True, kw_only=True):
    """What an entity must have: a part of this type, whose name is `match` (match type 0), which is the default of
    the type (1), or whatever (2)."""

    entity_type: str = ""
    match_type: int = 0
    match: str | None = None


class DescribeClientQuotasRequest(Message, frozen=True, kw_only=True):
    """Which entities are meant; with `strict` only those that have no other parts."""

    components: tuple[ComponentData, ...] = ()
    strict: bool = False


class EntityData(Message, frozen=True, kw_only=True):
    """One part of an entity: its type and its name, null for the default of the type."""

    entity_type: str = ""
    entity_name: str | None = None


class ValueData(Message, frozen=True, kw_only=True):
    """The value of one quota key."""

    key: str = ""
    value: float = 0.0


class EntryData(Message, frozen=True, kw_only=True):
    """An entity with its quotas."""

    entity: tuple[EntityData, ...] = ()
    values: tuple[ValueData, ...] = ()


class DescribeClientQuotasResponse(Message, frozen=True, kw_only=True):
    """The entities found; `entries` is null where there was an error."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    entries: tuple[EntryData, ...] | None = ()
