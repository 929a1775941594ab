"""Clients that send random requests at random times and check the answers against the durable log."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from controller.kafka.codec.codec import decode_response, encode_response
from controller.kafka.messages import ApiKey, Message, configs, topics
from controller.machine.decision import Answer
from tests.simulation.plan import Plan
from tests.simulation.witness import Witness
from tests.simulation.world import ConnectionLost, World
from tests.support.partition_limits import HELD, limit_of

POOL = (*(f"t{number}" for number in range(12)), "a.b", "a_b", "bad-name", "odd-name", "moody", "moody-name", "no/name")
TIMEOUTS_MS = (-1, 0, 1, 20, 300, 2_000, 30_000)
LATE_S = 3.0
"""REQUEST_TIMED_OUT may be this late: two syncs of the slowest disk."""
IMPATIENT = 0.06
"""The probability that a client cancels a request."""


Habit = Callable[[], Awaitable[None]]


class Answers(Protocol):
    """A process that answers requests; both methods raise ConnectionLost."""

    def call(self, client: str, api_key: int, version: int, request: Message) -> Coroutine[Any, Any, Message]: ...

    def apply_rules(self, text: str) -> Coroutine[Any, Any, Answer]: ...


class Served(Protocol):
    rng: random.Random
    plan: Plan
    counts: Counter[str]
    """Counts of answered requests, of answers by API and error code, and of faults."""

    @property
    def process(self) -> Answers: ...


class Client:
    """One client that sends requests with pauses between them."""

    more_rules = ""
    """Follow the limit in each version of the rules that the client applies."""

    def __init__(self, name: str, world: Served, witness: Witness) -> None:
        self.name = name
        self._world = world
        self._witness = witness
        self._rng = random.Random(world.rng.getrandbits(64))
        self._made = 0

    async def live(self, until: float, think_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self._rng.expovariate(1 / think_s))
            habit, patience = self._rng.choice(self.habits()), None
            if self._rng.random() < IMPATIENT:
                patience = self._rng.uniform(0, 0.05)
            if not self._world.plan.happens(self.name):
                continue
            try:
                await asyncio.wait_for(habit(), patience)
            except TimeoutError:
                self._world.counts["gave up 0"] += 1
            except ConnectionLost:
                self._world.counts["connection lost 0"] += 1

    def habits(self) -> tuple[Habit, ...]:
        """The requests that the client draws from; a request listed more often is more likely."""
        return (
            *[self._create] * 8,
            *[self._delete] * 3,
            self._add_partitions,
            self._alter_configs,
            self._list_all,
            self._look_up,
            self._apply_rules,
        )

    async def _call(self, api: ApiKey, version: int, request: Message) -> Any:
        answer = await self._world.process.call(self.name, api, version, request)
        self._world.counts["requests"] += 1
        return answer

    def _name(self) -> str:
        if self._rng.random() < 0.5:
            return self._rng.choice(POOL)
        self._made += 1
        return f"{self.name}.{self._made}"

    async def _create(self) -> None:
        rng = self._rng
        request = topics.CreateTopicsRequest(
            topics=tuple(self._topic() for _ in range(rng.choice((1, 1, 1, 2, 5)))),
            timeout_ms=rng.choice(TIMEOUTS_MS),
            validate_only=rng.random() < 0.1,
        )
        loop = asyncio.get_running_loop()
        begun = loop.time()
        answer: topics.CreateTopicsResponse = await self._call(ApiKey.CREATE_TOPICS, 7, request)
        waited_s = loop.time() - begun - max(request.timeout_ms, 0) / 1000
        assert request.timeout_ms <= 0 or request.validate_only or waited_s < LATE_S, f"{waited_s} s over the timeout"
        names = dict.fromkeys(topic.name for topic in request.topics)
        assert [topic.name for topic in answer.topics] == list(names), (
            "the response must have one result per topic, in request order"
        )
        for topic in answer.topics:
            self._world.counts[f"CreateTopics {topic.error_code}"] += 1
            if topic.error_code == 0 and not request.validate_only:
                self._witness.check_created(topic.name, topic.topic_id)

    def _topic(self) -> topics.CreatableTopic:
        rng = self._rng
        if rng.random() < 0.1:
            replicas = [tuple(rng.sample(range(1, 5), 2)) for _ in range(rng.randint(1, 3))]
            by_hand = tuple(
                topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in enumerate(replicas)
            )
            return topics.CreatableTopic(
                name=self._name(), num_partitions=-1, replication_factor=-1, assignments=by_hand
            )
        return topics.CreatableTopic(
            name=self._name(), num_partitions=rng.choice((-1, 1, 2, 4)), replication_factor=rng.choice((-1, 1, 2, 3, 4))
        )

    async def _delete(self) -> None:
        rng, name = self._rng, self._name()
        topic_id = self._witness.alive.get(name)
        if topic_id is not None and rng.random() < 0.5:
            state = topics.DeleteTopicState(topic_id=topic_id)
        else:
            state = topics.DeleteTopicState(name=name)
        answer: topics.DeleteTopicsResponse = await self._call(
            ApiKey.DELETE_TOPICS, 6, topics.DeleteTopicsRequest(topics=(state,), timeout_ms=1000)
        )
        for result in answer.responses:
            self._world.counts[f"DeleteTopics {result.error_code}"] += 1
            if result.error_code == 0:
                self._witness.check_deleted(name, result.topic_id)

    async def _add_partitions(self) -> None:
        topic = topics.CreatePartitionsTopic(name=self._name(), count=self._rng.randint(2, 6))
        request = topics.CreatePartitionsRequest(topics=(topic,), validate_only=self._rng.random() < 0.2)
        answer: topics.CreatePartitionsResponse = await self._call(ApiKey.CREATE_PARTITIONS, 3, request)
        for result in answer.results:
            self._world.counts[f"CreatePartitions {result.error_code}"] += 1

    async def _alter_configs(self) -> None:
        name, value = self._config()
        change = configs.AlterableConfig(name=name, value=value)
        resource = configs.AlterConfigsResource(resource_type=2, resource_name=self._name(), configs=(change,))
        request = configs.IncrementalAlterConfigsRequest(resources=(resource,))
        answer: configs.IncrementalAlterConfigsResponse = await self._call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        for result in answer.responses:
            self._world.counts[f"IncrementalAlterConfigs {result.error_code}"] += 1

    async def _apply_rules(self) -> None:
        answer = await self._world.process.apply_rules(limit_of(self._rng.choice((0, 1, 2, 3, 5))) + self.more_rules)
        self._world.counts[f"ApplyRules {answer.code}"] += 1
        if answer.code == 0:
            self._witness.check_rules(answer.number)

    def _config(self) -> tuple[str, str]:
        return "retention.ms", str(self._rng.randint(1, 10**6))

    async def _list_all(self) -> None:
        self._witness.look()
        before = dict(self._witness.alive)
        await asyncio.sleep(0.001)  # until the controller has applied them
        shown = await self._metadata(topics.MetadataRequest(topics=None))
        self._witness.look()
        there = {name: topic_id for name, topic_id in before.items() if self._witness.alive.get(name) == topic_id}
        missing = sorted(there.keys() - shown.keys())
        assert not missing, f"{missing} existed throughout, but Metadata for all topics omits them"

    async def _look_up(self) -> None:
        names = tuple(topics.MetadataRequestTopic(name=self._name()) for _ in range(2))
        await self._metadata(topics.MetadataRequest(topics=names, allow_auto_topic_creation=self._rng.random() < 0.3))

    async def _metadata(self, request: topics.MetadataRequest) -> dict[str, bytes]:
        answer = await self._call(ApiKey.METADATA, 12, request)
        _, read = decode_response(ApiKey.METADATA, 12, encode_response(ApiKey.METADATA, 12, 1, answer)[4:])
        assert isinstance(read, topics.MetadataResponse), "the decoded response has another type"
        shown: dict[str, bytes] = {}
        for topic in read.topics:
            self._world.counts[f"Metadata {topic.error_code}"] += 1
            if topic.error_code == 0 and topic.name is not None:
                self._witness.check_shown(topic.name, topic.topic_id)
                shown[topic.name] = topic.topic_id
        return shown


class ApprovingClient(Client):
    """A client whose rules hold the deletion of topics for approval. It approves and denies deletions at random."""

    more_rules = f"""
[[rule]]
name = '{HELD}'
on = 'delete'
topics = 't*'
refuse = 'ask the approver'
approve_by = ['User:approver']
approval_expires = '1m'
"""

    _world: World

    def habits(self) -> tuple[Habit, ...]:
        return (*super().habits(), *[self._decide] * 3)

    async def _decide(self) -> None:
        approves = self._rng.random() < 0.7
        decided = await self._world.process.decide_held(self._rng.random(), approves)
        if decided is None:
            return
        held, answer = decided
        self._world.counts[f"{'Approve' if approves else 'DenyRequest'} {answer.code}"] += 1
        if answer.code == 0:
            self._witness.check_decided(held, "approved" if approves else "denied")
