"""Converts features, configs, SCRAM credentials, quotas and ACLs to Kafka's metadata records and back.

There is one `Kind` for each of the five. `controller.brokers.kraft` converts in both directions: `projector` turns
changes of the state into records, and `importing_cluster` turns records of another controller into events.

A record sets or removes one value. A value has a key, such as a config resource, user or quota entity. If a key has
several values, each has a name. An event has all changes of one key.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, astuple

from controller.kafka.messages import records as kinds
from controller.kafka.messages.access import EntityData
from controller.kafka.messages.records import MetadataRecord
from controller.machine.access.bucket_map import differing
from controller.machine.access.requests import MECHANISMS, canonical_entity
from controller.machine.state import Cluster, ScramCredential
from events import catalog
from events.access import Acl, QuotaEntity, QuotasChanged, ScramCredentialRemoved, ScramCredentialSet
from events.catalog import Event
from events.names import RequestId

DIRECTORIES_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_SINCE: Final = 30
"""The metadata.version levels that introduced these fields: 3.7-IV2, 4.0-IV1, 4.3-IV0."""
UNCHANGED_LEADER: Final = -2
METADATA_VERSION_FEATURE: Final = "metadata.version"
TOPICS: Final = 2
"""The config resource type of topics."""


class Author(NamedTuple):
    """The request id, principal and reason of events that are imported from records. Records do not name the client of
    the other controller, so all these events have the same principal."""

    request_id: RequestId
    principal: str
    reason: str


class Kind(NamedTuple):
    """The functions that convert one kind, such as quotas, to records and back. A value of None means removed."""

    record: type[MetadataRecord]
    """The record that sets a value."""
    values: Callable[[Cluster], Mapping[Any, Any]]
    """Returns the values by key: one value, or pairs of name and value."""
    encode: Callable[[Any, str, Any], MetadataRecord]
    """Returns the record of a key, a name and a value."""
    decode: Callable[[Any], tuple[Any, str, Any]]
    """Returns the key, name and value of a record."""
    event: Callable[[Author, Any, Mapping[str, Any], Mapping[str, Any]], Event] | None
    """Returns the event for the values of a key, by name, before and after; None if an event has several keys."""
    order: Callable[[Any], Any] = lambda key: key
    """Returns the value by which a key is sorted."""


NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
"""Kafka's numbers of SCRAM mechanisms (ScramMechanism.type)."""


def _credential_record(login: tuple[str, str], _: str, value: ScramCredential | None) -> MetadataRecord:
    user, mechanism = login[0], NUMBERS[login[1]]
    if value is None:
        return kinds.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
    return kinds.UserScramCredentialRecord(name=user, mechanism=mechanism, **asdict(value))


def _credential_of(
    record: kinds.UserScramCredentialRecord | kinds.RemoveUserScramCredentialRecord,
) -> tuple[tuple[str, str], str, ScramCredential | None]:
    """Raises KeyError for an unknown mechanism."""
    value = None
    if isinstance(record, kinds.UserScramCredentialRecord):
        value = ScramCredential(record.iterations, record.salt, record.stored_key, record.server_key)
    return (record.name, MECHANISMS[record.mechanism]), "", value


def _credential_event(
    author: Author, login: tuple[str, str], old: Mapping[str, ScramCredential], new: Mapping[str, ScramCredential]
) -> Event:
    if new:
        iterations, salt, stored, server = astuple(new[""])
        return ScramCredentialSet(author.request_id, *login, iterations, salt, stored, server, author.principal, None)
    return ScramCredentialRemoved(author.request_id, *login, author.principal, None)


def _quota_record(entity: QuotaEntity, name: str, value: float | None) -> MetadataRecord:
    who = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
    return kinds.ClientQuotaRecord(entity=who, key=name, value=value or 0.0, remove=value is None)


def _quota_of(record: kinds.ClientQuotaRecord) -> tuple[QuotaEntity, str, float | None]:
    entity = canonical_entity(tuple((each.entity_type, each.entity_name) for each in record.entity))
    return entity, record.key, None if record.remove else record.value


def _quotas_event(author: Author, entity: QuotaEntity, old: Mapping[str, float], new: Mapping[str, float]) -> Event:
    values = tuple(sorted((name, value) for name, value in new.items() if old.get(name) != value))
    removed = tuple(name for name in old if name not in new)
    return QuotasChanged(author.request_id, entity, values, removed, author.principal, None)


_ACL_FIELDS: Final = (
    "resource_type", "pattern_type", "resource_name", "principal", "host", "operation", "permission_type",
)  # fmt: skip
"""The fields of an ACL in its record, in the order of `Acl`."""


def acl_record(acl_id: bytes, _: str, acl: Acl | None) -> MetadataRecord:
    if acl is None:
        return kinds.RemoveAccessControlEntryRecord(id=acl_id)
    return kinds.AccessControlEntryRecord(id=acl_id, **acl_fields(acl))


def acl_fields(acl: Acl) -> dict[str, Any]:
    """The fields of an ACL by Kafka's names."""
    return dict(zip(_ACL_FIELDS, astuple(acl), strict=True))


def acl_of(record: kinds.AccessControlEntryRecord) -> Acl:
    return Acl(*(getattr(record, name) for name in _ACL_FIELDS))


FEATURES: Final = Kind(
    kinds.FeatureLevelRecord,
    lambda cluster: {"": cluster.features},
    lambda _, name, level: kinds.FeatureLevelRecord(name=name, feature_level=level or 0),
    lambda record: ("", record.name, record.feature_level or None),
    lambda author, _, old, new: catalog.FeaturesChanged(tuple(sorted(new.items())), author.reason),
)
CONFIGS: Final = Kind(
    kinds.ConfigRecord,
    lambda cluster: cluster.resource_configs,
    lambda resource, name, value: kinds.ConfigRecord(
        resource_type=resource[0], resource_name=resource[1], name=name, value=value
    ),
    lambda record: ((record.resource_type, record.resource_name), record.name, record.value),
    lambda author, resource, _, new: catalog.ResourceConfigsChanged(
        author.request_id, resource[0], resource[1], tuple(sorted(new.items())), author.principal, None
    ),
)
CREDENTIALS: Final = Kind(
    kinds.UserScramCredentialRecord,
    lambda cluster: cluster.scram,
    _credential_record,
    _credential_of,
    _credential_event,
)
QUOTAS: Final = Kind(
    kinds.ClientQuotaRecord,
    lambda cluster: cluster.quotas,
    _quota_record,
    _quota_of,
    _quotas_event,
    order=lambda entity: [(kind, name or "") for kind, name in entity],
)
ACLS: Final = Kind(
    kinds.AccessControlEntryRecord,
    lambda _: {},
    acl_record,
    lambda record: (record.id, "", acl_of(record) if isinstance(record, kinds.AccessControlEntryRecord) else None),
    None,
)
"""Keyed by the id of the ACL. `Cluster` does not have these ids, so `values` returns nothing."""
KIND_OF: Final[Mapping[type[MetadataRecord], Kind]] = {
    kinds.FeatureLevelRecord: FEATURES,
    kinds.ConfigRecord: CONFIGS,
    kinds.UserScramCredentialRecord: CREDENTIALS,
    kinds.RemoveUserScramCredentialRecord: CREDENTIALS,
    kinds.ClientQuotaRecord: QUOTAS,
    kinds.AccessControlEntryRecord: ACLS,
    kinds.RemoveAccessControlEntryRecord: ACLS,
}


def by_name(values: Any) -> Mapping[str, Any]:
    if values is None:
        return {}
    return dict(values) if isinstance(values, tuple) else {"": values}


def key_records(kind: Kind, key: Any, before: Any, after: Any) -> Iterator[MetadataRecord]:
    """The records that change the values of one key; metadata.version first."""
    if before == after:
        return
    old, new = by_name(before), by_name(after)
    for name in sorted(old.keys() | new.keys(), key=lambda name: (name != METADATA_VERSION_FEATURE, name)):
        value = new.get(name)
        if old.get(name) != value:
            yield kind.encode(key, name, value)


def kind_records(kind: Kind, before: Cluster, after: Cluster) -> Iterator[MetadataRecord]:
    old, new = kind.values(before), kind.values(after)
    for key in sorted(differing(old, new), key=kind.order):
        yield from key_records(kind, key, old.get(key), new.get(key))


def partition_record_version(level: int) -> int:
    """The version of partition records at a metadata.version level."""
    return (level >= DIRECTORIES_SINCE) + (level >= ELR_SINCE)


def broker_record_version(level: int) -> int:
    """The version of RegisterBrokerRecord at a metadata.version level; BrokerRegistrationChangeRecord has one less."""
    return 2 + (level >= DIRECTORIES_SINCE) + (level >= CORDONED_SINCE)
