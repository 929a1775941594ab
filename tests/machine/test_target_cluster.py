"""Decisions with a target cluster: its own changes, its refusals, and dry runs."""

import pytest

from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.tables import given, play, stories

STORIES = """
# a create is put again with the cluster's word, and is complete when the cluster's brokers know it under its own id
1 2 3 cluster
    create t 1x3 | needs_approval
    create t 1x3 dry | needs_approval
    create t 1x3 clear=0 id=q1 | requested created(3.1.2)
    seen t 3.1.2::3:0 | discovered(3.1.2 led by 3e0/0)
    seen t 3.1.2::3:0 | nothing
    confirm 1 2 3 | known(1.2.3) ready answered => NONE after 3 ms

# what the cluster would refuse is a rejection with its code; rules of our own come first, and do not needs_approval it
1 2 3 cluster
    create t 1x3 clear=44 | refused => POLICY_VIOLATION cluster
    create t 1x3 clear=44 dry | => POLICY_VIOLATION cluster
    create t 0x3 id=q2 | refused => INVALID_PARTITIONS validation:partitions

# policies are consulted first, then the cluster
1 2 3 cluster policy
    create t 1x3 clear=0 | needs_approval
    create t 1x3 verdict=allowed | needs_approval
    create t 1x3 verdict=refused id=q1 | refused => POLICY_VIOLATION policy:names
    create t 1x3 verdict=allowed clear=0 id=q2 | requested created(3.1.2)

# a refusal after the decision takes the topic back, and its client is answered; one that is of another topic does not
1 2 3 cluster
    create t 1x3 clear=0 | requested created(3.1.2)
    refuse t code=44 topic-id=other | nothing
    refuse t code=44 | creation-refused(44) answered => POLICY_VIOLATION after 2 ms
    refuse t code=44 | nothing
    create t 1x3 clear=0 timeout=0 id=q2 | requested created(3.1.2) answered => REQUEST_TIMED_OUT
    refuse t code=-1 | creation-refused(-1)

# changes are answered when they are carried out, refused ones with the cluster's code; what is then seen becomes true
1 2 3 cluster
    seen t 1.2.3::1:0 conf= | discovered(1.2.3 led by 1e0/0)
    partitions t to=2 | needs_approval
    partitions t to=2 dry clear=0 | => NONE
    partitions t to=2 clear=37 | rejected => INVALID_PARTITIONS cluster
    partitions t to=1 | rejected => INVALID_PARTITIONS validation:partitions
    partitions t to=2 clear=0 id=q1 | added(1: 1.2.3)
    done t id=q1 code=39 | carried-out(39) => INVALID_REPLICA_ASSIGNMENT cluster
    seen t 1.2.3::1:0 conf= | discovered(1.2.3 led by 1e0/0)
    alter t set:retention.ms=5 | needs_approval
    alter t set:retention.ms=5 clear=0 id=q2 | configs(retention.ms=5)
    done t id=q2 | carried-out(0) => NONE
    alter t set:retention.ms=5 | => NONE
    delete t id=q3 | deleted
    done t id=q3 | carried-out(0) => NONE

# labels are not of the cluster: what it has replaces the configs, and keeps the labels
1 2 3 cluster
    seen t 1.2.3::1:0 conf= | discovered(1.2.3 led by 1e0/0)
    alter t set:label.owner=pay clear=0 id=q2 | configs(label.owner=pay)
    done t id=q2 | carried-out(0) => NONE
    seen t 1.2.3::1:0 conf= | nothing

# a deletion that the cluster refuses: the topic is found again
1 2 3 cluster
    seen t 1.2.3::1:0 conf= | discovered(1.2.3 led by 1e0/0)
    delete t id=q1 | deleted
    done t id=q1 code=73 | carried-out(73) => TOPIC_DELETION_DISABLED cluster
    seen t 1.2.3::1:0 conf= | discovered(1.2.3 led by 1e0/0)

# leaders are the cluster's: a reconcile elects none, and single steps are seen as elections and in-sync sets
1 2 3 cluster
    seen t 1.2.3::1:0 2.3.1::2:4 conf= | discovered(1.2.3 2.3.1 led by 1e0/0 2e4/0)
    fence 1 | fenced(1 e1)
    reconcile t | nothing
    seen t 1.2.3:2.3:2:1 2.3.1:2.3:2:4 | changed(0: leader=2 isr=2.3 e1/1) changed(1: isr=2.3 e4/1)
    seen t 1.2.3:2.3:2:0 2.3.1:2.3:2:4 | nothing
    seen t 1.2.3:3:3:4 2.3.1:2.3:2:5 | discovered(3/1.2.3 2.3/2.3.1 led by 3e4/2 2e5/2)
    seen t 1.2.3:3:-1:5 2.3.1:2.3:2:5 | changed(0: leader=-1 e5/3)

# a leader of which it is not known yet that it lives is not taken over
1 2 3! cluster
    seen t 3.1:3.1:3:2 conf= | discovered(3.1 led by -1e2/0)
    seen t 3.1:3.1:3:2 | nothing
    unfence 3 | unfenced(3 e3)
    seen t 3.1:3.1:3:2 | discovered(3.1 led by 3e2/1)

# deleted behind our back, made anew behind our back, and looks that are out of date
1 2 3 cluster
    seen t 1.2::1:0 conf=retention.ms=5 | discovered(1.2 led by 1e0/0 retention.ms=5)
    gone t topic-id=other | nothing
    gone t | vanished
    gone t | nothing
    seen t 1.2::1:0 known=stale conf= | nothing
    seen t 1.2::1:0 | nothing
    seen t 1.2::1:0 conf= | discovered(1.2 led by 1e0/0)
    seen t 2.1::2:0 topic-id=other | nothing
    seen t 2.1::2:0 topic-id=other conf= | vanished discovered(2.1 led by 2e0/0)
    seen t 2.1.3::2:0 2.1.3::2:0 topic-id=other known=stale | nothing
    seen t 2.1.3::2:0 1.2::1:0 topic-id=other conf=retention.ms=6 | \
discovered(2.1.3 1.2 led by 2e0/1 1e0/0 retention.ms=6)

# a create that waits is answered when its topic vanishes
1 2 3 cluster
    create t 1x1 clear=0 | requested created(3)
    seen t 3::3:0 | discovered(3 led by 3e0/0)
    confirm 1 | known(1)
    gone t | vanished answered => UNKNOWN_TOPIC_OR_PARTITION after 3 ms

# names that collide cannot stand beside each other: the create will be refused by the cluster
1 2 3 cluster
    create a.b 1x1 clear=0 id=q1 | requested created(2)
    seen a_b 3::3:0 conf= | nothing
    refuse a.b code=17 | creation-refused(17) answered => INVALID_TOPIC_EXCEPTION after 2 ms
    seen a_b 3::3:0 conf= | discovered(3 led by 3e0/0)

# placeholders (KIP-409): the cluster has the live replicas, the places stay, and are filled by decision
1 2 cluster fewer
    create t 1x3 clear=0 | requested created(1.2/1.2.-1)
    seen t 1.2::1:0 | discovered(1.2/1.2.-1 led by 1e0/0)
    confirm 1 2 | known(1.2) ready answered => NONE after 2 ms
    seen t 1.2::1:0 | nothing
    register 3 | registered(3 e3)
    unfence 3 | unfenced(3 e3)
    reconcile t | changed(0: replicas=1.2.3 e0/1)
    seen t 1.2.3:1.2:1:0 | nothing
    seen t 1.2.3:1.2.3:1:0 | changed(0: isr=1.2.3 e0/2)

# what others filled by hand needs no place any more; what is in sync nowhere keeps its last member (KIP-966)
1 2 cluster fewer
    create t 1x3 clear=0 | requested created(1.2/1.2.-1)
    register 3 | registered(3 e3)
    unfence 3 | unfenced(3 e3)
    seen t 3.2.1::3:0 | discovered(3.2.1 led by 3e0/1)
    seen t 3.2.1:3:3:0 | changed(0: isr=3 e0/2)
"""


@pytest.mark.parametrize(("about", "lines"), stories(STORIES))
def test_decision_stories_with_a_target_cluster(about: str, lines: list[str]) -> None:
    rig = given(lines[0])
    play(rig, lines[1:], restarts=True)
    assert audit(rig.log) == []
    Lives().see_all(rig.log)
