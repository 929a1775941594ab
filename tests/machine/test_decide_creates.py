"""Deciding on creates, as text tables: every line of the table of KIP-4, KIP-108, KIP-361 and KIP-409's rules."""

from __future__ import annotations

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
1 | create .. 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:name
1 | create ... 1x1 | requested created(1)
1 | create a~b 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:name
1 | create a/b 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:name
1 | create ünï 1x1 | refused => INVALID_TOPIC_EXCEPTION validation:name
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
1 | create t 0x0 | refused => INVALID_REPLICATION_FACTOR validation:factor
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
1 2 3 | create t on=0:1,2:2 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=1:1 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=-1:1 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:1,0:2 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:1.2,1:3 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:1.1 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:9 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:1.9 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:-1 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:1.-2 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0: | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t on=0:1,1: | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 | create t 1x-1 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 | create t -1x1 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 | create t 1x1 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 | create t 0x-1 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 | create t 1x-1 v=0 on=0:1 | refused => INVALID_REQUEST validation:counts-and-assignment
1 2 3 fewer | create t on=0:1.-1 | refused => INVALID_REPLICA_ASSIGNMENT validation:assignment
# configs
1 | create t 1x1 conf=retention.ms=5;cleanup.policy=compact | requested created(1)
1 | create t 1x1 conf=nonsense=1 | refused => INVALID_CONFIG validation:configs
1 | create t 1x1 conf=retention.ms=x | refused => INVALID_CONFIG validation:configs
1 | create t 1x1 conf=retention.ms=null | refused => INVALID_CONFIG validation:configs
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


@pytest.mark.parametrize("row", list(rows(CREATES)), ids=lambda row: f"{row[0]} | {row[1]}")
def test_create(row: Row) -> None:
    rig = given(row[0])
    before = len(rig.log)
    decision = rig.put(command(rig, row[1]))
    assert in_short(decision) == row[2]
    assert len(rig.log) == before or " dry" not in row[1], "a dry run is not logged"
