"""What must hold when a simulated world has come to rest."""

from __future__ import annotations

from controller.engine.group_commit import Controller
from controller.machine.state import DictTopics, State, Topic
from controller.store.store import TOPIC_ID, WAITING, Counts, TopicStore
from controller.store.stored_topics import TOPIC
from events.catalog import Recorded
from events.logs.memory_log import InMemoryLog
from events.names import shard_key
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.rig import fold, topics_of
from tests.simulation.virtual_time import virtual_loop
from tests.simulation.witness import Witness
from tests.simulation.world import World


def check_with_brokers_down(world: World, witness: Witness) -> None:
    """Everybody had time, but some brokers are down."""
    witness.look()
    witness.check_kept()
    records = world.records()
    check_log(records)
    check_state(fold(records), world.process.controller, world.disk.kept)
    check_every_request_is_answered(world)
    check_replicas(world)


def check_at_rest(world: World, witness: Witness) -> None:
    """All brokers are back, and everybody had time again."""
    check_with_brokers_down(world, witness)
    waiting = world.process.controller.state.waiting
    assert not waiting, f"never complete: {sorted(waiting)}"


def check_log(records: list[Recorded]) -> None:
    """The log passes the auditor and the life cycles, and its time never goes back."""
    violations = audit(records, settled=True)
    assert not violations, "the auditor found:\n" + "\n".join(map(str, violations[:10]))
    Lives().see_all(records)
    times = [record.at_ms for record in records]
    late = [offset for offset in range(1, len(times)) if times[offset] < times[offset - 1]]
    assert not late, f"the log's time goes back at offset {late[0]}"


def check_state(folded: State, controller: Controller, kept: InMemoryLog) -> None:
    """The live state, the stored state, and the fold of the log are one, and nothing is stored for topics that are no
    more."""
    check_same(folded, controller.store, controller.state, "the live state")
    stored = TopicStore(kept)
    check_same(folded, stored, stored.state(), "the stored state")
    topics = {key[1:].partition(b"\0")[0] for key, _ in kept.scan(TOPIC)}
    named = {value.replace(b".", b"_") for _, value in kept.scan(TOPIC_ID)}
    assert named == topics, f"ids are kept for {named - topics}, and none for {topics - named}"
    assert len(list(kept.scan(TOPIC_ID))) == len(topics), "each topic has one id"
    assert {key[1:].decode() for key, _ in kept.scan(WAITING)} == set(controller.state.waiting), "what waits is marked"


def check_same(folded: State, store: TopicStore, state: State, what: str) -> None:
    """A state, and what a store shows, are those that the log folds to."""
    topics = store.durable_slice(None, 1 << 30)
    assert topics == topics_of(folded), f"{what}: topics differ: {_differing(topics, topics_of(folded))}"
    assert store.durable_cluster == folded.cluster, f"{what}: the cluster differs"
    assert state.cluster == folded.cluster, f"{what}: the cluster that decides differs"
    assert list(state.waiting.items()) == list(folded.waiting.items()), f"{what}: what waits differs"
    counts = Counts(len(topics), sum(len(topic.partitions) for topic in topics))
    assert store.durable_counts == counts, f"{what}: counts are {store.durable_counts}, not {counts}"
    for topic in topics:
        assert store.durable(shard_key(topic.name)) == topic, f"{what}: {topic.name} differs when it is looked up"
        assert store.durable_name_of(topic.topic_id) == topic.name, f"{what}: {topic.name} is not found by its id"


def _differing(ours: list[Topic], theirs: list[Topic]) -> list[str]:
    one, other = {topic.name: topic for topic in ours}, {topic.name: topic for topic in theirs}
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def check_every_request_is_answered(world: World) -> None:
    """Every client is answered, also in the log, and no memory is held for what is over."""
    controller = world.process.controller
    assert controller.failure is None, f"the controller failed: {controller.failure!r}"
    assert controller.storage_error is None, "the log has recovered"
    assert len(controller.replies) == 0, f"{len(controller.replies)} requests were never answered"
    waiters = [
        topic.name for topic in controller.store.durable_slice(None, 1 << 30) if topic.pending_create is not None
    ]
    assert not waiters, f"the creates of {waiters} were never answered in the log"
    timers = virtual_loop().timers()
    assert not timers, f"timers are left: {timers[:5]}"


def check_replicas(world: World) -> None:
    """The brokers that run are live, and every replica that could be is in sync."""
    cluster = world.process.controller.store.durable_cluster
    running = [broker.broker_id for broker in world.process.brokers.by_id.values() if broker.running]
    assert cluster.live == tuple(sorted(running)), f"brokers {running} run, {cluster.live} are live"
    for topic in topics_of(fold(world.records(), State(DictTopics()))):
        for index, partition in enumerate(topic.partitions):
            live = [replica for replica in partition.replicas if replica in cluster.live]
            missing = set(live) - set(partition.isr)
            led = partition.leader in cluster.live
            assert not led or not missing, f"{topic.name}-{index}: {sorted(missing)} never came in sync: {partition}"
