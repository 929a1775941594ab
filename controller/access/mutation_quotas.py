"""Controller mutation quotas (KIP-599): how many partitions a user or client may create and delete per second.

As in Kafka each user and client id, whichever its quota tells apart, has a token bucket that refills at the quota's
rate and holds as many tokens as refill within all windows (`controller.quota.window.num` times
`controller.quota.window.size.seconds`). What is changed takes one token a partition; the bucket may go below zero once.
While it is below zero,
- requests of newer versions are refused with THROTTLING_QUOTA_EXCEEDED (strict);
- older ones, whose clients do not know that error, are carried out and go further below zero (permissive);
and the reply to both says how long it takes to come back to zero, for which time nothing more is read from their
connection. Kafka lets any rate above zero through, and cuts a wait of more than 32 bits to a wrong number, perhaps a
negative one; here it is WAIT_MS_MAX.

Buckets refill by a clock that only goes forward, since the wall clock may be set back.

What it does not do: keep buckets over a restart. They begin full.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

import msgspec

from controller.machine.access.quotas import CLIENT_ID, MUTATION_RATE, USER
from controller.machine.commands.commands import TopicCommand
from events.access import QuotaEntity

STRICT_SINCE: Final = {"CreateTopics": 6, "CreatePartitions": 3, "DeleteTopics": 5}
"""The versions from which an API knows THROTTLING_QUOTA_EXCEEDED; what does not come by these APIs always does."""
WAIT_MS_MAX: Final = 2**31 - 1
"""The longest wait: what `throttle_time_ms` can say, 24 days."""
IDLE_S_MAX: Final = 3600.0
"""Buckets that nobody used for so long are forgotten, as in Kafka; they come back full."""
BUCKETS_MAX: Final = 10_000
"""Beyond it those are forgotten that nobody used for the longest: who makes up client ids has full ones anyway."""

Quotas = Mapping[QuotaEntity, tuple[tuple[str, float], ...]]
"""The quotas of the cluster, by entity: keys and values."""


class _Bucket(msgspec.Struct):
    """Tokens as of a time, and when it is to be forgotten: once it is full, or nobody used it for long."""

    tokens: float
    at_s: float
    forgotten_s: float = 0.0


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


class MutationQuotas:
    """The buckets of all who have a quota. `windows_s` is how many seconds of refill a bucket holds, `clock_s` only
    goes forward."""

    def __init__(self, windows_s: float = 11.0, clock_s: Callable[[], float] = _loop_s) -> None:
        self._windows_s = windows_s
        self._clock_s = clock_s
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        """In the order in which they were used last."""

    def charge(self, quotas: Quotas, command: TopicCommand, mutations: int) -> tuple[int, bool]:
        """Take tokens for so many partitions: for how many ms the bucket is exhausted (0: it is not), and whether the
        command is refused by it, in which case nothing was taken."""
        found = quota_of(quotas, _user(command.principal), command.client_id or "")
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
        """Make room, from those used the longest ago up to one that is to be kept."""
        while self._buckets:
            owner, bucket = next(iter(self._buckets.items()))
            if bucket.forgotten_s > now_s and len(self._buckets) < BUCKETS_MAX:
                return
            del self._buckets[owner]


def quota_of(quotas: Quotas, user: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
    """The mutation rate that holds for a user with a client id, and the user and client id that share its bucket.

    The most specific entity counts, in Kafka's order; the empty string stands for "whoever". None without a quota. What
    Kafka let through before it looked at rates may be in a metadata log that was taken over: a rate that is no number,
    or infinite, is no limit, and nothing refills at one below zero.
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


def _user(principal: str) -> str:
    return principal.partition(":")[2]


def _wait_ms(bucket: _Bucket, rate: float) -> int:
    if -bucket.tokens >= rate * WAIT_MS_MAX / 1000:
        return WAIT_MS_MAX
    return max(1, round(-bucket.tokens / rate * 1000))
