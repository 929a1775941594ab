"""Names of states and outcomes, Kafka's names of error codes, topic ids as text, and escaping of untrusted text.

The command line loads this module for `--help`, so it imports nothing but the standard library.
"""

import re
from base64 import urlsafe_b64encode
from typing import Literal, get_args

TopicStatus = Literal["ready", "pending", "under-replicated", "offline"]
WantedStatus = Literal[TopicStatus, "not-ready"]
STATUSES: tuple[str, ...] = get_args(WantedStatus)

RequestStatus = Literal[
    "requested",
    "waiting",
    "created",
    "timed-out",
    "failed",
    "rejected",
    "deleted",
    "partitions-added",
    "configs-changed",
]
"""`waiting`: created, but not answered. `timed-out`: created, but answered before it was ready. `failed`: created, but
answered with another error, such as a deletion meanwhile."""
Outcome = Literal[RequestStatus, "done"]
"""An outcome in a list; `done` for a request without topics."""
OUTCOMES: tuple[str, ...] = get_args(Outcome)


def is_pattern(text: str | None) -> bool:
    """True if the text has wildcards: no name of a topic has such characters."""
    return text is not None and any(sign in text for sign in "*?[")


def error_name_and_code(code: int) -> str:
    """Kafka's name of an error code with its number, as `TOPIC_ALREADY_EXISTS (36)`; `NONE` for 0."""
    return f"{error_name(code)} ({code})" if code else "NONE"


def error_name(code: int) -> str:
    """Kafka's name of an error code, without the number; `ERROR_n` for an unknown code n."""
    from controller.machine.errors import ErrorCode  # takes msgspec

    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools write it: base64url without padding (KIP-516)."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, characters that set the direction of text, and surrogates."""


def escaped(text: str) -> str:
    """Untrusted text with escapes for characters that could move the cursor, set the title or reverse the text."""
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)
