"""Who may do what, who can log in, and quotas, as a metadata log that is taken over has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from controller.brokers.kraft.acl_ids import ENTRY
from controller.brokers.kraft.image import MetadataImage
from controller.machine.credentials import MECHANISMS
from controller.machine.quotas import sorted_entity
from events.access import Acl, AclsCreated, QuotaEntity, QuotasChanged, ScramCredentialSet
from events.catalog import Event
from events.names import RequestId


def access_events(image: MetadataImage, request_id: RequestId, by: str) -> Iterator[Event]:
    """What the machine is told of it; `by` stands for who asked."""
    acls = tuple(sorted(_acls(image)))
    if acls:
        yield AclsCreated(request_id, acls, by, None)
    credentials: Any = image.kept["UserScramCredentialRecord"].values()
    for one in sorted(credentials, key=lambda each: (each.name, each.mechanism)):
        keys = (one.iterations, one.salt, one.stored_key, one.server_key)
        yield ScramCredentialSet(request_id, one.name, MECHANISMS[one.mechanism], *keys, by, None)
    for entity, values in _quotas(image).items():
        yield QuotasChanged(request_id, entity, tuple(sorted(values.items())), (), by, None)


def acl_id_keys(image: MetadataImage) -> Mapping[bytes, bytes]:
    """The state keys of `acl_ids.AclIds`: brokers know the entries by the ids that they have."""
    return {ENTRY + acl_id: msgspec.msgpack.encode(acl) for acl, acl_id in _acls(image).items()}


def _acls(image: MetadataImage) -> dict[Acl, bytes]:
    records: Any = image.kept["AccessControlEntryRecord"].values()
    return {
        Acl(
            each.resource_type,
            each.pattern_type,
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        ): _as_bytes(each.id)
        for each in records
    }


def _as_bytes(acl_id: Any) -> bytes:
    return acl_id if isinstance(acl_id, bytes) else bytes(acl_id.bytes)


def _quotas(image: MetadataImage) -> dict[QuotaEntity, dict[str, float]]:
    found: dict[QuotaEntity, dict[str, float]] = {}
    records: Any = image.kept["ClientQuotaRecord"].values()
    for record in records:
        entity = sorted_entity(tuple((each.entity_type, each.entity_name) for each in record.entity))
        found.setdefault(entity, {})[record.key] = record.value
    return {
        entity: found[entity] for entity in sorted(found, key=lambda one: [(kind, name or "") for kind, name in one])
    }
