"""Decisions on creates as text tables, by the rules of KIP-4, KIP-108, KIP-361 and KIP-409. tests/reference compares
more invalid requests with Kafka."""

import pytest

from tests.machine.in_short import in_short
from tests.machine.tables import Row, command, given, rows

CREATES = """
# plain
1 2 3 | create t 3x2 | requested created(3.1 1.2 2.3)
1 2 3 | create t 1x1 | requested created(3)
# placement: racks before neighbours, leaders in turn
1@a 2@a 3@b 4@b | create t 4x2 | requested created(1.4 3.1 2.3 4.2)
1@a 2@a 3@b 4@b | create t 2x3 | requested created(1.4.3 3.1.2)
1@a 2@b 3@c | create t 6x3 | requested created(3.1.2 1.2.3 2.3.1 3.2.1 1.3.2 2.1.3)
# names
1 | create '' 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:name
1 | create . 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:name
1 | create ... 1x1 | requested created(1)
1 | create A_z.0-9 1x1 | requested created(1)
1 | create __consumer_offsets 1x1 | requested created(1)
1 | create __cluster_metadata 1x1 | refused => INVALID_REQUEST validation:internal
# exists, collides
1 has:t | create t 1x1 | refused => TOPIC_ALREADY_EXISTS validation:exists
1 waits:t | create t 1x1 | refused => TOPIC_ALREADY_EXISTS validation:exists
1 has:a.b | create a_b 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:collision
1 has:a_b | create a.b 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:collision
1 has:a.b.c | create a_b.c 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:collision
1 has:a.b | create a-b 1x1 | requested created(1)
# counts: defaults from version 1 on, as in Kafka, and for requests that do not come through CreateTopics
1 2 3 count=2 factor=3 | create t v=7 | requested created(3.1.2 1.2.3)
1 2 3 count=2 factor=3 | create t v=4 | requested created(3.1.2 1.2.3)
1 2 3 count=2 factor=3 | create t v=1 | requested created(3.1.2 1.2.3)
1 2 3 count=2 factor=3 | create t -1x2 v=1 | requested created(3.1 1.2)
1 2 3 count=2 factor=3 | create t 2x-1 v=3 | requested created(3.1.2 1.2.3)
1 2 3 count=2 factor=3 | create t -1x2 v=0 | refused => INVALID_PARTITIONS validation:partitions
1 2 3 count=2 factor=3 | create t v=0 | refused => INVALID_REPLICATION_FACTOR validation:factor
1 2 3 count=2 factor=3 | create t 1x1 v=0 | requested created(3)
1 2 3 count=2 factor=3 | create t 3x-1 | requested created(3.1.2 1.2.3 2.3.1)
1 2 3 count=2 factor=3 | create t -1x1 | requested created(3 1)
1 2 3 count=2 factor=2 | create t api=Metadata v=3 | requested created(3.1 1.2)
1 2 3 count=2 factor=2 | create t api=HTTP v=0 | requested created(3.1 1.2)
1 | create t 0x1 | refused => INVALID_PARTITIONS validation:partitions
1 | create t -2x1 | refused => INVALID_PARTITIONS validation:partitions
1 | create t 1x0 | refused => INVALID_REPLICATION_FACTOR validation:factor
1 | create t 1x-2 | refused => INVALID_REPLICATION_FACTOR validation:factor
1 | create t 0x1 v=0 | refused => INVALID_PARTITIONS validation:partitions
1 | create t 1x-2 v=0 | refused => INVALID_REPLICATION_FACTOR validation:factor
1 factor=3 | create t | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
# size: Kafka's bounds on one request
1 | create t 10001x1 dry | => POLICY_VIOLATION validation:size
1 | create t 9999x1 dry | => NONE
1 | create t 9999x1 conf=retention.ms=5 dry | => POLICY_VIOLATION validation:size
1 | create t 10000x1 dry | => POLICY_VIOLATION validation:size
1 | create t 2147483647x9 | refused => POLICY_VIOLATION validation:size
# manual assignments
1 2 3 | create t on=0:1.2,1:2.3,2:3.1 | requested created(1.2 2.3 3.1)
1 2 3 | create t on=1:3.1,0:2.1 | requested created(2.1 3.1)
1 2 3 | create t v=0 on=0:1.2 | requested created(1.2)
1 2 3! | create t on=0:3.1 | requested created(1/3.1)
1 2 3! | create t on=0:3 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3! | create t on=0:1,1:3 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t 1x-1 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 | create t -1x1 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 | create t 1x-1 v=0 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 fewer | create t on=0:1.-1 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
# configs
1 | create t 1x1 conf=retention.ms=5;cleanup.policy=compact | requested created(1)
1 | create t 1x1 conf=nonsense=1 | refused => INVALID_CONFIG validation:configs
1 | create t 1x1 conf=retention.ms=x | refused => INVALID_CONFIG validation:configs
1 | create t 1x1 conf=retention.ms=1;retention.ms=2 | requested created(1)
1 | create t 1x1 conf=retention.ms=x;retention.ms=2 | requested created(1)
# the factor against live brokers, and KIP-409
1 2 3 | create t 1x4 | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
1 2 3! | create t 1x3 | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
1! 2! | create t 1x1 | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
| create t 1x1 | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
1 2 fewer | create t 2x3 | requested created(1.2/1.2.-1 2.1/2.1.-1)
1 2 3! fewer | create t 1x4 | requested created(1.2/1.2.-1.-2)
1 2 3 fewer | create t 1x3 | requested created(3.1.2)
1 fewer minisr=2 | create t 1x3 | refused => INVALID_REPLICATION_FACTOR validation:under-replicated-floor
1 2 fewer minisr=2 | create t 1x3 | requested created(1.2/1.2.-1)
1 2 fewer minisr=4 | create t 1x3 | refused => INVALID_REPLICATION_FACTOR validation:under-replicated-floor
1 fewer minisr=2 | create t 1x3 conf=minisr=1 | requested created(1/1.-1.-2)
1 fewer | create t 1x3 conf=minisr=2 | refused => INVALID_REPLICATION_FACTOR validation:under-replicated-floor
1 fewer | create t 1x3 conf=minisr=1;minisr=2 | refused => INVALID_REPLICATION_FACTOR validation:under-replicated-floor
1! fewer | create t 1x2 | refused => INVALID_REPLICATION_FACTOR validation:under-replicated-floor
1 2 minisr=2 | create t 1x3 | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
1 fewer | create t 9999x12 | refused => POLICY_VIOLATION validation:placeholders
1 2 fewer factor=3 | create t 1x-1 | requested created(1.2/1.2.-1)
# permission, duplicates
1 | create t 1x1 denied=29 | refused => TOPIC_AUTHORIZATION_FAILED authorizer
1 | create t 1x1 denied=31 | refused => CLUSTER_AUTHORIZATION_FAILED authorizer
1 | create t 1x1 twice | refused => INVALID_REQUEST validation:duplicate
1 | create t 1x1 v=0 twice | refused => INVALID_REQUEST validation:duplicate
# timeouts: at or below 0 the topic is created, and nobody waits
1 | create t 1x1 timeout=0 | requested created(1) answered => REQUEST_TIMED_OUT
1 | create t 1x1 timeout=-5 | requested created(1) answered => REQUEST_TIMED_OUT
1 | create t 0x1 timeout=0 | refused => INVALID_PARTITIONS validation:partitions
1 has:t | create t 1x1 timeout=0 | refused => TOPIC_ALREADY_EXISTS validation:exists
1 | create t 1x1 timeout=0 dry | => NONE
# dry runs: every check, no event, and the very replicas that a create commits
1 2 3 | create t 3x2 dry | => NONE
1 2 3 | create t 0x2 dry | => INVALID_PARTITIONS validation:partitions
1 2 3 | create t -1x2 v=1 dry | => NONE
1 has:t | create t 1x1 dry | => TOPIC_ALREADY_EXISTS validation:exists
1 | create t 1x1 twice dry | => INVALID_REQUEST validation:duplicate
1 | create t 1x1 denied=29 dry | => TOPIC_AUTHORIZATION_FAILED authorizer
# policies
1 policy | create t 1x1 | needs_approval
1 policy | create t 1x1 dry | needs_approval
1 policy | create t 1x1 api=Metadata | needs_approval
1 policy | create t 1x1 verdict=allowed | requested created(1)
1 policy | create t 1x1 verdict=refused | refused => POLICY_VIOLATION policy:names
1 policy | create t 1x1 verdict=failed | refused => UNKNOWN_SERVER_ERROR policy:my.Policy
1 policy | create t 1x1 verdict=allowed dry | => NONE
1 policy | create t 1x1 verdict=refused dry | => POLICY_VIOLATION policy:names
1 policy | create t 1x1 verdict=failed dry | => UNKNOWN_SERVER_ERROR policy:my.Policy
1 policy | create t 1x1 verdict=refused timeout=0 | refused => POLICY_VIOLATION policy:names
1 policy has:t | create t 1x1 | refused => TOPIC_ALREADY_EXISTS validation:exists
# order of checks: authorization, name, exists, collision, configs, counts, assignment, brokers, then policy
1 policy has:a.b | create a_b 0x9 denied=29 twice conf=x=1 | refused => INVALID_REQUEST validation:duplicate
1 policy has:a.b | create a_b 0x9 denied=29 conf=x=1 | refused => TOPIC_AUTHORIZATION_FAILED authorizer
1 policy has:a.b | create a_b 0x9 twice conf=x=1 verdict=refused | refused => INVALID_REQUEST validation:duplicate
1 policy | create a~b 0x9 conf=x=1 verdict=refused | refused => INVALID_TOPIC_EXCEPTION validation:name
1 policy has:a.b | create a_b 0x9 conf=x=1 verdict=refused | refused => INVALID_TOPIC_EXCEPTION validation:collision
1 policy has:t | create t 0x9 conf=x=1 verdict=refused | refused => TOPIC_ALREADY_EXISTS validation:exists
1 policy | create t 0x9 conf=x=1 verdict=refused | refused => INVALID_CONFIG validation:configs
1 policy | create t 0x9 verdict=refused | refused => INVALID_PARTITIONS validation:partitions
1 policy | create t 1x-1 on=0:9 verdict=refused | refused => INVALID_REQUEST validation:counts-and-assignment
1 policy | create t on=0:9 conf=x=1 verdict=refused | refused => INVALID_CONFIG validation:configs
1 policy | create t on=0:9 verdict=refused | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 policy | create t 1x9 conf=x=1 verdict=refused | refused => INVALID_CONFIG validation:configs
1 policy | create t 1x9 verdict=refused | refused => INVALID_REPLICATION_FACTOR validation:live-brokers
1 policy | create t 1x1 verdict=refused | refused => POLICY_VIOLATION policy:names
"""


CHANGES = """
# CreatePartitions
1 2 3 has:t:2x2 | partitions t to=5 | added(2: 2.3 3.2 1.3) => NONE
1 2 3 has:t:2x2 | partitions t to=5 dry | => NONE
1 2 3 has:t:2x2 | partitions t to=2 | rejected => INVALID_PARTITIONS validation:partitions
1 2 3 has:t:2x2 | partitions t to=1 | rejected => INVALID_PARTITIONS validation:partitions
1 2 3 has:t:2x2 | partitions t to=2 dry | => INVALID_PARTITIONS validation:partitions
1 2 3 has:t | partitions t to=10002 dry | => POLICY_VIOLATION validation:size
1 2 3 has:t | partitions t to=2147483647 | rejected => POLICY_VIOLATION validation:size
1 2 3 | partitions t to=3 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 2 3 has:a.b | partitions a_b to=3 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 2 3 has:t | partitions t to=3 twice | rejected => INVALID_REQUEST validation:duplicate
1 2 3 has:t | partitions t to=3 denied=29 | rejected => TOPIC_AUTHORIZATION_FAILED authorizer
1 2 3 | partitions t to=3 twice denied=29 | rejected => INVALID_REQUEST validation:duplicate
1 2 3 waits:t | partitions t to=2 | added(1: 1) => NONE
# CreatePartitions with assignments
1 2 3 has:t:2x2 | partitions t to=4 on=3.1,1.2 | added(2: 3.1 1.2) => NONE
1 2 3! has:t:2x2 | partitions t to=3 on=3.1 | added(2: 1/3.1) => NONE
1 2 3! has:t:1x1 | partitions t to=2 on=3 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=4 on=3.1 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=1 on=1.2 | rejected => INVALID_PARTITIONS validation:partitions
1 2 3 has:t:2x2 | partitions t to=2 on=1.2 | rejected => INVALID_PARTITIONS validation:partitions
# DeleteTopics
1 has:t | delete t | deleted => NONE
1 | delete t | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 has:a.b | delete a_b | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 has:t | delete t topic-id=same | deleted => NONE
1 has:t | delete t topic-id=other | rejected => UNKNOWN_TOPIC_ID validation:unknown-id
1 | delete t topic-id=other | rejected => UNKNOWN_TOPIC_ID validation:unknown-id
1 has:t | delete t twice | rejected => INVALID_REQUEST validation:duplicate
1 has:t | delete t denied=29 | rejected => TOPIC_AUTHORIZATION_FAILED authorizer
1 | delete t denied=29 | rejected => TOPIC_AUTHORIZATION_FAILED authorizer
1 has:t keep | delete t | rejected => TOPIC_DELETION_DISABLED validation:delete.topic.enable
1 has:t keep | delete t v=2 | rejected => INVALID_REQUEST validation:delete.topic.enable
1 has:t keep | delete t v=2 api=HTTP | rejected => TOPIC_DELETION_DISABLED validation:delete.topic.enable
1 has:t keep | delete u | rejected => TOPIC_DELETION_DISABLED validation:delete.topic.enable
1 has:t | delete t dry | => NONE
# a create that waits for the topic gets its one answer
1 waits:t | delete t | deleted answered => NONE => UNKNOWN_TOPIC_OR_PARTITION after 1 ms
1 waits:t | delete t topic-id=other | rejected => UNKNOWN_TOPIC_ID validation:unknown-id
# topic configs
1 has:t | alter t set:retention.ms=5 | configs(retention.ms=5) => NONE
1 has:t | alter t set:retention.ms=5 set:cleanup.policy=compact | configs(cleanup.policy=compact retention.ms=5) => NONE
1 has:t | alter t set:retention.ms=5 dry | => NONE
1 has:t | alter t | => NONE
1 has:t | alter t delete:retention.ms | => NONE
1 has:t | alter t append:cleanup.policy=compact | configs(cleanup.policy=delete,compact) => NONE
1 has:t | alter t append:retention.ms=5 | rejected => INVALID_CONFIG validation:configs
1 has:t | alter t set:retention.ms=x | rejected => INVALID_CONFIG validation:configs
1 has:t | alter t set:retention.ms=1 set:retention.ms=2 | rejected => INVALID_REQUEST validation:alter-request
1 has:t | alter t set:retention.ms=null | rejected => INVALID_REQUEST validation:alter-request
1 | alter t set:retention.ms=5 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 | alter t*t set:retention.ms=5 | rejected => INVALID_TOPIC_EXCEPTION validation:name
1 has:a.b | alter a_b set:retention.ms=5 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 has:t | alter t set:retention.ms=5 denied=29 | rejected => TOPIC_AUTHORIZATION_FAILED authorizer
1 has:t | alter t set:retention.ms=x dry | => INVALID_CONFIG validation:configs
1 has:t | replace t set:retention.ms=5 | configs(retention.ms=5) => NONE
1 has:t | replace t | => NONE
1 | replace t set:retention.ms=5 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
"""


@pytest.mark.parametrize("row", list(rows(CREATES + CHANGES)), ids=lambda row: f"{row[0]} | {row[1]}")
def test_create_topic_decisions(row: Row) -> None:
    rig = given(row[0])
    before = len(rig.log)
    decision = rig.put(command(rig, row[1]))
    assert in_short(decision) == row[2]
    assert len(rig.log) == before or " dry" not in row[1], "a dry run is not logged"
