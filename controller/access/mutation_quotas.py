"""Controller mutation quotas (KIP-599): partitions that a user or client may create and delete per second. The engine
charges each command before it records the decision (`controller.engine.decider`).

As in Kafka, each user, client id or combination with a quota has a token bucket. It refills at the rate of the quota
and holds the tokens of all windows (`controller.quota.window.num` times `controller.quota.window.size.seconds`). Each
created or deleted partition takes a token. One command may bring the bucket below zero. While the bucket is below zero,
- requests of newer versions are refused with THROTTLING_QUOTA_EXCEEDED (strict);
- requests of older versions, whose clients do not know that error, are executed and take more tokens (permissive).

Both responses have the throttle time until the bucket is at zero, and the connection is not read meanwhile. Kafka
truncates throttle times over 32 bits to a wrong, perhaps negative number; here they are limited to WAIT_MS_MAX.

Buckets use a monotonic clock. They are not stored, and full after a restart.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

import msgspec

from controller.machine.access.requests import CLIENT_ID, MUTATION_RATE, USER
from controller.machine.commands.commands import TopicCommand
from events.access import QuotaEntity

STRICT_SINCE: Final = {"CreateTopics": 6, "CreatePartitions": 3, "DeleteTopics": 5}
"""The first versions with THROTTLING_QUOTA_EXCEEDED. Other APIs, such as HTTP, always have this error."""
WAIT_MS_MAX: Final = 2**31 - 1
"""The longest `throttle_time_ms`, 24 days."""
IDLE_S_MAX: Final = 3600.0
"""A bucket that is unused for this time is dropped, as in Kafka; a new bucket is full."""
BUCKETS_MAX: Final = 10_000
"""Above this number the least recently used buckets are dropped; invented client ids have full buckets anyway."""

Quotas = Mapping[QuotaEntity, tuple[tuple[str, float], ...]]
"""Quota keys and values by entity."""


class _Bucket(msgspec.Struct):
    """Tokens at a time, and when the bucket may be dropped: once it is full, or was unused for long."""

    tokens: float
    at_s: float
    forgotten_s: float = 0.0


class MutationQuotas:
    """The buckets of all users and clients. `windows_s` is the size of a bucket in seconds of refill; `clock_s` is
    monotonic."""

    def __init__(self, windows_s: float = 11.0, clock_s: Callable[[], float] | None = None) -> None:
        self._windows_s = windows_s
        self._clock_s = clock_s or (lambda: asyncio.get_running_loop().time())
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        """In order of last use."""

    def charge(self, quotas: Quotas, command: TopicCommand, mutations: int) -> tuple[int, bool]:
        """Takes tokens for `mutations` partitions. Returns the throttle time in ms, or 0, and whether the command is
        refused; then nothing is taken."""
        found = quota_of(quotas, command.principal.partition(":")[2], command.client_id or "")
        if found is None or mutations <= 0:
            return 0, False
        rate, owner = found
        bucket = self._bucket(owner, rate)
        is_strict = command.api_version >= STRICT_SINCE.get(command.api, 0)
        if is_strict and bucket.tokens < 0:
            return _wait_ms(bucket, rate), True
        bucket.tokens -= mutations
        full_in_s = (rate * self._windows_s - bucket.tokens) / rate if rate > 0 else inf
        bucket.forgotten_s = bucket.at_s + min(full_in_s, IDLE_S_MAX)
        return (_wait_ms(bucket, rate) if not is_strict and bucket.tokens < 0 else 0), False

    def _bucket(self, owner: tuple[str, str], rate: float) -> _Bucket:
        now_s = self._clock_s()
        most = rate * self._windows_s
        bucket = self._buckets.pop(owner, None) or _Bucket(most, now_s)
        self._forget(now_s)
        self._buckets[owner] = bucket
        bucket.tokens = min(most, bucket.tokens + rate * (now_s - bucket.at_s))
        bucket.at_s = now_s
        return bucket

    def _forget(self, now_s: float) -> None:
        """Drops expired and surplus buckets, the least recently used first."""
        while self._buckets:
            owner, bucket = next(iter(self._buckets.items()))
            if bucket.forgotten_s > now_s and len(self._buckets) < BUCKETS_MAX:
                return
            del self._buckets[owner]


def quota_of(quotas: Quotas, user: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
    """Returns the effective mutation rate, and the user and client id that share its bucket; None without a quota.

    The most specific entity counts, in Kafka's order; an empty user or client id means any. A metadata log of Kafka may
    have rates from before Kafka validated rates: NaN or infinite rates mean no limit, negative rates never refill.
    """
    for entity, owner in (
        (((CLIENT_ID, client_id), (USER, user)), (user, client_id)),
        (((CLIENT_ID, None), (USER, user)), (user, client_id)),
        (((USER, user),), (user, "")),
        (((CLIENT_ID, client_id), (USER, None)), (user, client_id)),
        (((CLIENT_ID, None), (USER, None)), (user, client_id)),
        (((USER, None),), (user, "")),
        (((CLIENT_ID, client_id),), ("", client_id)),
        (((CLIENT_ID, None),), ("", client_id)),
    ):
        for key, value in quotas.get(entity, ()):
            if key == MUTATION_RATE:
                return (max(value, 0.0), owner) if value < inf else None
    return None


def _wait_ms(bucket: _Bucket, rate: float) -> int:
    if -bucket.tokens >= rate * WAIT_MS_MAX / 1000:
        return WAIT_MS_MAX
    return max(1, round(-bucket.tokens / rate * 1000))
