"""Clients of Kafka brokers: the requests that brokers forward to the controller, and an administrator's requests."""

from collections.abc import Awaitable, Callable

from controller.kafka.messages import ApiKey, cluster, topics
from tests.simulation.brokers.machine import MIN_ISR
from tests.simulation.brokers.witness import UNCLEAN
from tests.simulation.clients import Client, Habit

TOPICS_MAX = 25


class LifeClient(Client):
    """A client that also elects leaders and reassigns replicas."""

    def habits(self) -> tuple[Habit, ...]:
        few = len(self._witness.alive) < TOPICS_MAX
        creates_or_deletes: list[Callable[[], Awaitable[None]]] = [self._create] * 3 if few else [self._delete] * 3
        return (*creates_or_deletes, self._delete, self._add_partitions, self._alter_configs, self._elect, self._move)

    def _topic(self) -> topics.CreatableTopic:
        rng = self._rng
        chosen = [(MIN_ISR, "2")] if rng.random() < 0.4 else []
        if rng.random() < 0.15:
            chosen.append((UNCLEAN, "true"))
        return topics.CreatableTopic(
            name=self._name(),
            num_partitions=rng.choice((-1, 1, 2, 3)),
            replication_factor=rng.choice((-1, 1, 2, 3, 3)),
            configs=tuple(topics.CreatableTopicConfig(name=name, value=value) for name, value in chosen),
        )

    def _name(self) -> str:
        alive = sorted(self._witness.alive)
        return self._rng.choice(alive) if alive and self._rng.random() < 0.5 else super()._name()

    def _config(self) -> tuple[str, str]:
        return self._rng.choice(
            ((MIN_ISR, "1"), (MIN_ISR, "2"), (UNCLEAN, "false"), (UNCLEAN, "true"), ("retention.ms", "1000"))
        )

    async def _elect(self) -> None:
        rng = self._rng
        wanted = topics.TopicPartitions(topic=self._name(), partitions=(0, 1))
        everything = rng.random() < 0.2
        request = topics.ElectLeadersRequest(
            topic_partitions=None if everything else (wanted,), election_type=int(rng.random() < 0.2)
        )
        answer: topics.ElectLeadersResponse = await self._call(ApiKey.ELECT_LEADERS, 2, request)
        self._world.counts[f"ElectLeaders {answer.error_code}"] += 1
        for result in answer.replica_election_results:
            for one in result.partition_result:
                self._world.counts[f"ElectLeaders {one.error_code}"] += 1

    async def _move(self) -> None:
        rng = self._rng
        brokers = range(1, 5)
        replicas = None if rng.random() < 0.2 else tuple(rng.sample(brokers, rng.randint(1, 3)))
        one = topics.ReassignablePartition(partition_index=rng.choice((0, 0, 1)), replicas=replicas)
        request = topics.AlterPartitionReassignmentsRequest(
            topics=(topics.ReassignableTopic(name=self._name(), partitions=(one,)),)
        )
        api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        answer: topics.AlterPartitionReassignmentsResponse = await self._call(api, 0, request)
        for topic in answer.responses:
            for each in topic.partitions:
                self._world.counts[f"AlterPartitionReassignments {each.error_code}"] += 1

    async def unregister(self, broker_id: int) -> int:
        """Send UnregisterBroker; returns the error code."""
        request = cluster.UnregisterBrokerRequest(broker_id=broker_id)
        answer: cluster.UnregisterBrokerResponse = await self._call(ApiKey.UNREGISTER_BROKER, 0, request)
        self._world.counts[f"UnregisterBroker {answer.error_code}"] += 1
        return answer.error_code


class RulesClient(LifeClient):
    """A client that also applies rules."""

    def habits(self) -> tuple[Habit, ...]:
        return (*super().habits(), self._apply_rules)
