"""The auditor's part about who may do what: entries and credentials that are taken away were there."""

from __future__ import annotations

from functools import cached_property

from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    LoginSecretDrawn,
    QuotaEntity,
    QuotasChanged,
    RequestsRefused,
    ScramCredentialRemoved,
    ScramCredentialSet,
)

ACCESS_COMMANDS = frozenset(
    {"CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials", "DrawLoginSecret", "RecordRefusals"}
)


class AccessAudit:
    """What the log says of entries, quotas and credentials, kept apart from the machine's own state."""

    @cached_property
    def acls(self) -> set[Acl]:
        """The entries that hold."""
        return set()

    @cached_property
    def quotas(self) -> dict[tuple[QuotaEntity, str], float]:
        """The value of each key of each entity."""
        return {}

    @cached_property
    def logins(self) -> set[tuple[str, str]]:
        """Users and mechanisms with a credential."""
        return set()

    drew_secret = False
    """Whether there is a login secret."""

    def _expect(self, check: str, holds: bool, seen: str, topic: str | None = None) -> None:
        raise NotImplementedError

    def _on_acls_created(self, event: AclsCreated) -> None:
        new = set(event.acls)
        self._expect("acl-life", bool(new) and len(new) == len(event.acls), "an entry twice, or none")
        self._expect("acl-life", not new & self.acls, f"held already: {new & self.acls}")
        self.acls |= new

    def _on_acls_deleted(self, event: AclsDeleted) -> None:
        gone = set(event.acls)
        self._expect("acl-life", bool(gone) and gone <= self.acls, f"did not hold: {gone - self.acls}")
        self.acls -= gone

    def _on_quotas_changed(self, event: QuotasChanged) -> None:
        for key in event.removed:
            self._expect("quota-life", (event.entity, key) in self.quotas, f"{event.entity} has no {key}")
            self.quotas.pop((event.entity, key), None)
        for key, value in event.values:
            self._expect("quota-life", self.quotas.get((event.entity, key)) != value > 0, f"{key} is {value} already")
            self.quotas[event.entity, key] = value

    def _on_requests_refused(self, event: RequestsRefused) -> None:
        self._expect("refusals-counted", event.count > 0 and event.error_code != 0, f"{event.count} of {event.rule}")

    def _on_scram_credential_set(self, event: ScramCredentialSet) -> None:
        self.logins.add((event.user, event.mechanism))

    def _on_scram_credential_removed(self, event: ScramCredentialRemoved) -> None:
        known = (event.user, event.mechanism) in self.logins
        self._expect("credential-life", known, f"{event.user} has no credential")
        self.logins.discard((event.user, event.mechanism))

    def _on_login_secret_drawn(self, event: LoginSecretDrawn) -> None:
        self._expect(
            "credential-life", bool(event.secret) and not self.drew_secret, "a second login secret, or an empty one"
        )
        self.drew_secret = True
