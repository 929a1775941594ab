"""Properties of placement for any topic name, racks and brokers."""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.machine.decide import decide
from controller.machine.partitions.placement import filled, place, rack_ring
from controller.machine.state import Broker, Cluster, DictTopics, State
from events.catalog import TopicCreated
from events.names import BrokerId
from tests.machine.rig import Rig
from tests.machine.tables import command
from tests.machine.tables import given as rig_given

Racks = dict[BrokerId, str | None]

_names = st.text(alphabet="abcdefghij-._0123456789", min_size=1, max_size=20)
_racks: st.SearchStrategy[Racks] = st.dictionaries(
    st.integers(0, 50).map(BrokerId), st.sampled_from((None, "a", "b", "c", "d")), min_size=1, max_size=12
)


def _placed(name: str, racks: Racks, first: int, count: int, factor: int) -> tuple[tuple[BrokerId, ...], ...]:
    live = tuple(sorted(racks))
    return place(name, rack_ring(live, tuple(racks[broker] for broker in live)), first, count, factor)


@given(_names, _racks, st.integers(0, 30), st.integers(1, 30), st.integers(1, 12))
def test_replicas_are_distinct_live_brokers_followed_by_placeholders(
    name: str, racks: Racks, first: int, count: int, factor: int
) -> None:
    partitions = _placed(name, racks, first, count, factor)
    assert len(partitions) == count, "a replica list for each partition"
    missing = [-n for n in range(1, factor - len(racks) + 1)]
    for replicas in partitions:
        assert len(replicas) == factor, "the length is the replication factor"
        assert len(set(replicas)) == factor, f"duplicate replica: {replicas}"
        brokers, placeholders = replicas[: factor - len(missing)], replicas[factor - len(missing) :]
        assert set(brokers) <= set(racks), f"a broker is not live: {replicas}"
        assert list(placeholders) == missing, f"placeholders are not -1, -2, … at the end: {replicas}"


@given(_names, _racks, st.integers(1, 30), st.integers(1, 5))
def test_replicas_spread_over_racks(name: str, racks: Racks, count: int, factor: int) -> None:
    assume(factor <= len(racks))
    for replicas in _placed(name, racks, 0, count, factor):
        used = Counter(racks[broker] for broker in replicas)
        wanted = min(factor, len(set(racks.values())))
        assert len(used) == wanted, f"{replicas} use {len(used)} racks, {wanted} are possible"


@given(_names, _racks, st.integers(1, 60), st.integers(1, 3))
def test_leaders_are_balanced_within_a_topic(name: str, racks: Racks, count: int, factor: int) -> None:
    leaders = Counter(replicas[0] for replicas in _placed(name, racks, 0, count, factor))
    loads = [leaders[broker] for broker in racks]
    assert max(loads) - min(loads) <= 1, f"leaders are not balanced: {leaders}"


@given(_names, st.integers(2, 8))
def test_followers_of_a_leader_are_balanced_over_brokers(name: str, brokers: int) -> None:
    racks: Racks = dict.fromkeys(map(BrokerId, range(brokers)))
    pairs = Counter(_placed(name, racks, 0, brokers * (brokers - 1), 2))
    assert len(pairs) == brokers * (brokers - 1), f"each pair of leader and follower occurs once: {pairs}"


@settings(max_examples=10)
@given(_racks)
def test_leaders_are_balanced_over_topics(racks: Racks) -> None:
    topics = 200 * len(racks)
    leaders = Counter(_placed(f"topic-{n}", racks, 0, 1, 1)[0][0] for n in range(topics))
    assert all(100 < leaders[broker] < 300 for broker in racks), f"about one in {len(racks)} each: {leaders}"


@given(_names, _racks, st.integers(1, 10), st.integers(1, 20), st.integers(1, 5))
def test_added_partitions_get_the_same_replicas_as_at_creation(
    name: str, racks: Racks, have: int, more: int, factor: int
) -> None:
    at_once = _placed(name, racks, 0, have + more, factor)
    in_steps = _placed(name, racks, 0, have, factor) + _placed(name, racks, have, more, factor)
    assert in_steps == at_once, "placement depends only on the name and the index"


@given(st.permutations(["1@a", "2@b", "3@a", "4", "5@b"]), st.integers(1, 6), st.integers(1, 5))
def test_placement_does_not_depend_on_the_order_of_brokers(words: list[str], count: int, factor: int) -> None:
    rig, ordered = rig_given(" ".join(words)), rig_given(" ".join(sorted(words)))
    request = f"create t {count}x{factor}"
    assert _replicas(rig, request) == _replicas(ordered, request), "replicas depend on the registration order"
    shuffled = Cluster().with_brokers(dict(reversed(list(rig.state.cluster.brokers.items()))))
    decided = decide(State(DictTopics(), shuffled), command(rig, request)).events[1]
    assert isinstance(decided, TopicCreated), "the create is accepted"
    assert [p.replicas for p in decided.partitions] == _replicas(ordered, request), (
        "replicas depend on the order of a mapping"
    )


def _replicas(rig: Rig, request: str) -> list[tuple[BrokerId, ...]]:
    event = decide(rig.state, command(rig, request)).events[1]
    assert isinstance(event, TopicCreated), "the create is accepted"
    return [partition.replicas for partition in event.partitions]


def _cluster(live: Racks, fenced: Racks) -> Cluster:
    brokers = (Broker(each, 1, "", rack, (), each in fenced) for each, rack in (live | fenced).items())
    return Cluster().with_brokers({each.broker_id: each for each in brokers})


@given(_names, st.integers(0, 50), _racks, st.sets(st.sampled_from((None, "a", "b", "c", "d"))))
def test_a_placeholder_is_filled_from_an_unused_rack(
    name: str, partition: int, racks: Racks, used: set[str | None]
) -> None:
    fenced = {BrokerId(100 + number): rack for number, rack in enumerate(used)}
    *_, chosen = filled(name, partition, (*fenced, BrokerId(-1)), _cluster(racks, fenced))
    assert chosen in racks, "a candidate is chosen"
    if set(racks.values()) - used:
        assert racks[chosen] not in used, f"{chosen} is in rack {racks[chosen]}, which is used"


@given(_names, st.integers(1, 8))
def test_joining_brokers_get_an_even_number_of_placeholders(name: str, brokers: int) -> None:
    cluster = _cluster(dict.fromkeys(map(BrokerId, range(brokers))), {})
    chosen = Counter(filled(name, index, (BrokerId(-1),), cluster) for index in range(4 * brokers))
    assert set(chosen.values()) == {4}, f"not balanced: {chosen}"
