"""Applies decisions to the target cluster: the action queue of `target_cluster`, and the dry run before a decision.

Method. Committed events become queued actions (an `Action` is one change of a topic, such as its creation). A round
takes at most one action per topic and runs all of them together. An action is retried with back-off if it did not reach
the cluster, or if its result is unknown. Every action is idempotent: if a topic exists after an attempt with an unknown
result, that attempt has created it.

Before a decision the cluster dry-runs the same request, with the replicas that would be chosen. So a refusal, such as
by its policy, ACLs or limits, is found before anything is recorded.

This module decides nothing: it reports a refusal by the cluster, and the state machine turns it into events.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from controller.brokers.cluster.link import ClusterLink, Refusal
from controller.brokers.cluster.reconciliation import Action, brokers_of, open_work_of
from controller.brokers.port import CommandSink
from controller.kafka.connections import ClusterUnreachable, NotAuthenticated
from controller.kafka.messages import topics
from controller.machine.commands import commands
from controller.machine.configs.topic_configs import without_labels
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic
from events import catalog
from events.codec import decode_event
from events.logs.log import EventLog, read_one, shard_offsets
from events.names import TopicId, TopicName, shard_key

TOPICS_PER_ROUND = 100  # one request to the cluster stays small and quick
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.1, 5.0
SETTLE_S = 3.0
"""The watch ignores a topic for this time after Topicwright changed it, because brokers apply a change one by one."""
DELETED_MAX = 10_000  # bounds memory; far more than are deleted between two scans

logger = structlog.get_logger("topicwright")


def new_topic(name: str, partitions: Sequence[catalog.Partition], configs: catalog.Configs) -> topics.CreatableTopic:
    """A topic to create, with explicit replicas; placeholders are left out."""
    return topics.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers_of(partition))
            for index, partition in enumerate(partitions)
        ),
        configs=tuple(topics.CreatableTopicConfig(name=key, value=value) for key, value in without_labels(configs)),
    )


def new_partitions(name: str, count: int, added: Sequence[catalog.Partition]) -> topics.CreatePartitionsTopic:
    assignments = tuple(topics.CreatePartitionsAssignment(broker_ids=brokers_of(partition)) for partition in added)
    return topics.CreatePartitionsTopic(name=name, count=count, assignments=assignments)


class ActionRunner:
    """Queues actions, runs them in rounds, and gives the results to `finished`. `log` is read after a restart."""

    def __init__(
        self, link: ClusterLink, sink: CommandSink, log: EventLog, finished: Callable[[Action, Refusal | None], None]
    ) -> None:
        self._link, self._sink, self._log, self._finished = link, sink, log, finished
        self.is_resuming = True
        """True while the log may have changes that the previous process left unfinished."""
        self.deleted: dict[TopicId, None] = {}
        """Ids of topics that we deleted: a broker may still report them for a while."""
        self._changed_at: dict[TopicName, float] = {}
        self._queue: list[Action] = []
        self._wake = asyncio.Event()
        self.pending: Counter[TopicName] = Counter()
        """Unfinished actions per topic."""
        self._fill_refusals: set[TopicName] = set()
        self._delayed: dict[TopicName, Action] = {}
        """The actions that wait for their retry, by topic. No other action of such a topic runs meanwhile."""

    def enqueue(self, action: Action) -> None:
        """Queue an action. A second queued action to replace the placeholders of a topic is dropped."""
        self.record_change(action.topic)
        if isinstance(action.change, catalog.TopicDeleted):
            self._remember_deleted(action.change.topic_id)
        if action.change is None and any(one.change is None and one.topic == action.topic for one in self._queue):
            return
        self._queue.append(action)
        self.pending[action.topic] += 1
        self._wake.set()

    def clear(self) -> None:
        """Drop all queued actions: the caller reads them from the log again."""
        for action in (*self._queue, *self._delayed.values()):
            self._done(action.topic)
        self._queue.clear()
        self._delayed.clear()

    def resume_work(self, name: TopicName) -> bool:
        """Queue the unfinished changes of a topic, read from the log after a start. Returns True if there are any."""
        if not self.is_resuming:
            return False
        offsets = shard_offsets(self._log, shard_key(name))
        work = open_work_of(decode_event(offset, read_one(self._log, offset)) for offset in offsets)
        for topic_id in work.deleted:
            self._remember_deleted(topic_id)
        actions = [Action(name, change, attempts=1) for change in work.changes if change.topic == name]
        if work.has_unfilled and self._sink.store.durable_named(name) is not None:
            actions.append(Action(name, None))
        for action in actions:
            self.enqueue(action)
        return bool(actions)

    def is_busy(self, name: TopicName) -> bool:
        """True if an action of the topic is unfinished, or ended less than SETTLE_S ago."""
        if self.pending[name]:
            return True
        changed_at = self._changed_at.get(name)
        if changed_at is not None and asyncio.get_running_loop().time() - changed_at >= SETTLE_S:
            self.forget_change(name)
        return name in self._changed_at

    def record_change(self, name: TopicName) -> None:
        self._changed_at[name] = asyncio.get_running_loop().time()

    def forget_change(self, name: TopicName) -> None:
        self._changed_at.pop(name, None)

    def _remember_deleted(self, topic_id: TopicId) -> None:
        self.deleted[topic_id] = None
        while len(self.deleted) > DELETED_MAX:
            del self.deleted[next(iter(self.deleted))]

    async def run(self) -> None:
        """Run queued actions in rounds, until cancelled."""
        while True:
            groups = self._next_round()
            if not groups:
                self._wake.clear()
                await self._wake.wait()
            await asyncio.gather(*map(self._run_group, groups))

    def _retry_later(self, action: Action) -> None:
        delay_s = min(BACKOFF_S_MIN * 2 ** min(action.attempts, 10), BACKOFF_S_MAX)
        again = self._delayed[action.topic] = _after_attempt(action)
        asyncio.get_running_loop().call_later(delay_s, self._retry, again)

    def _retry(self, action: Action) -> None:
        if self._delayed.get(action.topic) is action:
            del self._delayed[action.topic]
            self._queue.insert(0, action)
            self._wake.set()

    def _done(self, topic: TopicName) -> None:
        self.pending[topic] -= 1
        if self.pending[topic] <= 0:
            del self.pending[topic]

    def _next_round(self) -> list[list[Action]]:
        """The oldest action of each topic, in the groups that run together; the rest stays queued, in order."""
        next_round: dict[TopicName, Action] = {}
        waiting: list[Action] = []
        for action in self._queue:
            if action.topic in next_round or action.topic in self._delayed or len(next_round) >= TOPICS_PER_ROUND:
                waiting.append(action)
            else:
                next_round[action.topic] = action
        self._queue = waiting
        actions = next_round.values()
        creates = [one for one in actions if isinstance(one.change, catalog.TopicCreated | Topic)]
        deletes = [one for one in actions if isinstance(one.change, catalog.TopicDeleted)]
        singly = ([one] for one in actions if one not in creates and one not in deletes)
        return [group for group in (creates, deletes, *singly) if group]

    async def _run_group(self, actions: Sequence[Action]) -> None:
        """Run actions of one kind, together if possible. An action that raises counts as refused: it would raise again
        at each start."""
        try:
            by_topic = await self._attempt(actions)
            refusals = [by_topic[one.topic] for one in actions]
        except (ClusterUnreachable, NotAuthenticated) as error:
            refusals = [_unreachable(error)] * len(actions)
        except Exception as error:
            if len(actions) > 1:
                for one in actions:
                    await self._run_group([_after_attempt(one)])
                return
            failed, why = actions[0], f"{type(error).__name__}: {error}"
            logger.error("action failed", action=failed.name, topic=failed.topic, why=why, exc_info=error)
            message = "The change failed in the controller; its log has the cause."
            refusals = [Refusal(int(ErrorCode.UNKNOWN_SERVER_ERROR), message)]
        for one, refusal in zip(actions, refusals, strict=True):
            if refusal is not None and refusal.retriable:
                self._retry_later(one)
            else:
                self.record_change(one.topic)
                self._finished(one, refusal)
                self._done(one.topic)

    async def _attempt(self, actions: Sequence[Action]) -> Mapping[str, Refusal | None]:
        match actions[0].change:
            case catalog.TopicCreated() | Topic():
                created = [
                    new_topic(one.topic, one.change.partitions, one.change.configs)
                    for one in actions
                    if isinstance(one.change, catalog.TopicCreated | Topic)
                ]
                tried = [one.topic for one in actions if one.attempts]
                return _except_done(await self._link.create(created), (ErrorCode.TOPIC_ALREADY_EXISTS,), tried)
            case catalog.TopicDeleted():
                names = [one.topic for one in actions]
                gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
                return _except_done(await self._link.delete(names), gone, names)
            case catalog.PartitionsAdded() as change:
                return {change.topic: await self._add_partitions(change, tried=actions[0].attempts > 0)}
            case catalog.TopicConfigsChanged() as change:
                return {change.topic: await self._link.set_configs(change.topic, without_labels(change.configs))}
        return {actions[0].topic: await self._fill_placeholders(actions[0].topic)}

    async def _add_partitions(self, event: catalog.PartitionsAdded, *, tried: bool) -> Refusal | None:
        name, count = event.topic, event.first + len(event.partitions)
        refusal = await self._link.add_partitions(new_partitions(name, count, event.partitions))
        if refusal is not None and refusal.code == ErrorCode.INVALID_PARTITIONS and tried:
            seen = (await self._link.metadata([name])).topics.get(name)
            if seen is not None and len(seen.partitions) >= count:
                return None
        return refusal

    async def _fill_placeholders(self, name: TopicName) -> Refusal | None:
        """Reassign partitions whose replicas in the cluster differ. A refusal is retried while the topic exists,
        because nothing else would fill the placeholder."""
        topic = self._sink.store.durable_named(name)
        seen = (await self._link.metadata([name])).topics.get(name)
        if topic is None or seen is None:
            return None
        replicas = {
            index: brokers_of(ours)
            for index, (ours, theirs) in enumerate(zip(topic.partitions, seen.partitions, strict=False))
            if brokers_of(ours) != theirs.replicas and set(theirs.replicas) < set(brokers_of(ours))
        }
        refusal = await self._link.reassign(name, replicas) if replicas else None
        if refusal is None:
            self._fill_refusals.discard(name)
        elif not refusal.retriable:
            if name not in self._fill_refusals:
                self._fill_refusals.add(name)
                what = "the cluster refuses to replace a placeholder; it will be retried"
                logger.warning(what, topic=name, code=refusal.code, why=refusal.message)
            return replace(refusal, retriable=True)
        return refusal


def _after_attempt(action: Action) -> Action:
    return replace(action, attempts=action.attempts + 1)


def _except_done(
    refusals: Mapping[str, Refusal | None], done: Container[int], names: Container[str]
) -> dict[str, Refusal | None]:
    """The refusals; None for the topics in `names` for which a code in `done` shows that the change was applied."""
    return {name: None if each and each.code in done and name in names else each for name, each in refusals.items()}


CHANGE_TIMEOUT_MS = 30_000
"""The retry limit of a change without a timeout of its own, while the cluster does not answer."""
DRY_RUN_BACKOFF_S_MAX = 2.0


class PlannedCommand(NamedTuple):
    """A command, with the topic as the command would leave it."""

    command: commands.TopicCommand
    topic: Topic


async def dry_run(link: ClusterLink, planned: Sequence[PlannedCommand]) -> list[commands.DryRunResult]:
    """Dry-run commands at the target cluster; each is retried until the command times out. Returns results in order."""
    creates = [one for one in planned if isinstance(one.command, commands.CreateTopic)]
    changes = [[one] for one in planned if not isinstance(one.command, commands.CreateTopic)]
    groups = await asyncio.gather(*(_dry_run_together(link, group) for group in (creates, *changes) if group))
    by_topic = {name: result for group in groups for name, result in group.items()}
    return [by_topic[one.command.topic] for one in planned]


async def _dry_run_together(link: ClusterLink, planned: Sequence[PlannedCommand]) -> dict[str, commands.DryRunResult]:
    results: dict[str, commands.DryRunResult] = {}
    waiting, backoff_s, started_s = list(planned), BACKOFF_S_MIN, _now_s()
    while True:
        try:
            refusals = await _dry_run_once(link, waiting)
        except (ClusterUnreachable, NotAuthenticated) as error:
            refusals = dict.fromkeys((one.topic.name for one in waiting), _unreachable(error))
        for one in waiting:
            refusal = refusals[one.topic.name]
            waits_ms = one.command.timeout_ms if isinstance(one.command, commands.CreateTopic) else CHANGE_TIMEOUT_MS
            if refusal is None:
                results[one.command.topic] = commands.DryRunResult()
            elif not refusal.retriable or _now_s() >= started_s + max(0, waits_ms) / 1000:
                why = f"The target cluster does not answer: {refusal.message}" if refusal.retriable else refusal.message
                results[one.command.topic] = commands.DryRunResult(refusal.code, why)
        waiting = [one for one in waiting if one.command.topic not in results]
        if not waiting:
            return results
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, DRY_RUN_BACKOFF_S_MAX)


async def _dry_run_once(link: ClusterLink, planned: Sequence[PlannedCommand]) -> Mapping[str, Refusal | None]:
    command, topic = planned[0]
    match command:
        case commands.CreateTopic():
            created = [new_topic(one.topic.name, one.topic.partitions, one.topic.configs) for one in planned]
            return await link.create(created, validate_only=True)
        case commands.CreatePartitions():
            seen = (await link.metadata([topic.name])).topics.get(topic.name)
            first = len(seen.partitions) if seen is not None else 0
            more = new_partitions(topic.name, len(topic.partitions), topic.partitions[first:])
            return {topic.name: await link.add_partitions(more, validate_only=True)}
        case commands.AlterTopicConfigs():
            return {topic.name: await link.set_configs(topic.name, without_labels(topic.configs), validate_only=True)}
        case _:
            return {topic.name: None}


def _unreachable(error: Exception) -> Refusal:
    return Refusal(int(ErrorCode.REQUEST_TIMED_OUT), str(error), retriable=True)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
