"""Checks of a simulated world after all faults and requests have ended."""

from collections import Counter

from controller.engine.group_commit import Controller
from controller.machine.state import Counts, DictTopics, State, Topic, groups_of
from controller.store.store import TOPIC_ID, WAITING, TopicStore, stored_counts
from controller.store.stored_topics import TOPIC
from events.catalog import Recorded
from events.names import shard_key
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.rig import fold, topics_of
from tests.simulation.virtual_time import virtual_loop
from tests.simulation.witness import Witness
from tests.simulation.world import World
from tests.support.memory_log import InMemoryLog
from tests.support.partition_limits import wrong_verdicts


def check_with_brokers_down(world: World, witness: Witness) -> None:
    """Check after enough time for every request, with some brokers down."""
    witness.look()
    witness.check_kept()
    records = world.records()
    check_log(records)
    check_state(fold(records), world.process.controller, world.disk.kept)
    check_every_request_is_answered(world)
    check_replicas(world)


def check_at_rest(world: World, witness: Witness) -> None:
    """Check after all brokers have restarted and caught up: no topic is waiting."""
    check_with_brokers_down(world, witness)
    waiting = world.process.controller.state.waiting
    assert not waiting, f"topics still waiting: {sorted(waiting)}"
    held = world.process.controller.state.cluster.held
    assert not held, f"requests have not expired: {sorted(held)}"


def check_log(records: list[Recorded]) -> None:
    """Check the log: invariants and life cycles hold, decisions match the rules before them, and timestamps never
    decrease."""
    violations = audit(records, settled=True)
    assert not violations, "violations:\n" + "\n".join(violations[:10])
    Lives().see_all(records)
    wrong = wrong_verdicts(records)
    assert not wrong, "decisions differ from the rules:\n" + "\n".join(wrong[:10])
    times = [record.at_ms for record in records]
    late = [offset for offset in range(1, len(times)) if times[offset] < times[offset - 1]]
    assert not late, f"the timestamp decreases at offset {late[0]}"


def check_state(folded: State, controller: Controller, kept: InMemoryLog) -> None:
    """Check that the live state, the stored state and the fold of the log are equal, and that deleted topics have no
    stored rows."""
    check_same(folded, controller.store, controller.state, "the live state")
    stored = TopicStore(kept)
    check_same(folded, stored, stored.state(), "the stored state")
    topics = {key[1:].partition(b"\0")[0] for key, _ in kept.scan(TOPIC)}
    named = {value.replace(b".", b"_") for _, value in kept.scan(TOPIC_ID)}
    assert named == topics, f"ids are stored for {named - topics} and missing for {topics - named}"
    assert len(list(kept.scan(TOPIC_ID))) == len(topics), "each topic has one id"
    assert {key[1:].decode() for key, _ in kept.scan(WAITING)} == set(controller.state.waiting), "waiting rows differ"


def check_same(folded: State, store: TopicStore, state: State, what: str) -> None:
    """Check that a state and the reads of a store equal the fold of the log."""
    topics = [*store.durable_from(None)]
    assert topics == topics_of(folded), f"{what}: topics differ: {_differing(topics, topics_of(folded))}"
    assert store.durable_cluster == folded.cluster, f"{what}: the stored cluster differs"
    assert state.cluster == folded.cluster, f"{what}: the cluster for decisions differs"
    assert list(state.waiting.items()) == list(folded.waiting.items()), f"{what}: the waiting topics differ"
    counts = Counts(len(topics), sum(len(topic.partitions) for topic in topics))
    assert store.durable_counts == counts, f"{what}: counts are {store.durable_counts}, not {counts}"
    groups = Counter(group for topic in topics for group in groups_of(topic.name, topic.principal))
    for group, count in groups.items():
        counted = stored_counts(store._log, group)
        assert counted.topics == count, f"{what}: the counts of {group!r} are {counted}, not {count} topics"
    for topic in topics:
        assert store.durable(shard_key(topic.name)) == topic, f"{what}: {topic.name} differs when read by name"
        assert store.durable_name_of(topic.topic_id) == topic.name, f"{what}: {topic.name} is not found by its topic id"


def _differing(ours: list[Topic], theirs: list[Topic]) -> list[str]:
    one, other = {topic.name: topic for topic in ours}, {topic.name: topic for topic in theirs}
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def check_every_request_is_answered(world: World) -> None:
    """Check that every request has an answer, also in the log, and that no pending request or timer is left."""
    controller = world.process.controller
    assert controller.failure is None, f"the controller failed: {controller.failure!r}"
    assert controller.storage_error is None, "the log has not recovered"
    assert len(controller.replies) == 0, f"{len(controller.replies)} requests were never answered"
    waiters = [topic.name for topic in controller.store.durable_from(None) if topic.pending_create is not None]
    assert not waiters, f"the creates of {waiters} were never answered in the log"
    timers = virtual_loop().timers()
    assert not timers, f"timers are left: {timers[:5]}"


def check_replicas(world: World) -> None:
    """Check that running brokers are live, and that live replicas of a partition with a leader are in the ISR."""
    cluster = world.process.controller.store.durable_cluster
    running = [broker.broker_id for broker in world.process.brokers.by_id.values() if broker.running]
    assert cluster.live == tuple(sorted(running)), f"brokers {running} are running, but {cluster.live} are live"
    for topic in topics_of(fold(world.records(), State(DictTopics()))):
        for index, partition in enumerate(topic.partitions):
            live = [replica for replica in partition.replicas if replica in cluster.live]
            missing = set(live) - set(partition.isr)
            led = partition.leader in cluster.live
            assert not led or not missing, f"{topic.name}-{index}: {sorted(missing)} did not join the ISR: {partition}"
