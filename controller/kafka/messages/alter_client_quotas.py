"""AlterClientQuotas (49): quotas of users, client ids and addresses (KIP-546)."""

from controller.kafka.messages.message import Message


class EntityData(Message, frozen=True, kw_only=True):
    """One part of an entity: its type and its name, null for the default of the type."""

    entity_type: str = ""
    entity_name: str | None = None


class OpData(Message, frozen=True, kw_only=True):
    """A quota to set, or to remove."""

    key: str = ""
    value: float = 0.0
    remove: bool = False


class EntryData(Message, frozen=True, kw_only=True):
    """Changes of the quotas of one entity."""

    entity: tuple[EntityData, ...] = ()
    ops: tuple[OpData, ...] = ()


class AlterClientQuotasRequest(Message, frozen=True, kw_only=True):
    """Changes, each entity for itself."""

    entries: tuple[EntryData, ...] = ()
    validate_only: bool = False


class AlteredEntryData(Message, frozen=True, kw_only=True):
    """What became of the changes of one entity."""

    error_code: int = 0
    error_message: str | None = None
    entity: tuple[EntityData, ...] = ()


class AlterClientQuotasResponse(Message, frozen=True, kw_only=True):
    """One outcome an entity."""

    throttle_time_ms: int = 0
    entries: tuple[AlteredEntryData, ...] = ()
