"""Sequences of decisions as stories: brokers join and stop, creates wait, deadlines expire.

A story begins with the initial state (see `tables`). Each further line is a command with its decision.
"""

import pytest

from tests.machine.tables import given, play, stories

STORIES = """
# placeholders for CreatePartitions too; the factor counts them (KIP-409)
1 2 3 has:t:1x3 fewer
    fence 2 | fenced(2 e2)
    reconcile t | changed(0: isr=3.1 e0/1)
    partitions t to=2 | added(1: 3.1/3.1.-1) => NONE
    fence 3 | fenced(3 e3)
    partitions t to=3 | added(2: 1/1.-1.-2) => NONE
    unfence 2 | unfenced(2 e2)
    reconcile t | changed(0: leader=1 isr=1 e1/2) changed(1: leader=1 isr=1 replicas=3.1.2 e1/1) changed(2: replicas=1.2.-2 e0/1)
    unfence 3 | unfenced(3 e3)
    reconcile t | changed(2: replicas=1.2.3 e0/2)
    reconcile t | nothing

# without the setting CreatePartitions needs as many live brokers as the factor
1 2 3 has:t:1x3
    fence 2 | fenced(2 e2)
    partitions t to=2 | rejected => INVALID_REPLICATION_FACTOR validation:live-brokers
    partitions t to=2 on=1.2.3 | added(1: 1.3/1.2.3) => NONE

# the floor of CreatePartitions is the topic's own min.insync.replicas
1 2 3 has:t:1x3 fewer
    alter t set:min.insync.replicas=2 | configs(min.insync.replicas=2) => NONE
    fence 2 | fenced(2 e2)
    fence 3 | fenced(3 e3)
    partitions t to=2 | rejected => INVALID_REPLICATION_FACTOR validation:under-replicated-floor
    unfence 3 | unfenced(3 e3)
    partitions t to=2 | added(1: 3.1/3.1.-1) => NONE

# several brokers join at once: each placeholder gets one, racks that are not used first
1@a fewer
    create t 2x3 | requested created(1/1.-1.-2 1/1.-1.-2)
    register 2 rack=a | registered(2 e2)
    unfence 2 | unfenced(2 e2)
    register 3 rack=b | registered(3 e3)
    unfence 3 | unfenced(3 e3)
    register 4 rack=c | registered(4 e4)
    unfence 4 | unfenced(4 e4)
    reconcile t | changed(0: replicas=1.3.4 e0/1) changed(1: replicas=1.4.3 e0/1)
    reconcile t | nothing

# one broker joins: one placeholder of each partition is filled, the other waits
1 fewer
    create t 2x3 | requested created(1/1.-1.-2 1/1.-1.-2)
    register 2 | registered(2 e2)
    unfence 2 | unfenced(2 e2)
    reconcile t | changed(0: replicas=1.2.-2 e0/1) changed(1: replicas=1.2.-2 e0/1)
    register 3 | registered(3 e3)
    unfence 3 | unfenced(3 e3)
    reconcile t | changed(0: replicas=1.2.3 e0/2) changed(1: replicas=1.2.3 e0/2)

# a rack that a fenced replica holds counts as used
1@a 2@b has:t:1x2 fewer
    create u on=0:1.2 | requested created(1.2)
    fence 2 | fenced(2 e2)
    create v 1x3 | requested created(1/1.-1.-2)
    unfence 2 | unfenced(2 e2)
    fence 1 | fenced(1 e1)
    reconcile v | changed(0: leader=-1 replicas=1.2.-2 e1/1)
    register 3 rack=a | registered(3 e3)
    unfence 3 | unfenced(3 e3)
    register 4 rack=c | registered(4 e4)
    unfence 4 | unfenced(4 e4)
    reconcile v | changed(0: replicas=1.2.4 e1/2)

# a filled replica is in sync when its leader says so; old epochs change nothing
1 fewer
    create t 1x2 | requested created(1/1.-1)
    register 2 | registered(2 e2)
    unfence 2 | unfenced(2 e2)
    reconcile t | changed(0: replicas=1.2 e0/1)
    isr t by=1 0:1.2:0:0 | nothing
    isr t by=1 0:1.2:0:2 | nothing
    isr t by=1 0:1.2:1:1 | nothing
    isr t by=2 0:1.2:0:1 | nothing
    isr t by=1 0:1.2:0:1 | changed(0: isr=1.2 e0/2)
    isr t by=1 0:1.2:0:2 | nothing

# two reports of one partition in one command: the second is on top of the first, its epoch is old
1 2 3 has:t:1x3
    isr t by=3 0:3:0:0 0:3.1:0:0 | changed(0: isr=3 e0/1)
    isr t by=3 0:3.1:0:1 0:3.1.2:0:2 | changed(0: isr=3.1 e0/2) changed(0: isr=3.1.2 e0/3)
    isr u by=3 0:3:0:0 | nothing

# a leader dies: the next in-sync replica leads; its in-sync set loses it
1 2 3 has:t:1x3
    fence 3 | fenced(3 e3)
    reconcile t | changed(0: leader=1 isr=1.2 e1/1)
    unfence 3 | unfenced(3 e3)
    reconcile t | nothing
    isr t by=1 0:1.2.3:1:1 | changed(0: isr=1.2.3 e1/2)

# a follower dies: the same leader, a smaller in-sync set
1 2 3 has:t:1x3
    fence 1 | fenced(1 e1)
    reconcile t | changed(0: isr=3.2 e0/1)

# the last of the in-sync set dies: no leader, and the set keeps it until it returns
1 2 has:t:1x2
    fence 1 | fenced(1 e1)
    reconcile t | changed(0: leader=2 isr=2 e1/1)
    fence 2 | fenced(2 e2)
    reconcile t | changed(0: leader=-1 e2/2)
    unfence 1 | unfenced(1 e1)
    reconcile t | nothing
    unfence 2 | unfenced(2 e2)
    reconcile t | changed(0: leader=2 e3/3)

# all die before anybody looks: the set stays whole
1 2 has:t:1x2
    fence 1 | fenced(1 e1)
    fence 2 | fenced(2 e2)
    reconcile t | changed(0: leader=-1 e1/1)
    unfence 2 | unfenced(2 e2)
    reconcile t | changed(0: leader=2 isr=2 e2/2)

# unclean election, where the topic allows it
1 2 has:t:1x2
    alter t set:unclean.leader.election.enable=TRUE | configs(unclean.leader.election.enable=true) => NONE
    fence 1 | fenced(1 e1)
    reconcile t | changed(0: leader=2 isr=2 e1/1)
    fence 2 | fenced(2 e2)
    unfence 1 | unfenced(1 e1)
    reconcile t | changed(0: leader=1 isr=1 e2/2)

# unclean election is the last resort: a member of the in-sync set comes first
1 2 3 has:t:1x3 unclean.leader.election.enable=true
    isr t by=3 0:3.2:0:0 | changed(0: isr=3.2 e0/1)
    fence 3 | fenced(3 e3)
    reconcile t | changed(0: leader=2 isr=2 e1/2)
    fence 2 | fenced(2 e2)
    reconcile t | changed(0: leader=1 isr=1 e2/3)

# unclean election allowed when the leader is gone already: at once
1 2 3 has:t:1x2
    fence 1 | fenced(1 e1)
    reconcile t | changed(0: isr=3 e0/1)
    fence 3 | fenced(3 e3)
    reconcile t | changed(0: leader=-1 e1/2)
    unfence 1 | unfenced(1 e1)
    reconcile t | nothing
    alter t set:retention.ms=5 | configs(retention.ms=5) => NONE
    alter t set:unclean.leader.election.enable=true dry | => NONE
    alter t set:unclean.leader.election.enable=true | configs(retention.ms=5 unclean.leader.election.enable=true) changed(0: leader=1 isr=1 e2/3) => NONE

# unclean election, where the cluster allows it and the topic does not
1 2 has:t:1x2 unclean.leader.election.enable=true
    alter t set:unclean.leader.election.enable=false | configs(unclean.leader.election.enable=false) => NONE
    fence 1 | fenced(1 e1)
    reconcile t | changed(0: leader=2 isr=2 e1/1)
    fence 2 | fenced(2 e2)
    unfence 1 | unfenced(1 e1)
    reconcile t | changed(0: leader=-1 e2/2)

# a broker is forgotten: its replicas stay, it leads no more
1 2 has:t:1x2
    unregister 2 | unregistered(2 e2)
    reconcile t | changed(0: isr=1 e0/1)
    unregister 2 | => BROKER_ID_NOT_REGISTERED
    fence 2 | => BROKER_ID_NOT_REGISTERED
    unfence 2 | => BROKER_ID_NOT_REGISTERED
    register 2 | registered(2 e3)
    reconcile t | nothing
    unfence 2 | unfenced(2 e3)
    reconcile t | nothing

# brokers register, again, and as another incarnation
1
    register 1 | nothing
    register 1 as=second | fenced(1 e1) registered(1 e2)
    unfence 1 | unfenced(1 e2)
    unfence 1 | nothing
    register 1 as=second rack=r | fenced(1 e2) registered(1 e3)
    fence 1 | nothing
    fence 1 | nothing
    unfence 7 | => BROKER_ID_NOT_REGISTERED
    fence 7 | => BROKER_ID_NOT_REGISTERED
    unregister 7 | => BROKER_ID_NOT_REGISTERED

# a create is complete when every live broker has it
1 2 3
    create t 1x1 id=w | requested created(3)
    confirm 1 upto=0 | nothing
    confirm 1 | known(1)
    confirm 1 | nothing
    confirm 2 | known(2)
    confirm 3 | known(3) ready answered => NONE after 5 ms
    confirm 1 2 3 | nothing

# all at once
1 2 3
    create t 1x1 id=w | requested created(3)
    create u 1x1 id=w | requested created(1)
    confirm 1 2 3 | known(1.2.3) ready answered known(1.2.3) ready answered => NONE after 2 ms => NONE after 1 ms

# a live broker that does not have it is fenced: the others are enough
1 2 3
    create t 1x1 id=w | requested created(3)
    confirm 1 2 3 upto=7 | nothing
    confirm 1 3 | known(1.3)
    fence 2 | fenced(2 e2)
    reconcile t | ready answered => NONE after 4 ms

# a broker that becomes live meanwhile must have it too
1 2!
    create t 1x1 id=w | requested created(1)
    unfence 2 | unfenced(2 e2)
    confirm 1 | known(1)
    confirm 2 | known(2) ready answered => NONE after 3 ms

# a fenced broker that applied it counts once it is live
1 2!
    create t 1x1 id=w | requested created(1)
    confirm 2 | known(2)
    unfence 2 | unfenced(2 e2)
    confirm 1 | known(1) ready answered => NONE after 3 ms

# a leader that died before all knew: complete only under another leader
1 2 3
    create t 1x2 id=w | requested created(3.1)
    confirm 1 2 | known(1.2)
    fence 3 | fenced(3 e3)
    confirm 1 2 | nothing
    reconcile t | changed(0: leader=1 isr=1 e1/1) ready answered => NONE after 4 ms

# no broker is left: not complete, whatever was confirmed
1
    create t 1x1 id=w | requested created(1)
    fence 1 | fenced(1 e1)
    confirm 1 | known(1)
    reconcile t | changed(0: leader=-1 e1/1)
    unfence 1 | unfenced(1 e1)
    reconcile t | changed(0: leader=1 e2/2) ready answered => NONE after 5 ms

# the deadline passes: how far it came; it may be complete later, and nobody is answered twice
1 2
    create t 1x1 id=w timeout=100 | requested created(1)
    expire t id=w | nothing
    expire t id=other at=200 | nothing
    expire t id=w at=200 | answered => REQUEST_TIMED_OUT after 201 ms
    expire t id=w at=300 | nothing
    confirm 1 2 | known(1.2) ready
    expire t id=w at=400 | nothing

# complete first: the deadline finds nobody
1
    create t 1x1 id=w timeout=100 | requested created(1)
    confirm 1 | known(1) ready answered => NONE after 1 ms
    expire t id=w at=200 | nothing
    expire u id=w at=200 | nothing

# the same request has names that collide: the one that waits still gets its answer
1
    create a.b 1x1 id=w | requested created(1)
    create a_b 1x1 id=w | refused => INVALID_TOPIC_EXCEPTION validation:collision
    confirm 1 | known(1) ready answered => NONE after 2 ms

# deleted, and created again: each create gets its own answer
1
    create t 1x1 id=w1 | requested created(1)
    delete t | deleted answered => NONE => UNKNOWN_TOPIC_OR_PARTITION after 1 ms
    create t 1x1 id=w2 | requested created(1)
    expire t id=w1 at=5000 | nothing
    confirm 1 | known(1) ready answered => NONE after 1 ms

# effective settings are not recorded again; a new release is
1
    settings | nothing
    settings num.partitions=3 | settings
    settings num.partitions=3 | nothing
    settings 2.0 num.partitions=3 | settings
    create t | requested created(1 1 1)

# names that are not there, and the same name twice, in a reconcile
1 2 has:t:1x2
    fence 2 | fenced(2 e2)
    reconcile u t t | changed(0: isr=1 e0/1)
"""  # noqa: E501 - what comes of a command is one line


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "restarts"])
@pytest.mark.parametrize(("name", "lines"), stories(STORIES))
def test_decision_stories_of_creates_and_brokers(name: str, lines: list[str], restarts: bool) -> None:
    play(given(lines[0]), lines[1:], restarts=restarts)
