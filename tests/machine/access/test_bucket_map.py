"""A bucket map behaves like a dict, but a change copies only one bucket."""

from hypothesis import given
from hypothesis import strategies as st

from controller.machine.access.bucket_map import BUCKETS, BucketMap, changed, differing
from controller.machine.apply import apply_cluster
from controller.machine.state import Cluster
from events.access import QuotasChanged, ScramCredentialRemoved, ScramCredentialSet
from events.catalog import Cause, Event, Recorded
from events.names import Offset, RequestId

KEYS = st.integers(0, 1000)
REQUEST = RequestId("r")


@given(st.dictionaries(KEYS, st.text()), st.lists(st.tuples(KEYS, st.none() | st.text())))
def test_a_bucket_map_behaves_like_a_dict(first: dict[int, str], changes: list[tuple[int, str | None]]) -> None:
    expected, found = dict(first), changed(first, -1, None)
    for key, value in changes:
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
        found = changed(found, key, value)
    assert found == expected
    assert (len(found), set(found)) == (len(expected), set(expected))
    assert all(found.get(key) == found[key] == value for key, value in expected.items())
    assert found.get(-1, "nothing") == "nothing"
    assert {key for key in first.keys() | expected.keys() if first.get(key) != expected.get(key)} <= differing(
        first, found
    )


def test_differing_scans_only_changed_buckets() -> None:
    before = BucketMap({number: str(number) for number in range(10_000)})
    after = changed(changed(before, 7, "new"), 8, None)
    assert differing(before, after) == {7, 8}
    assert sum(old is not new for old, new in zip(before.buckets, after.buckets, strict=True)) == 2


def folded(cluster: Cluster, events: list[Event]) -> tuple[Cluster, int]:
    """Returns the cluster after the events, and the number of entries copied."""
    copied = 0
    for offset, event in enumerate(events):
        before = cluster
        cluster = apply_cluster(before, Recorded(Offset(offset), 5, Cause("x", REQUEST), event))
        for old, new in ((before.scram, cluster.scram), (before.quotas, cluster.quotas)):
            if old is not new:
                buckets = old.buckets if isinstance(old, BucketMap) else ()
                known = {id(bucket) for bucket in buckets}
                assert isinstance(new, BucketMap)
                copied += sum(len(bucket) for bucket in new.buckets if id(bucket) not in known)
    return cluster, copied


def test_a_user_or_quota_change_copies_only_its_bucket() -> None:
    count = 4 * BUCKETS
    users = [f"u{number}" for number in range(count)]
    set_all: list[Event] = [
        ScramCredentialSet(REQUEST, user, "SCRAM-SHA-256", 4096, b"s", b"k", b"k", "User:a", None) for user in users
    ]
    limit_all: list[Event] = [
        QuotasChanged(REQUEST, (("user", user),), (("request_percentage", 1.0),), (), "User:a", None) for user in users
    ]
    cluster, copied = folded(Cluster(), set_all + limit_all)
    assert (len(cluster.scram), len(cluster.quotas)) == (count, count)
    assert copied < 2 * count * 20, "each change copies a bucket, not half a million entries"
    gone: list[Event] = [ScramCredentialRemoved(REQUEST, user, "SCRAM-SHA-256", "User:a", None) for user in users]
    cluster, copied = folded(cluster, gone)
    assert not cluster.scram
    assert copied < count * 20
