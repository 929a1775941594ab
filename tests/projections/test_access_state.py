"""Entries and quotas are kept one by one, and are there again after a start."""

from __future__ import annotations

from controller.machine.access.acls import Acls
from controller.machine.state import Cluster
from events.access import QuotaEntity
from projections.store.access_state import ACL, QUOTA, put_access
from projections.store.store import TopicStore
from tests.machine.access.tables import acl
from tests.projections.logs import kept, story

ENTRIES = [acl(f"u{number}/allow/read/topic/t{number % 7}") for number in range(50)]
BOB: QuotaEntity = (("user", "bob"),)


def changes(before: Cluster, after: Cluster) -> dict[bytes, bytes | None]:
    puts: dict[bytes, bytes | None] = {}
    put_access(puts, before, after)
    return puts


def test_a_change_writes_what_it_changes() -> None:
    before = Cluster(acls=Acls().with_all(ENTRIES))
    more = Cluster(acls=before.acls.with_all([acl("new/allow/read/topic/t1")]))
    fewer = Cluster(acls=before.acls.without(ENTRIES[:2]))
    assert [value for key, value in changes(before, more).items() if key.startswith(ACL)] == [b""]
    assert list(changes(before, fewer).values()) == [None, None]
    assert changes(before, before) == {}
    limited = before.with_quotas(BOB, (("controller_mutation_rate", 2.5),))
    assert [key[:1] for key in changes(before, limited)] == [QUOTA]
    assert list(changes(limited, limited.with_quotas(BOB, ())).values()) == [None]


STORY = """
1
acls bob/allow/read/topic/a… bob/deny/all/topic/*/10.0.0.7 eve/allow/create/cluster/kafka-cluster
unacls topic/match/abc/bob/read
quotas user:bob/controller_mutation_rate=2.5 client-id:<default>/request_percentage=7
quotas user:bob/controller_mutation_rate=-
create t 1x1
"""


def test_what_is_kept_is_there_after_a_start() -> None:
    rig = story(STORY)
    log, store = kept(rig.log)
    for cluster in (store.durable_cluster, TopicStore(log).state().cluster):
        assert set(cluster.acls) == set(rig.state.cluster.acls)
        assert (cluster.acls.count, cluster.quotas) == (2, {(("client-id", None),): (("request_percentage", 7.0),)})
        assert list(cluster.acls.over(2, "abc")) == list(rig.state.cluster.acls.over(2, "abc"))
