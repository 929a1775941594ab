"""The records of Kafka's metadata log on SCRAM credentials, quotas and access control entries.

Pure, and by the difference of two states, as `projection`. An entry's id is given when it is created and named again
when it is removed, so the ids are the metadata log's to keep: see `acl_ids`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.machine.access.acls import Acls
from controller.machine.access.bucket_map import differing
from controller.machine.access.credentials import MECHANISMS
from controller.machine.state import Cluster, ScramCredential
from events.access import Acl, QuotaEntity

NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
"""Kafka's numbers of SCRAM mechanisms (ScramMechanism.type)."""
Quotas = Mapping[QuotaEntity, tuple[tuple[str, float], ...]]
Credentials = Mapping[tuple[str, str], ScramCredential]


def credential_and_quota_records(before: Cluster, after: Cluster) -> list[MetadataRecord]:
    """What brokers learn when logins or quotas change."""
    records: list[MetadataRecord] = []
    if before.scram is not after.scram:
        records += _credential_records(before.scram, after.scram)
    if before.quotas is not after.quotas:
        records += _quota_records(before.quotas, after.quotas)
    return records


def _credential_records(before: Credentials, after: Credentials) -> Iterator[MetadataRecord]:
    for user, mechanism in sorted(differing(before, after)):
        old, new = before.get((user, mechanism)), after.get((user, mechanism))
        if new is None:
            yield kinds.RemoveUserScramCredentialRecord(name=user, mechanism=NUMBERS[mechanism])
        elif old != new:
            yield kinds.UserScramCredentialRecord(
                name=user,
                mechanism=NUMBERS[mechanism],
                salt=new.salt,
                stored_key=new.stored_key,
                server_key=new.server_key,
                iterations=new.iterations,
            )


def _quota_records(before: Quotas, after: Quotas) -> Iterator[MetadataRecord]:
    for entity in sorted(differing(before, after), key=lambda one: [(kind, name or "") for kind, name in one]):
        old, new = dict(before.get(entity, ())), dict(after.get(entity, ()))
        who = tuple(kinds.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                yield kinds.ClientQuotaRecord(entity=who, key=key, remove=True)
            elif old.get(key) != new[key]:
                yield kinds.ClientQuotaRecord(entity=who, key=key, value=new[key])


def acl_changes(before: Acls, after: Acls) -> tuple[list[Acl], list[Acl]]:
    """The entries that hold no more, and those that hold from here on; each sorted."""
    if before is after:
        return [], []
    gone: list[Acl] = []
    new: list[Acl] = []
    for pattern in before.by_pattern.keys() | after.by_pattern.keys():
        old_entries, entries = before.by_pattern.get(pattern, {}), after.by_pattern.get(pattern, {})
        if old_entries is not entries:
            gone += old_entries.keys() - entries.keys()
            new += entries.keys() - old_entries.keys()
    return sorted(gone), sorted(new)


def acl_record(acl: Acl, acl_id: bytes) -> MetadataRecord:
    """An entry holds."""
    return kinds.AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def acl_removal(acl_id: bytes) -> MetadataRecord:
    """An entry holds no more."""
    return kinds.RemoveAccessControlEntryRecord(id=acl_id)
