"""A cluster with an authorizer: set and read ACLs, SCRAM credentials and quotas through one of its brokers."""

from collections.abc import Mapping
from typing import Any

from controller.kafka.codec import codec
from controller.kafka.messages import ApiKey, Message, access
from tests.support.wire import Wire

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def call(address: str, key: ApiKey, version: int, message: Message) -> Any:
    """Send a request to a broker; returns the response."""
    with Wire(address) as wire:
        return call_over(wire, key, version, message)


def call_over(wire: Wire, key: ApiKey, version: int, message: Message) -> Any:
    wire.send_bytes(codec.encode_request(key, version, 1, "test", message))
    return codec.decode_response(key, version, wire.receive_frame())[1]


def set_quota(address: str, entity: Mapping[str, str | None], key: str, value: float | None) -> None:
    """Set a quota of an entity, given by types and names; None removes it."""
    parts = tuple(access.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    change = access.OpData(key=key, value=value or 0.0, remove=value is None)
    entry = access.EntryData(entity=parts, ops=(change,))
    answer = call(address, ApiKey.ALTER_CLIENT_QUOTAS, 1, access.AlterClientQuotasRequest(entries=(entry,)))
    assert [each.error_code for each in answer.entries] == [0]


def grant(address: str, user: str, topic: str) -> None:
    """Add an ACL, a SCRAM credential and a quota for a user, and a default quota for all clients."""
    acl = access.AclCreation(
        resource_type=2, resource_name=topic, principal=f"User:{user}", host="*", operation=3, permission_type=3
    )
    login = access.ScramCredentialUpsertion(
        name=user, mechanism=2, iterations=4096, salt=b"salt", salted_password=b"p" * 64
    )
    granted = call(address, ApiKey.CREATE_ACLS, 1, access.CreateAclsRequest(creations=(acl,)))
    wanted = access.AlterUserScramCredentialsRequest(upsertions=(login,))
    known = call(address, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, wanted)
    assert [each.error_code for each in (*granted.results, *known.results)] == [0, 0]
    set_quota(address, {"user": user}, "producer_byte_rate", 5e6)
    set_quota(address, {"client-id": None}, "consumer_byte_rate", 7e8)


def revoke(address: str, user: str, topic: str) -> None:
    """Remove the user's ACL and SCRAM credential."""
    acl = access.DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=topic,
        pattern_type_filter=3,
        principal_filter=f"User:{user}",
        operation=3,
        permission_type=3,
    )
    gone = call(address, ApiKey.DELETE_ACLS, 1, access.DeleteAclsRequest(filters=(acl,)))
    login = access.ScramCredentialDeletion(name=user, mechanism=2)
    wanted = access.AlterUserScramCredentialsRequest(deletions=(login,))
    known = call(address, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, wanted)
    assert [each.error_code for each in (*gone.filter_results, *known.results)] == [0, 0]
    assert len(gone.filter_results[0].matching_acls) == 1


def access_of(address: str) -> dict[str, list[Any]]:
    """All ACLs, SCRAM credentials and quotas that a broker has."""
    every = access.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    acls = call(address, ApiKey.DESCRIBE_ACLS, 1, every).resources
    logins = call(address, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, access.DescribeUserScramCredentialsRequest())
    strictly = access.DescribeClientQuotasRequest(components=(), strict=False)
    quotas = call(address, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, strictly).entries
    return {
        "acls": sorted((each.resource_name, acl.principal, acl.operation) for each in acls for acl in each.acls),
        "scram": sorted(
            (each.user, one.mechanism, one.iterations) for each in logins.results for one in each.credential_infos
        ),
        "quotas": sorted(
            (one.entity_type, str(one.entity_name), value.key, value.value)
            for each in quotas
            for one in each.entity
            for value in each.values
        ),
    }
