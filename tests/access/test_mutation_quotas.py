"""Token buckets of mutation quotas: whose, how full, and what strict and permissive mean (KIP-599)."""

from __future__ import annotations

import pytest

from controller.access.mutation_quotas import IDLE_MS_MAX, MutationQuotas, quota_of
from controller.machine.commands.commands import TopicCommand
from events.access import QuotaEntity
from events.names import RequestId, TopicName

RATE = "controller_mutation_rate"
Quotas = dict[QuotaEntity, tuple[tuple[str, float], ...]]


def quotas(**rates: float) -> Quotas:
    """By entity, written as `user_client`: an empty name for none, `D` for the default."""
    held: Quotas = {}
    for key, rate in rates.items():
        user, _, client = key.partition("_")
        parts = (("client-id", client), ("user", user))
        entity = tuple((kind, None if name == "D" else name) for kind, name in parts if name)
        held[entity] = ((RATE, rate), ("request_percentage", 1.0))
    return held


def request(at_ms: int = 0, version: int = 7, user: str = "bob", client: str = "c") -> TopicCommand:
    return TopicCommand(
        request_id=RequestId("q"),
        at_ms=at_ms,
        topic=TopicName("t"),
        principal=f"User:{user}",
        client_id=client,
        api="CreateTopics",
        api_version=version,
    )


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (quotas(), None),
        (quotas(_D=1), (1, ("", "c"))),
        (quotas(_D=1, _c=2), (2, ("", "c"))),
        (quotas(_c=2, D_=3), (3, ("bob", ""))),
        (quotas(D_=3, D_D=4), (4, ("bob", "c"))),
        (quotas(D_D=4, D_c=5), (5, ("bob", "c"))),
        (quotas(D_c=5, bob_=6), (6, ("bob", ""))),
        (quotas(bob_=6, bob_D=7), (7, ("bob", "c"))),
        (quotas(bob_D=7, bob_c=8), (8, ("bob", "c"))),
        (quotas(eve_=9), None),
    ],
)
def test_the_most_specific_entity_counts(held: Quotas, expected: tuple[float, tuple[str, str]] | None) -> None:
    assert quota_of(held, "bob", "c") == expected


def test_other_quotas_do_not_count() -> None:
    assert quota_of({(("user", "bob"),): (("request_percentage", 1.0),)}, "bob", "c") is None


def test_a_bucket_goes_below_zero_once_and_comes_back_at_its_rate() -> None:
    held, buckets = quotas(bob_=2.0), MutationQuotas(windows_s=10)
    assert buckets.charge(held, request(), 25) == (0, False), "full: 20 tokens"
    assert buckets.charge(held, request(), 1) == (2500, True), "5 below zero, 2 a second"
    assert buckets.charge(held, request(2499), 1)[1]
    assert buckets.charge(held, request(2500), 1) == (0, False)
    assert buckets.charge(held, request(2500), 1) == (500, True)
    assert buckets.charge(held, request(1_000_000), 20) == (0, False), "no fuller than full"
    assert buckets.charge(held, request(1_000_000), 1) == (0, False), "zero is not below zero"
    assert buckets.charge(held, request(1_000_000), 1) == (500, True)


def test_old_versions_are_carried_out_and_throttled() -> None:
    held, buckets = quotas(bob_=1.0), MutationQuotas(windows_s=10)
    assert buckets.charge(held, request(version=5), 10) == (0, False)
    assert buckets.charge(held, request(version=5), 5) == (5000, False)
    assert buckets.charge(held, request(version=5), 5) == (10_000, False), "further below zero"
    assert buckets.charge(held, request(version=6), 1) == (10_000, True), "the same bucket"


def test_who_shares_a_bucket() -> None:
    buckets = MutationQuotas(windows_s=1)
    of_users = quotas(D_=1.0)
    buckets.charge(of_users, request(client="a"), 9)
    assert buckets.charge(of_users, request(client="b"), 1)[1], "all clients of a user share one"
    assert not buckets.charge(of_users, request(user="eve"), 1)[1], "another user has its own"


def test_without_a_quota_or_a_change_nothing_is_taken() -> None:
    buckets = MutationQuotas()
    assert buckets.charge({}, request(), 1_000_000) == (0, False)
    held = quotas(bob_=1e-9)
    assert buckets.charge(held, request(), 0) == (0, False)


def test_time_that_goes_back_takes_nothing_away() -> None:
    held, buckets = quotas(bob_=1.0), MutationQuotas(windows_s=1)
    buckets.charge(held, request(5000), 2)
    assert buckets.charge(held, request(4000), 1) == (1000, True)
    assert buckets.charge(held, request(6000), 1) == (0, False)


def test_buckets_that_nobody_uses_are_forgotten() -> None:
    held, buckets = quotas(D_=1.0), MutationQuotas()
    for number in range(100):
        buckets.charge(held, request(user=f"u{number}"), 1)
    buckets.charge(held, request(IDLE_MS_MAX), 1)
    buckets.charge(held, request(2 * IDLE_MS_MAX), 1)
    assert len(buckets._buckets) <= 2
