"""DescribeUserScramCredentials (50): which users have SCRAM credentials, never the credentials (KIP-554)."""

from controller.kafka.messages.message import Message


class UserName(Message, frozen=True, kw_only=True):
    """A user to describe."""

    name: str = ""


class DescribeUserScramCredentialsRequest(Message, frozen=True, kw_only=True):
    """Users to describe; null or none for all."""

    users: tuple[UserName, ...] | None = None


class CredentialInfo(Message, frozen=True, kw_only=True):
    """A mechanism that a user can log in by: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    mechanism: int = 0
    iterations: int = 0


class DescribeUserScramCredentialsResult(Message, frozen=True, kw_only=True):
    """The SCRAM credentials of one user, without secrets."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = None
    credential_infos: tuple[CredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(Message, frozen=True, kw_only=True):
    """The users that were requested, or why none is shown."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()
