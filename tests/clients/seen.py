"""The scenario that every real client runs on every server, and its expected results.

Create a topic of three partitions with factor 2 and retention.ms=7200000; list; describe; describe its configs; create
it again; create another with retention.ms=soon; grow it to five partitions; delete it.
"""

import msgspec

PARTITIONS, FACTOR, GROWN = 3, 2, 5
RETENTION_MS = "7200000"
TOPIC_ALREADY_EXISTS, INVALID_CONFIG = 36, 40


class Seen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The results of a client. `again` and `bad` are the error codes of the two rejected creates."""

    listed: bool
    partitions: int
    factor: int
    retention_ms: str
    again: int
    bad: int
    bad_message: str | None
    grown: int
    gone: bool


def check(seen: Seen, *, message: bool = True) -> None:
    """Check all results. `message` is False if the client does not show the server's messages."""
    assert seen == Seen(
        listed=True,
        partitions=PARTITIONS,
        factor=FACTOR,
        retention_ms=RETENTION_MS,
        again=TOPIC_ALREADY_EXISTS,
        bad=INVALID_CONFIG,
        bad_message=seen.bad_message,
        grown=GROWN,
        gone=True,
    )
    if message:
        words = "Invalid value soon for configuration retention.ms: Not a number of type LONG"
        assert seen.bad_message is not None
        assert words in seen.bad_message


def parse_output(stdout: str) -> Seen:
    """Parses the output of a client program in another language."""
    shown = next(line for line in stdout.splitlines() if line.startswith("{"))
    return msgspec.json.decode(shown, type=Seen)
