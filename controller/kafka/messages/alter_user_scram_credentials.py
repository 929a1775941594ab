"""AlterUserScramCredentials (51): sets and removes SCRAM credentials (KIP-554)."""

from controller.kafka.messages.message import Message


class ScramCredentialDeletion(Message, frozen=True, kw_only=True):
    """A credential to remove; `mechanism` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    name: str = ""
    mechanism: int = 0


class ScramCredentialUpsertion(Message, frozen=True, kw_only=True):
    """A credential to set. The client has salted the password already; what it made of it is a secret all the same."""

    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, secrets hidden)"


class AlterUserScramCredentialsRequest(Message, frozen=True, kw_only=True):
    """Credentials to remove and to set."""

    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


class AlterUserScramCredentialsResult(Message, frozen=True, kw_only=True):
    """The outcome for one user."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = None


class AlterUserScramCredentialsResponse(Message, frozen=True, kw_only=True):
    """One outcome a user."""

    throttle_time_ms: int = 0
    results: tuple[AlterUserScramCredentialsResult, ...] = ()
