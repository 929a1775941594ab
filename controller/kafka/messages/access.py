"""Messages about who may do what: SASL, ACLs, quotas, SCRAM credentials, delegation tokens."""

from controller.kafka.messages.message import Message, Outcome


class SaslHandshakeRequest(Message, frozen=True, kw_only=True):
    """SaslHandshake (17): the client names a SASL mechanism (KIP-43); with v1, SaslAuthenticate follows (KIP-152)."""

    mechanism: str = ""


class SaslHandshakeResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    mechanisms: tuple[str, ...] = ()


class SaslAuthenticateRequest(Message, frozen=True, kw_only=True):
    """SaslAuthenticate (36): one message of a SASL exchange (KIP-152); v1 returns the session lifetime (KIP-368).
    Contains secrets: never log it."""

    auth_bytes: bytes = b""

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(hidden)"


class SaslAuthenticateResponse(Outcome, frozen=True, kw_only=True):
    """`session_lifetime_ms` is 0 for a session that does not expire."""

    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0  # v1+


class AclDescription(Message, frozen=True, kw_only=True):
    """One ACL without its resource, in the codes of Kafka's protocol; see `events.catalog.Acl`."""

    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class AclCreation(AclDescription, frozen=True, kw_only=True):
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3


class CreateAclsRequest(Message, frozen=True, kw_only=True):
    """CreateAcls (30): adds ACLs (KIP-140, KIP-290)."""

    creations: tuple[AclCreation, ...] = ()


class CreateAclsResponse(Message, frozen=True, kw_only=True):
    results: tuple[Outcome, ...] = ()


class DeleteAclsFilter(Message, frozen=True, kw_only=True):
    """A null name, principal or host matches any; see `controller.machine.commands.commands.AclFilter`."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


class DeleteAclsRequest(Message, frozen=True, kw_only=True):
    """DeleteAcls (31): removes the ACLs that match filters (KIP-140, KIP-290)."""

    filters: tuple[DeleteAclsFilter, ...] = ()


class DeleteAclsMatchingAcl(AclDescription, frozen=True, kw_only=True):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3


class DeleteAclsFilterResult(Outcome, frozen=True, kw_only=True):
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(Message, frozen=True, kw_only=True):
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()


class DescribeAclsRequest(DeleteAclsFilter, frozen=True, kw_only=True):
    """DescribeAcls (29): lists the ACLs that match a filter (KIP-140, KIP-290). One filter, as in DeleteAcls."""


class DescribeAclsResource(Message, frozen=True, kw_only=True):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: tuple[AclDescription, ...] = ()


class DescribeAclsResponse(Outcome, frozen=True, kw_only=True):
    resources: tuple[DescribeAclsResource, ...] = ()


class EntityData(Message, frozen=True, kw_only=True):
    """One part of an entity: its type and its name, null for the default of the type."""

    entity_type: str = ""
    entity_name: str | None = None


class ValueData(Message, frozen=True, kw_only=True):
    key: str = ""
    value: float = 0.0


class OpData(ValueData, frozen=True, kw_only=True):
    remove: bool = False


class EntryData(Message, frozen=True, kw_only=True):
    entity: tuple[EntityData, ...] = ()
    ops: tuple[OpData, ...] = ()


class AlterClientQuotasRequest(Message, frozen=True, kw_only=True):
    """AlterClientQuotas (49): changes quotas of users, client ids and addresses (KIP-546)."""

    entries: tuple[EntryData, ...] = ()
    validate_only: bool = False


class AlteredEntryData(Outcome, frozen=True, kw_only=True):
    entity: tuple[EntityData, ...] = ()


class AlterClientQuotasResponse(Message, frozen=True, kw_only=True):
    entries: tuple[AlteredEntryData, ...] = ()


class ComponentData(Message, frozen=True, kw_only=True):
    """A condition on one part of an entity. `match_type`: 0 named `match`, 1 the default of its type, 2 any."""

    entity_type: str = ""
    match_type: int = 0
    match: str | None = None


class DescribeClientQuotasRequest(Message, frozen=True, kw_only=True):
    """DescribeClientQuotas (48): quotas of users, client ids and addresses (KIP-546). With `strict`, entities with
    further parts do not match."""

    components: tuple[ComponentData, ...] = ()
    strict: bool = False


class DescribedEntryData(Message, frozen=True, kw_only=True):
    entity: tuple[EntityData, ...] = ()
    values: tuple[ValueData, ...] = ()


class DescribeClientQuotasResponse(Outcome, frozen=True, kw_only=True):
    """`entries` is null after an error."""

    entries: tuple[DescribedEntryData, ...] | None = ()


class ScramCredentialDeletion(Message, frozen=True, kw_only=True):
    """A credential to remove; `mechanism` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    name: str = ""
    mechanism: int = 0


class ScramCredentialUpsertion(Message, frozen=True, kw_only=True):
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, secrets hidden)"


class AlterUserScramCredentialsRequest(Message, frozen=True, kw_only=True):
    """AlterUserScramCredentials (51): sets and removes SCRAM credentials (KIP-554)."""

    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


class AlterUserScramCredentialsResult(Outcome, frozen=True, kw_only=True):
    user: str = ""


class AlterUserScramCredentialsResponse(Message, frozen=True, kw_only=True):
    results: tuple[AlterUserScramCredentialsResult, ...] = ()


class UserName(Message, frozen=True, kw_only=True):
    name: str = ""


class DescribeUserScramCredentialsRequest(Message, frozen=True, kw_only=True):
    """DescribeUserScramCredentials (50): mechanisms and iterations of users, without secrets (KIP-554). A null or empty
    `users` means all."""

    users: tuple[UserName, ...] | None = None


class CredentialInfo(Message, frozen=True, kw_only=True):
    """A mechanism that a user can log in by: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    mechanism: int = 0
    iterations: int = 0


class DescribeUserScramCredentialsResult(Outcome, frozen=True, kw_only=True):
    user: str = ""
    credential_infos: tuple[CredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()


class CreateDelegationTokenRequest(Message, frozen=True, kw_only=True):
    """CreateDelegationToken (38): a token that replaces a password (KIP-48)."""

    owner_principal_type: str | None = None  # v3+
    owner_principal_name: str | None = None  # v3+


class CreateDelegationTokenResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""  # v3+
    token_requester_principal_name: str = ""  # v3+


# RenewDelegationToken (39) and ExpireDelegationToken (40): extend and shorten the lifetime of a token (KIP-48).

RenewDelegationTokenRequest = ExpireDelegationTokenRequest = Message
RenewDelegationTokenResponse = ExpireDelegationTokenResponse = Outcome
