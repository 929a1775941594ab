"""Logins and quotas: from their records, before and after, to the events that say the difference."""

from __future__ import annotations

from collections.abc import Iterator

from controller.brokers.kraft.importing.source import Source
from controller.brokers.kraft.log.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
)
from controller.machine.access.credentials import MECHANISMS
from controller.machine.access.quotas import sorted_entity
from controller.machine.state import ScramCredential
from events.access import Acl, QuotaEntity, QuotasChanged, ScramCredentialRemoved, ScramCredentialSet

Quotas = tuple[tuple[str, float], ...]


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The entry that a record says."""
    return Acl(
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def entity_of(record: ClientQuotaRecord) -> QuotaEntity:
    """Whom a quota is for, in the one order in which it is kept."""
    return sorted_entity(tuple((each.entity_type, each.entity_name) for each in record.entity))


def quota_events(entity: QuotaEntity, before: Quotas, after: Quotas, source: Source) -> Iterator[QuotasChanged]:
    """What became of the quotas of an entity."""
    old, new = dict(before), dict(after)
    values = tuple((key, value) for key, value in after if old.get(key) != value)
    removed = tuple(key for key in old if key not in new)
    if values or removed:
        yield QuotasChanged(source.request_id, entity, values, removed, source.principal, None)


def login_events(
    user: str,
    mechanism: int,
    before: ScramCredential | None,
    after: UserScramCredentialRecord | None,
    source: Source,
) -> Iterator[ScramCredentialSet | ScramCredentialRemoved]:
    """What became of a user's login by a mechanism, which is one of MECHANISMS."""
    name, by = MECHANISMS[mechanism], source.principal
    if after is None:
        if before is not None:
            yield ScramCredentialRemoved(source.request_id, user, name, by, None)
        return
    keys = (after.iterations, after.salt, after.stored_key, after.server_key)
    if before is None or keys != (before.iterations, before.salt, before.stored_key, before.server_key):
        yield ScramCredentialSet(source.request_id, user, name, *keys, by, None)
