"""Who may do what, who can log in, and quotas, as a metadata log that is taken over has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from controller.brokers.kraft.log.acl_ids import ENTRY
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
)
from controller.machine.access.credentials import MECHANISMS
from controller.machine.access.quotas import sorted_entity
from events.access import Acl, AclsCreated, QuotaEntity, QuotasChanged, ScramCredentialSet
from events.catalog import Event
from events.names import RequestId


def access_events(image: MetadataImage, request_id: RequestId, by: str) -> Iterator[Event]:
    """The events that say it; `by` stands for the principal."""
    acls = tuple(sorted(_acls(image)))
    if acls:
        yield AclsCreated(request_id, acls, by, None)
    for one in sorted(image.all(UserScramCredentialRecord), key=lambda each: (each.name, each.mechanism)):
        keys = (one.iterations, one.salt, one.stored_key, one.server_key)
        yield ScramCredentialSet(request_id, one.name, MECHANISMS[one.mechanism], *keys, by, None)
    for entity, values in _quotas(image).items():
        yield QuotasChanged(request_id, entity, tuple(sorted(values.items())), (), by, None)


def acl_id_keys(image: MetadataImage) -> Mapping[bytes, bytes]:
    """The state keys of `acl_ids.AclIds`: brokers know the entries by the ids that they have."""
    return {ENTRY + acl_id: msgspec.msgpack.encode(acl) for acl, acl_id in _acls(image).items()}


def _acls(image: MetadataImage) -> dict[Acl, bytes]:
    return {
        Acl(
            each.resource_type,
            each.pattern_type,
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        ): each.id
        for each in image.all(AccessControlEntryRecord)
    }


def _quotas(image: MetadataImage) -> dict[QuotaEntity, dict[str, float]]:
    found: dict[QuotaEntity, dict[str, float]] = {}
    for record in image.all(ClientQuotaRecord):
        entity = sorted_entity(tuple((each.entity_type, each.entity_name) for each in record.entity))
        found.setdefault(entity, {})[record.key] = record.value
    return {
        entity: found[entity] for entity in sorted(found, key=lambda one: [(kind, name or "") for kind, name in one])
    }
