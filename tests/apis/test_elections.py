"""ElectLeaders (KIP-460) with simulated brokers moves leadership back to the preferred leader."""

from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import ElectLeadersRequest, TopicPartitions
from controller.machine.errors import ErrorCode
from tests.apis.rig import Rig, rig

ALL = ElectLeadersRequest()


def leaders(a: Rig) -> list[tuple[int, int]]:
    """The leader and the preferred leader of each partition."""
    topic = a.api.topic("pay.orders")
    assert topic is not None
    return [(each.leader, each.replicas[0]) for each in topic.partitions]


async def test_elect_leaders_elects_the_preferred_leader() -> None:
    async with rig() as a:
        await a.create("pay.orders", num_partitions=3, replication_factor=3)
        a.brokers.stop_broker(1)
        await a.controller.decided()
        a.brokers.start_broker(1)
        await a.controller.decided()
        assert any(leader != preferred for leader, preferred in leaders(a))
        elected = await a.call(ApiKey.ELECT_LEADERS, 2, ALL)
        codes = [one.error_code for each in elected.replica_election_results for one in each.partition_result]
        assert codes == [ErrorCode.NONE], "partitions that have their preferred leader are left out"
        assert all(leader == preferred for leader, preferred in leaders(a))
        one = ElectLeadersRequest(topic_partitions=(TopicPartitions(topic="missing", partitions=(0,)),))
        (missing,) = (await a.call(ApiKey.ELECT_LEADERS, 2, one)).replica_election_results
        assert missing.partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
