"""Mutation quotas (KIP-599): shared buckets, refill, strict and permissive APIs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.access.mutation_quotas import BUCKETS_MAX, IDLE_S_MAX, WAIT_MS_MAX, MutationQuotas, quota_of
from controller.machine.commands.commands import TopicCommand
from events.access import QuotaEntity
from events.names import RequestId, TopicName

RATE = "controller_mutation_rate"
Quotas = dict[QuotaEntity, tuple[tuple[str, float], ...]]


def quotas(**rates: float) -> Quotas:
    """Quotas by entity, written as `user_client`. An empty name means no such part, `D` the default entity."""
    held: Quotas = {}
    for key, rate in rates.items():
        user, _, client = key.partition("_")
        parts = (("client-id", client), ("user", user))
        entity = tuple((kind, None if name == "D" else name) for kind, name in parts if name)
        held[entity] = ((RATE, rate), ("request_percentage", 1.0))
    return held


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def request(version: int = 7, user: str = "bob", client: str = "c") -> TopicCommand:
    return TopicCommand(
        request_id=RequestId("q"),
        at_ms=0,
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
def test_the_most_specific_quota_entity_applies(held: Quotas, expected: tuple[float, tuple[str, str]] | None) -> None:
    assert quota_of(held, "bob", "c") == expected


def test_only_controller_mutation_rate_applies() -> None:
    assert quota_of({(("user", "bob"),): (("request_percentage", 1.0),)}, "bob", "c") is None


def test_a_quota_bucket_goes_below_zero_once_and_refills_at_its_rate(clock: Clock) -> None:
    held, buckets = quotas(bob_=2.0), MutationQuotas(10, clock)
    assert buckets.charge(held, request(), 25) == (0, False), "a full bucket has 20 tokens"
    assert buckets.charge(held, request(), 1) == (2500, True), "5 below zero refill in 2.5 s"
    clock.now_s += 2.499
    assert buckets.charge(held, request(), 1)[1]
    clock.now_s += 0.0011
    assert buckets.charge(held, request(), 1) == (0, False)
    assert buckets.charge(held, request(), 1) == (500, True)
    clock.now_s += 1000
    assert buckets.charge(held, request(), 20) == (0, False), "a full bucket gets no more tokens"
    assert buckets.charge(held, request(), 1) == (0, False), "an empty bucket still accepts"
    assert buckets.charge(held, request(), 1) == (500, True)


def test_old_request_versions_get_permissive_quotas(clock: Clock) -> None:
    held, buckets = quotas(bob_=1.0), MutationQuotas(10, clock)
    assert buckets.charge(held, request(version=5), 10) == (0, False)
    assert buckets.charge(held, request(version=5), 5) == (5000, False)
    assert buckets.charge(held, request(version=5), 5) == (10_000, False), "old versions go further below zero"
    assert buckets.charge(held, request(version=6), 1) == (10_000, True), "all versions share a bucket"


def test_quota_buckets_are_shared(clock: Clock) -> None:
    buckets = MutationQuotas(1, clock)
    of_users = quotas(D_=1.0)
    buckets.charge(of_users, request(client="a"), 9)
    assert buckets.charge(of_users, request(client="b"), 1)[1], "all clients of a user share a bucket"
    assert not buckets.charge(of_users, request(user="eve"), 1)[1], "another user has another bucket"


def test_no_quota_or_no_mutation_means_no_throttle_time(clock: Clock) -> None:
    buckets = MutationQuotas(11, clock)
    assert buckets.charge({}, request(), 1_000_000) == (0, False)
    held = quotas(bob_=1e-9)
    assert buckets.charge(held, request(), 0) == (0, False)


@pytest.mark.parametrize("version", [5, 7])
@pytest.mark.parametrize("rate", [5e-324, 1e-320, 1e-7, 4e-4, 0.0, -1.0])
def test_throttle_times_are_limited_to_32_bits(clock: Clock, rate: float, version: int) -> None:
    """A metadata log written by Kafka may have any rate."""
    held, buckets = quotas(bob_=rate), MutationQuotas(11, clock)
    assert buckets.charge(held, request(), 1_000_000) == (0, False), "a bucket may go below zero once"
    for _ in range(2):
        assert buckets.charge(held, request(version), 1) == (WAIT_MS_MAX, version > 5)
        clock.now_s += 3599


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 1.7e308])
def test_nan_or_infinite_quota_rates_do_not_throttle(clock: Clock, rate: float) -> None:
    held, buckets = quotas(bob_=rate), MutationQuotas(11, clock)
    for _ in range(3):
        assert buckets.charge(held, request(), 2**31) == (0, False)


@given(st.floats(), st.lists(st.tuples(st.integers(1, 2**31), st.floats(0, 1e9)), max_size=20), st.sampled_from([5, 7]))
def test_throttle_times_are_integers_for_any_rate(rate: float, uses: list[tuple[int, float]], version: int) -> None:
    clock, held = Clock(), quotas(bob_=rate)
    buckets = MutationQuotas(11, clock)
    for partitions, passes_s in uses:
        wait_ms, is_refused = buckets.charge(held, request(version), partitions)
        assert type(wait_ms) is int, "a response has an integer"
        assert 0 <= wait_ms <= WAIT_MS_MAX, "it fits into 32 bits"
        assert wait_ms > 0 or not is_refused, "a refusal has a throttle time"
        clock.now_s += passes_s


def test_idle_quota_buckets_are_dropped(clock: Clock) -> None:
    held, buckets = quotas(D_=1.0), MutationQuotas(11, clock)
    for number in range(100):
        buckets.charge(held, request(user=f"u{number}"), 1)
    for _ in range(2):
        clock.now_s += IDLE_S_MAX
        buckets.charge(held, request(), 1)
    assert len(buckets._buckets) <= 2


def test_quota_buckets_of_invented_client_ids_are_dropped(clock: Clock) -> None:
    held, buckets = quotas(_D=1.0), MutationQuotas(11, clock)
    for number in range(100_000):
        buckets.charge(held, request(client=f"made-up-{number}"), 1)
    assert len(buckets._buckets) <= BUCKETS_MAX
    clock.now_s += 1
    buckets.charge(held, request(client="honest"), 100)
    assert len(buckets._buckets) == 1, "full buckets are dropped"
    assert buckets.charge(held, request(client="honest"), 1) == (89_000, True), "a bucket in use is retained"


def test_a_quota_bucket_in_use_is_retained(clock: Clock) -> None:
    held, buckets = quotas(_D=1e-3), MutationQuotas(11, clock)
    buckets.charge(held, request(client="honest"), 100)
    for number in range(2 * BUCKETS_MAX):
        buckets.charge(held, request(client=f"made-up-{number}"), 1)
        if number % 1000 == 0:
            assert buckets.charge(held, request(client="honest"), 1)[1]
