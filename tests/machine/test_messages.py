"""The words of refusals: Kafka's own first, then what helps whoever reads them."""

from __future__ import annotations

import pytest

from tests.machine.tables import command, given

MESSAGES = """
1 | create '' 1x1 | Topic name is invalid: the empty string is not allowed
1 | create a~b 1x1 | Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'
1 | create __cluster_metadata 1x1 | Creation of internal topic __cluster_metadata is prohibited.
1 has:a.b | create a_b 1x1 | Topic 'a_b' collides with existing topic: a.b
1 has:t | create t 1x1 | Topic 't' already exists. It was created at 2023-11-14T22:13:20.004Z and is ready.
1 waits:t | create t 1x1 | Topic 't' already exists. It was created at 2023-11-14T22:13:20.004Z and is not ready yet.
1 | create t 1x1 twice | Duplicate topic name.
1 | create t 1x1 denied=29 | Authorization failed.
1 | create t 0x1 | Number of partitions was set to an invalid non-positive value.
1 | create t -1x1 v=0 | Number of partitions was set to an invalid non-positive value. The default needs CreateTopics version 1.
1 | create t 1x0 | Replication factor must be larger than 0, or -1 to use the default value.
1 | create t 1x-1 v=0 | Replication factor must be larger than 0, or -1 to use the default value. The default needs CreateTopics version 1.
1 | create t 1x-1 on=0:1 | A manual partition assignment was specified, but numPartitions was not set to -1.
1 | create t -1x1 on=0:1 | A manual partition assignment was specified, but replication factor was not set to -1.
1 | create t 10001x1 | Excessively large number of partitions per request. 10001 partitions with what comes beside them are over 10000.
1 | create t 10000x1 | Unable to perform excessively large batch operation. 10000 partitions with what comes beside them are over 10000.
1 2 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some brokers have all their log directories cordoned.
1 2! | create t 1x2 | Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are live of the 2 registered or some brokers have all their log directories cordoned.
1 default.replication.factor=3 | create t 1x-1 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned. The request names no factor; this one is the default (default.replication.factor).
1 fewer minisr=2 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned, and min(min.insync.replicas, replication factor) is 2.
1 fewer minisr=5 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned, and min(min.insync.replicas, replication factor) is 3.
1 fewer | create t 9999x12 | 109989 replicas would wait for brokers to join, which is over 100000.
1 2! | create t on=0:2 | All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown.
1 | create t on=0:9 | The manual partition assignment includes broker 9, but no such broker is registered.
1 | create t on=0:1.1 | The manual partition assignment includes the broker 1 more than once.
1 | create t on=0: | The manual partition assignment includes an empty replica list.
1 2 | create t on=0:1,1:1.2 | The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with previous partitions, which have 1 replica(s).
1 | create t on=0:1,0:1 | Found multiple manual partition assignments for partition 0
1 | create t on=1:1 | partitions should be a consecutive 0-based integer sequence
1 | create t 1x1 timeout=0 | The topic was created; with timeout_ms 0 its completion is not waited for.
1 | create t 1x1 verdict=refused | no such names
1 | create t 1x1 verdict=failed | The create-topic policy failed; the controller's log has the cause.
1 has:t | partitions t to=1 | Topic already has 1 partition(s).
1 has:t:2x1 | partitions t to=1 | The topic t currently has 2 partition(s); 1 would not be an increase.
1 has:t | partitions t to=3 on=1 | Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.
1 | partitions t to=3 | This server does not host this topic-partition.
1 has:t | partitions t to=3 denied=29 | Topic authorization failed.
1 has:t | partitions t to=3 denied=31 | Cluster authorization failed.
1 has:t | delete t topic-id=other | This server does not host this topic ID.
1 has:t keep | delete t | Topic deletion is disabled.
1 | alter t set:retention.ms=1 | The topic 't' does not exist.
1 has:t | alter t set:retention.ms=x | Invalid value x for configuration retention.ms: Not a number of type LONG
1 waits:t | expire t id=w-t at=5000 | The topic was created, but was not complete in time: 1 of 1 partitions have a leader and 0 of 1 live brokers know it.
"""  # noqa: E501 - a message is one line


@pytest.mark.parametrize("row", MESSAGES.strip().splitlines())
def test_message(row: str) -> None:
    setting, request, message = (column.strip() for column in row.split("|"))
    rig = given(setting)
    (answer,) = rig.put(command(rig, request)).answers
    assert answer.message.startswith(message)
    assert answer.message == message or "config" in request or "alter" in request, "nothing is left out"


def test_a_deletion_is_reported_to_the_one_that_waits() -> None:
    rig = given("1 waits:t")
    deleted, waited = rig.put(command(rig, "delete t")).answers
    assert (deleted.message, waited.message) == ("", "The topic was deleted before it was complete.")


def test_a_time_beyond_all_calendars_is_shown_in_ms() -> None:
    rig = given("1")
    rig.put(command(rig, f"create t 1x1 at={2**60}"))
    (answer,) = rig.put(command(rig, "create t 1x1")).answers
    assert f"created at {2**60 + 1_700_000_000_003} ms" in answer.message


def test_a_factor_that_is_named_is_not_called_the_default() -> None:
    rig = given("1 default.replication.factor=3")
    (answer,) = rig.put(command(rig, "create t 1x3")).answers
    assert answer.message.endswith("registered or some brokers have all their log directories cordoned.")
