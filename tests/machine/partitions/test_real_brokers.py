"""Stories of partitions on Kafka brokers (KRaft mode): a command per line, with its decision."""

import pytest

from controller.machine.partitions.changes import Reconciliation
from tests.machine.audit.lifecycle import Lives
from tests.machine.in_short import in_short
from tests.machine.rig import Rig
from tests.machine.tables import command, given, play
from tests.machine.walks import check_repeatable

THREE = """
quorum {elr}
join 1
join 2
join 3
unfence 1
unfence 2
unfence 3
create t on=0:1.2.3 conf=min.insync.replicas=2 timeout=0 id=c
"""

STORIES = {
    "a leader is lost, and comes back": """
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        reconcile t                        | nothing
        unfence 1                       | unfenced(1 e1) => NONE 1
        reconcile t                        | nothing
        report t by=2 0:2.3.1:1:1:e2.3.1 | changed(0: isr=2.3.1 e1/2) => NONE 0:NONE
        balance t                       | changed(0: leader=1 e2/3)
        balance t                       | nothing
    """,
    "all replicas are lost one by one, and one that has every record returns": """
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        fence 2                         | fenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=3 isr=3 elr=2 e2/2)
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 isr=- elr=2.3 last_known_elr=3 e3/3)
        unfence 1                       | unfenced(1 e1) => NONE 1
        reconcile t                        | nothing
        unfence 2                       | unfenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=2 isr=2 elr=3 last_known_elr=- e4/4)
    """,
    "a broker in sync comes back without its disk": """
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        fence 2                         | fenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=3 isr=3 elr=2 e2/2)
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 isr=- elr=2.3 last_known_elr=3 e3/3)
        join 2 as=second dirs=21 unclean | registered(2 e4) => NONE 4
        reconcile t                        | changed(0: elr=3 e3/4)
        unfence 2                       | unfenced(2 e4) => NONE 4
        reconcile t                        | nothing
        unfence 3                       | unfenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=3 isr=3 elr=- last_known_elr=- e4/5)
        report t by=3 0:3.2:4:5:e3.2    | => NONE 0:INELIGIBLE_REPLICA
        report t by=3 0:3.2:4:5:e3.4    | changed(0: isr=3.2 e4/6) => NONE 0:NONE
        lies t by=2 0:21                | changed(0: directories=10.21.30 e4/7) => NONE 0:NONE
        lies t by=2 0:21                | => NONE 0:NONE
    """,
    "a broker leaves in order": """
        leave 1                         | leaving(1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        create u 1x3 timeout=0          | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
        report t by=2 0:2.3.1:1:1       | => NONE 0:INELIGIBLE_REPLICA
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | nothing
    """,
    "a log directory fails": """
        join 1 as=second dirs=10.11     | fenced(1 e1) registered(1 e4) => NONE 4
        unfence 1                       | unfenced(1 e4) => NONE 4
        reconcile t                        | nothing
        dirs 1 11                       | logdirschanged(1) => NONE 4
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        lies t by=1 0:99                | changed(0: directories=99.20.30 e1/2) => NONE 0:NONE
        lies t by=1 1:11                | => NONE 1:UNKNOWN_TOPIC_OR_PARTITION
        lies u by=1 0:11                | => NONE 0:UNKNOWN_TOPIC_ID
        lies t by=1 epoch=1 0:11        | => STALE_BROKER_EPOCH
    """,
    "brokers with all log directories cordoned get no new replicas": """
        join 1 as=second dirs=10.11     | fenced(1 e1) registered(1 e4) => NONE 4
        unfence 1                       | unfenced(1 e4) => NONE 4
        dirs 1 10.11 cordoned=10        | logdirschanged(1) => NONE 4
        dirs 1 10.11 cordoned=10        | => NONE 4
        create u 1x3 timeout=0 dry      | => NONE
        dirs 1 10.11 cordoned=10.11     | logdirschanged(1) => NONE 4
        reconcile t                        | nothing
        create u 1x3 timeout=0 id=0     | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
        create u 4x2 timeout=0 id=1     | requested created(2.3 3.2 2.3 3.2) answered => REQUEST_TIMED_OUT
        partitions u to=8               | added(4: 2.3 3.2 2.3 3.2) => NONE
        create v on=0:1.2 timeout=0 id=2| requested created(1.2) answered => REQUEST_TIMED_OUT
        reassign v 0:1.3                | changed(0: replicas=1.3.2 adding=3 removing=2 directories=0.30.20 \
e0/1) => NONE 0:NONE
        settings fewer                  | settings
        create w 1x3 timeout=0 id=3     | requested created(2.3/2.3.-1) answered => REQUEST_TIMED_OUT
        reconcile w                        | nothing
        dirs 1 10.11                    | logdirschanged(1) => NONE 4
        reconcile w                        | changed(0: replicas=2.3.1 e0/1)
        dirs 1 10.11 cordoned=10.11     | logdirschanged(1) => NONE 4
        join 1 as=third dirs=10.11      | fenced(1 e4) registered(1 e5) => NONE 5
    """,
    "a directory is taken away, and its broker makes the replica anew in another one": """
        alter t set:min.insync.replicas=3 | configs(min.insync.replicas=3) => NONE
        join 1 as=second dirs=10.11     | fenced(1 e1) registered(1 e4) => NONE 4
        unfence 1                       | unfenced(1 e4) => NONE 4
        lies t by=1 0:11                | changed(0: directories=11.20.30 e0/1) => NONE 0:NONE
        fence 1                         | fenced(1 e4) => NONE 4
        reconcile t                        | changed(0: leader=2 isr=2.3 elr=1 e1/2)
        join 1 as=third dirs=10         | registered(1 e5) => NONE 5
        unfence 1                       | unfenced(1 e5) => NONE 5
        reconcile t                        | nothing
        lies t by=1 0:10                | changed(0: elr=- directories=10.20.30 e1/3) => NONE 0:NONE
        fence 2                         | fenced(2 e2) => NONE 2
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 isr=- elr=2.3 last_known_elr=2 e2/4)
    """,
    "a broker that is not live yet says so before its partition was looked at": """
        join 1 as=second dirs=11        | fenced(1 e1) registered(1 e4) => NONE 4
        lies t by=1 0:11                | changed(0: leader=2 isr=2.3 directories=11.20.30 e1/1) => NONE 0:NONE
        reconcile t                        | nothing
    """,
    "a replica moves to another directory, and both work": """
        alter t set:min.insync.replicas=3 | configs(min.insync.replicas=3) => NONE
        join 1 as=second dirs=10.11     | fenced(1 e1) registered(1 e4) => NONE 4
        reconcile t                        | changed(0: leader=2 isr=2.3 elr=1 e1/1)
        unfence 1                       | unfenced(1 e4) => NONE 4
        lies t by=1 0:11                | changed(0: directories=11.20.30 e1/2) => NONE 0:NONE
    """,
    "a partition moves to another broker": """
        join 4                          | registered(4 e4) => NONE 4
        unfence 4                       | unfenced(4 e4) => NONE 4
        lies t by=4 0:40                | => NONE 0:NOT_LEADER_OR_FOLLOWER
        reassign t 0:4.2.3              | changed(0: replicas=4.2.3.1 adding=4 removing=1 directories=40.20.30.10 \
e0/1) => NONE 0:NONE
        reassign t 0:4.2.3              | => NONE 0:NONE
        report t by=1 0:1.2.3.4:0:0     | => NONE 0:INVALID_UPDATE_VERSION
        report t by=1 0:1.2.3.4:0:1     | changed(0: leader=4 isr=2.3.4 replicas=4.2.3 adding=- removing=- \
directories=40.20.30 e1/2) => NONE 0:NEW_LEADER_ELECTED
        reassign t 0:cancel             | => NONE 0:NO_REASSIGNMENT_IN_PROGRESS
        reassign t 0:3.2.4              | changed(0: replicas=3.2.4 directories=30.20.40 e1/3) => NONE 0:NONE
        reassign t 0:3.2.1              | changed(0: replicas=3.2.1.4 adding=1 removing=4 directories=30.20.10.40 \
e1/4) => NONE 0:NONE
        reassign t 0:cancel             | changed(0: leader=4 replicas=3.2.4 adding=- removing=- directories=30.20.40 \
e2/5) => NONE 0:NONE
        reassign t same-factor 0:3.2    | => NONE 0:INVALID_REPLICATION_FACTOR
        reassign t 0:3.9                | => NONE 0:INVALID_REPLICA_ASSIGNMENT
        reassign t 0:- 1:2              | => NONE 0:INVALID_REPLICA_ASSIGNMENT 1:UNKNOWN_TOPIC_OR_PARTITION
        reassign u 0:1                  | => NONE 0:UNKNOWN_TOPIC_OR_PARTITION
    """,
    "who led last is no replica any more, since its reassignment was cancelled": """
        join 4                          | registered(4 e4) => NONE 4
        unfence 4                       | unfenced(4 e4) => NONE 4
        join 5                          | registered(5 e5) => NONE 5
        unfence 5                       | unfenced(5 e5) => NONE 5
        reassign t 0:4.5.3              | changed(0: replicas=4.5.3.1.2 adding=4.5 removing=1.2 \
directories=40.50.30.10.20 e0/1) => NONE 0:NONE
        report t by=1 0:1.4:0:1         | changed(0: isr=1.4 e0/2) => NONE 0:NONE
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=4 isr=4 elr=1 e1/3)
        fence 4                         | fenced(4 e4) => NONE 4
        reconcile t                        | changed(0: leader=-1 isr=- elr=1.4 last_known_elr=4 e2/4)
        join 1 as=second dirs=10 unclean | registered(1 e6) => NONE 6
        reconcile t                        | changed(0: elr=4 e2/5)
        join 4 as=second dirs=40 unclean | registered(4 e7) => NONE 7
        reconcile t                        | changed(0: elr=- e2/6)
        fence 5                         | fenced(5 e5) => NONE 5
        fence 2                         | fenced(2 e2) => NONE 2
        fence 3                         | fenced(3 e3) => NONE 3
        alter t set:unclean.leader.election.enable=true | configs(min.insync.replicas=2 \
unclean.leader.election.enable=true) => NONE
        reassign t 0:cancel             | changed(0: leader=-1 isr=3 replicas=3.1.2 adding=- removing=- \
directories=30.10.20 e3/7) => NONE 0:NONE
        alter t delete:unclean.leader.election.enable | configs(min.insync.replicas=2) changed(0: isr=- elr=3 \
e3/8) => NONE
        join 3 as=second dirs=30 unclean | registered(3 e8) => NONE 8
        reconcile t                        | changed(0: elr=- e3/9)
        unfence 4                       | unfenced(4 e7) => NONE 7
        reconcile t                        | nothing
        unfence 3                       | unfenced(3 e8) => NONE 8
        reconcile t                        | nothing
    """,
    "all are lost at once, and where one in sync is enough nobody else stays eligible": """
        alter t set:min.insync.replicas=1 | configs(min.insync.replicas=1) => NONE
        fence 1                         | fenced(1 e1) => NONE 1
        fence 2                         | fenced(2 e2) => NONE 2
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 isr=- elr=1.2.3 last_known_elr=1 e1/1)
        unfence 2                       | unfenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=2 isr=2 elr=- last_known_elr=- e2/2)
    """,
    "fewer in sync are enough, and the one that is goes before the partition was looked at": """
        alter t delete:min.insync.replicas | configs() => NONE
        configure 4: set:min.insync.replicas=2 | configs(4: min.insync.replicas=2) => NONE
        fence 1                         | fenced(1 e1) => NONE 1
        fence 2                         | fenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=3 isr=3 elr=1.2 e1/1)
        configure 4: set:min.insync.replicas=1 | configs(4: min.insync.replicas=1) => NONE
        unfence 2                       | unfenced(2 e2) => NONE 2
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 isr=- elr=3 last_known_elr=3 e2/2)
    """,
    "eligible leaders are switched off while nobody else has all records": """
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        fence 2                         | fenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=3 isr=3 elr=2 e2/2)
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 isr=- elr=2.3 last_known_elr=3 e3/3)
        features metadata.version=30    | features(metadata.version=30) => NONE
        unfence 1                       | unfenced(1 e1) => NONE 1
        reconcile t                        | nothing
        join 3 as=second dirs=31 unclean | registered(3 e4) => NONE 4
        reconcile t                        | changed(0: elr=2 e3/4)
        unfence 3                       | unfenced(3 e4) => NONE 4
        reconcile t                        | nothing
        unfence 2                       | unfenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=2 isr=2 elr=- e4/5)
    """,
    "elections that are requested": """
        elect t 0                       | => NONE 0:ELECTION_NOT_NEEDED
        elect t 0 unclean               | => NONE 0:ELECTION_NOT_NEEDED
        elect t 0.1                     | => NONE 0:ELECTION_NOT_NEEDED 1:UNKNOWN_TOPIC_OR_PARTITION
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        elect t 0                       | => NONE 0:PREFERRED_LEADER_NOT_AVAILABLE
        unfence 1                       | unfenced(1 e1) => NONE 1
        report t by=2 0:1.2.3:1:1       | changed(0: isr=1.2.3 e1/2) => NONE 0:NONE
        elect t 0                       | changed(0: leader=1 e2/3) => NONE 0:NONE
    """,
    "reports that do not fit": """
        report t by=1 epoch=9 0:1:0:0   | => STALE_BROKER_EPOCH
        report t by=9 0:1:0:0           | => STALE_BROKER_EPOCH
        report t by=1 other 0:1:0:0     | => NONE 0:UNKNOWN_TOPIC_ID
        report t by=1 0:1:0:0:recovering | => NONE 0:INVALID_REQUEST
        report t by=1 0:1.2.3:0:0       | => NONE 0:NONE
    """,
    "ids, features and configs": """
        producers 1                     | ids(0-999 for 1) => NONE
        producers 2                     | ids(1000-1999 for 2) => NONE 1000
        producers 2 epoch=1             | => STALE_BROKER_EPOCH
        quorum elr                      | quorum(e2)
        configure 4:1 set:log.retention.ms=5 | configs(4:1 log.retention.ms=5) => NONE
        configure 4:1 set:log.retention.ms=5 | => NONE
        configure 4:1 append:listeners=A | configs(4:1 listeners=PLAINTEXT://:9092,A log.retention.ms=5) => NONE
        configure 4:1 append:log.retention.ms=6 | => INVALID_CONFIG validation:configs
        configure 4:9 set:a=b           | => BROKER_ID_NOT_REGISTERED validation:alter-request
        configure 4:x set:a=b           | => INVALID_REQUEST validation:alter-request
        configure 4:1 delete:log.retention.ms dry | => NONE
        configure 4:1 set:a=b replace   | configs(4:1 a=b) => NONE
        configure 4: set:a=b denied=31  | => CLUSTER_AUTHORIZATION_FAILED authorizer
        configure 32:g set:share.auto.offset.reset=latest | configs(32:g share.auto.offset.reset=latest) => NONE
        configure 16: set:a=b           | => INVALID_REQUEST validation:alter-request
        configure 4: set:min.insync.replicas=3 | configs(4: min.insync.replicas=3) => NONE
        features metadata.version=30    | features(metadata.version=30) => NONE
        features metadata.version=30    | => NONE
    """,
}

WITHOUT_ELIGIBLE = {
    "the last member stays in sync": """
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=2 isr=2.3 e1/1)
        fence 2                         | fenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=3 isr=3 e2/2)
        fence 3                         | fenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=-1 e3/3)
        unfence 2                       | unfenced(2 e2) => NONE 2
        reconcile t                        | nothing
        unfence 3                       | unfenced(3 e3) => NONE 3
        reconcile t                        | changed(0: leader=3 e4/4)
    """,
    "whoever is left leads if the topic says so, and must recover": """
        report t by=1 0:1:0:0           | changed(0: isr=1 e0/1) => NONE 0:NONE
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=-1 e1/2)
        elect t 0                       | => NONE 0:PREFERRED_LEADER_NOT_AVAILABLE
        alter t set:unclean.leader.election.enable=true | configs(min.insync.replicas=2 \
unclean.leader.election.enable=true) changed(0: leader=2 isr=2 recovering e2/3) => NONE
        report t by=2 0:2.3:2:3:recovering | => NONE 0:INVALID_REQUEST
        report t by=2 0:2:2:3           | changed(0: recovered e2/4) => NONE 0:NONE
    """,
    "an unclean election that is requested": """
        report t by=1 0:1:0:0           | changed(0: isr=1 e0/1) => NONE 0:NONE
        fence 1                         | fenced(1 e1) => NONE 1
        reconcile t                        | changed(0: leader=-1 e1/2)
        fence 2                         | fenced(2 e2) => NONE 2
        fence 3                         | fenced(3 e3) => NONE 3
        elect t 0 unclean               | => NONE 0:ELIGIBLE_LEADERS_NOT_AVAILABLE
        unfence 3                       | unfenced(3 e3) => NONE 3
        elect t 0 unclean               | changed(0: leader=3 isr=3 recovering e2/3) => NONE 0:NONE
    """,
}


def _play(elr: str, story: str) -> Rig:
    rig = given("")
    for line in THREE.format(elr=elr).strip().splitlines():
        rig.put(command(rig, line))
    play(rig, story.replace("\\\n", "").strip().splitlines())
    Lives().see_all(rig.log)
    check_repeatable(rig.log)
    return rig


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_partition_changes_with_eligible_leader_replicas(story: str) -> None:
    _play("elr", story)


@pytest.mark.parametrize("story", WITHOUT_ELIGIBLE.values(), ids=WITHOUT_ELIGIBLE)
def test_partition_changes_without_eligible_leader_replicas(story: str) -> None:
    _play("", story)


def test_elr_is_cleared_when_min_insync_replicas_is_lowered() -> None:
    """The change of the cluster config makes topics unreconciled. The next reconcile clears the ELR."""
    rig = _play("elr", """
        alter t delete:min.insync.replicas | configs() => NONE
        configure 4: set:min.insync.replicas=2 | configs(4: min.insync.replicas=2) => NONE
        fence 1                         | fenced(1 e1) => NONE 1
        fence 2                         | fenced(2 e2) => NONE 2
        reconcile t                        | changed(0: leader=3 isr=3 elr=1.2 e1/1)
    """)  # fmt: skip
    assert Reconciliation(rig.state.cluster).is_reconciled(rig.topic("t"))
    rig.put(command(rig, "configure 4: set:min.insync.replicas=1"))
    assert not Reconciliation(rig.state.cluster).is_reconciled(rig.topic("t"))
    assert in_short(rig.put(command(rig, "reconcile t"))) == "changed(0: elr=- e1/2)"
    assert Reconciliation(rig.state.cluster).is_reconciled(rig.topic("t"))


def test_filled_placeholders_have_the_brokers_log_directories() -> None:
    rig = given("fewer")
    for line in ("quorum elr", "join 1", "join 2", "unfence 1", "create t 1x3 timeout=0", "unfence 2"):
        rig.put(command(rig, line))
    assert in_short(rig.put(command(rig, "reconcile t"))) == "changed(0: replicas=1.2.-2 directories=10.20.0 e0/1)"


def test_elr_requires_one_min_insync_replicas_for_all_brokers() -> None:
    rig = given("minisr=2")
    first = in_short(rig.put(command(rig, "quorum")))
    assert first == "quorum(e1) features(metadata.version=30)"
    for line in ("join 1", "configure 4:1 set:min.insync.replicas=1 set:a=b"):
        rig.put(command(rig, line))
    raised = "features eligible.leader.replicas.version=1 metadata.version=30"
    assert in_short(rig.put(command(rig, raised))) == (
        "features(eligible.leader.replicas.version=1 metadata.version=30) configs(4:1 a=b) "
        "configs(4: min.insync.replicas=2) => NONE"
    )
    for kept, change in (("", "delete:min.insync.replicas"), ("1", "set:min.insync.replicas=1")):
        refused = in_short(rig.put(command(rig, f"configure 4:{kept} {change}")))
        assert refused == "=> INVALID_CONFIG validation:alter-request"
    assert in_short(rig.put(command(rig, raised + " group.version=1"))).startswith("features(eligible")
