"""Deciding on changes, as a text table: CreatePartitions, DeleteTopics, topic configs."""

from __future__ import annotations

import pytest

from tests.machine.in_short import in_short
from tests.machine.tables import Row, command, given, rows

CHANGES = """
# CreatePartitions
1 2 3 has:t:2x2 | partitions t to=5 | added(2: 2.3 3.2 1.3) => NONE
1 2 3 has:t:2x2 | partitions t to=5 dry | => NONE
1 2 3 has:t:2x2 | partitions t to=2 | rejected => INVALID_PARTITIONS validation:partitions
1 2 3 has:t:2x2 | partitions t to=1 | rejected => INVALID_PARTITIONS validation:partitions
1 2 3 has:t:2x2 | partitions t to=0 | rejected => INVALID_PARTITIONS validation:partitions
1 2 3 has:t:2x2 | partitions t to=-1 | rejected => INVALID_PARTITIONS validation:partitions
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
1 2 3 has:t:2x2 | partitions t to=3 on=3.1,1.2 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=3 on=none | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=3 on=1 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=3 on=1.2.3 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=4 on=1.2,1 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=3 on=1.9 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=3 on=1.1 | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
1 2 3 has:t:2x2 | partitions t to=3 on=- | rejected => INVALID_REPLICA_ASSIGNMENT validation:assignment
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
1 has:t | alter t set:nonsense=1 | rejected => INVALID_CONFIG validation:configs
1 has:t | alter t set:retention.ms=1 set:retention.ms=2 | rejected => INVALID_REQUEST validation:alter-request
1 has:t | alter t set:retention.ms=null | rejected => INVALID_REQUEST validation:alter-request
1 | alter t set:retention.ms=5 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 | alter t set:retention.ms=x | rejected => INVALID_CONFIG validation:configs
1 | alter t*t set:retention.ms=5 | rejected => INVALID_TOPIC_EXCEPTION validation:name
1 has:a.b | alter a_b set:retention.ms=5 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
1 has:t | alter t set:retention.ms=5 denied=29 | rejected => TOPIC_AUTHORIZATION_FAILED authorizer
1 has:t | alter t set:retention.ms=x dry | => INVALID_CONFIG validation:configs
1 has:t | replace t set:retention.ms=5 | configs(retention.ms=5) => NONE
1 has:t | replace t | => NONE
1 has:t | replace t set:retention.ms=x | rejected => INVALID_CONFIG validation:configs
1 | replace t set:retention.ms=5 | rejected => UNKNOWN_TOPIC_OR_PARTITION validation:unknown-topic
"""


@pytest.mark.parametrize("row", list(rows(CHANGES)), ids=lambda row: f"{row[0]} | {row[1]}")
def test_change(row: Row) -> None:
    rig = given(row[0])
    before = len(rig.log)
    decision = rig.put(command(rig, row[1]))
    assert in_short(decision) == row[2]
    assert len(rig.log) == before or " dry" not in row[1], "a dry run is not logged"
