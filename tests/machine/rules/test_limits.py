"""Limits of rules over many topics: counts by principal, prefix and cluster, through `decide` and from the store."""

import random
from collections import Counter

import pytest

from controller.machine.rules.judging import wrong_examples
from controller.machine.rules.reading import read_rules
from controller.machine.rules.rule import RulesError
from controller.machine.state import Counts, DictTopics, groups_of
from controller.store.store import TopicStore
from events.logs.log import Commit, Entry
from events.names import shard_key
from tests.machine.rules.test_judging import apply, create, delete, discover, grow, ready, refusal
from tests.support.memory_log import InMemoryLog

PER_PRINCIPAL = "[[rule]]\nname = 'per'\nlimit = { topics = 3, partitions = 10, per = 'principal' }\n"
PREFIX = "[[rule]]\nname = 'pre'\nlimit = { topics = 2, prefix = 'pay.' }\n"
CLUSTER = "[[rule]]\nname = 'all'\nlimit = { partitions = 8 }\n"


def test_a_limit_per_principal_counts_the_topics_that_it_created() -> None:
    rig = ready(PER_PRINCIPAL)  # ann has pay.orders with 3 partitions
    assert not create(rig, "a", 3).refusal
    assert refusal(create(rig, "b", 5)) == (
        "rule 'per': User:ann has 6 partitions, and 5 more would exceed the limit of 10"
    )
    assert not create(rig, "b", 5, principal="User:bob").refusal
    assert not create(rig, "c", 3).refusal
    assert refusal(create(rig, "d", 1)) == "rule 'per': User:ann has 3 topics, and 1 more would exceed the limit of 3"
    assert "9 partitions, and 2 more" in refusal(grow(rig, "a", 5, principal="User:bob")), "the creator's count"
    delete(rig, "c")
    assert not grow(rig, "a", 5, principal="User:bob").refusal
    assert not create(rig, "d", 1).refusal


def test_dry_runs_are_judged_by_limits_and_counted_by_none() -> None:
    rig = ready(PREFIX)
    for _ in range(3):
        assert not create(rig, "pay.x", validate_only=True).answers[0].code
    assert not create(rig, "pay.x").refusal
    assert "prefix 'pay.' has 2 topics" in refusal(create(rig, "pay.y", validate_only=True))


def test_limits_of_a_prefix_and_of_the_cluster() -> None:
    rig = ready(PREFIX + CLUSTER)
    assert not create(rig, "pay.x", 1).refusal
    assert refusal(create(rig, "pay.y", 5)) == (
        "rule 'pre': prefix 'pay.' has 2 topics, and 1 more would exceed the limit of 2; "
        "rule 'all': the cluster has 4 partitions, and 5 more would exceed the limit of 8"
    )
    assert not create(rig, "pay-y", 4).refusal
    assert "8 partitions, and 1 more" in refusal(grow(rig, "pay.x", 2))
    delete(rig, "pay-y")
    assert not grow(rig, "pay.x", 2).refusal


def test_a_limit_counts_topics_that_existed_before_the_rule() -> None:
    rig = ready()
    create(rig, "pay.x")
    apply(rig, PREFIX)
    assert "has 2 topics" in refusal(create(rig, "pay.y"))


@pytest.mark.parametrize("mode", ["warn", "observe"])
def test_limits_warn_and_observe(mode: str) -> None:
    rig = ready(f"mode = '{mode}'\n{CLUSTER}")
    decision = create(rig, "a", 6)
    observed = decision.events[-1]
    assert "3 partitions, and 6 more" in (observed.warned + observed.observed)[0].message  # type: ignore[union-attr]
    assert rig.state.topics.get(shard_key("a")) is not None


def test_an_exception_of_a_limit_is_counted() -> None:
    exempt = "[[rule.exception]]\ntopics = 'big.*'\nreason = 'x'\nuntil = 2099-01-01\n"
    rig = ready(CLUSTER + exempt)
    assert not create(rig, "big.a", 9).refusal
    assert "12 partitions" in refusal(create(rig, "b", 1))


def test_discovered_topics_are_observed_by_limits_and_have_no_creator() -> None:
    rig = ready(PER_PRINCIPAL + "[[rule]]\nname = 'all'\nlimit = { topics = 1 }\n")
    discover(rig, "found")
    assert rig.state.topics.get(shard_key("found")) is not None
    assert rig.state.topics.counts("") == Counts(2, 4)
    assert rig.state.topics.counts("@User:ann") == Counts(1, 3)


def test_counts_of_the_other_partitions_are_added() -> None:
    rig = ready(PER_PRINCIPAL)
    elsewhere = (("@User:ann", 2, 2),)
    assert "User:ann has 3 topics" in refusal(create(rig, "a", 1, elsewhere=elsewhere))
    assert not create(rig, "a", 1, elsewhere=(("@User:bob", 2, 2),)).refusal


def test_examples_of_limits() -> None:
    example = "[[example]]\ntopic = 'a'\nviolates = ['per']\ncounts = { topics = 3 }\n"
    assert list(wrong_examples(read_rules(PER_PRINCIPAL + example), 0)) == []
    assert list(wrong_examples(read_rules(PER_PRINCIPAL + example.replace("3", "2")), 0))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("5", "limit = 5: is not a limit"),
        ("{ }", "limits nothing"),
        ("{ per = 'principal' }", "limits nothing"),
        ("{ topics = 0 }", "is not a count"),
        ("{ topics = true }", "is not a count"),
        ("{ topics = 1, per = 'client' }", "is not counted; allowed: principal"),
        ("{ topics = 1, prefix = 'pay' }", "is not a prefix; allowed: the beginning of names up to a '.', '_' or '-'"),
        ("{ topics = 1, prefix = '' }", "is not a prefix"),
        ("{ topics = 1, prefix = 'a.b.c.d.' }", "with at most 3 of these"),
        ("{ topics = 1, prefix = '@a.' }", "is not the beginning of a topic name"),
        ("{ topics = 1, prefix = 'a.', per = 'principal' }", "has both per and prefix"),
        ("{ topic = 1 }", "unknown key"),
        ("{ topics = 1 }\ntopics = 'pay.*'", "not those of the rule's patterns"),
    ],
)
def test_invalid_limits_are_refused(limit: str, message: str) -> None:
    with pytest.raises(RulesError, match=message.replace("{", r"\{")) as error:
        read_rules(f"[[rule]]\nname = 'a'\nlimit = {limit}\n")
    assert "line 3: rule 'a': limit" in str(error.value)


def test_the_store_counts_like_a_fold_of_the_topics() -> None:
    """Random creates, growth and deletions in commits of several, with a restart between: also the names that share a
    shard key."""
    rng, rig = random.Random(7), ready()
    log = InMemoryLog("")
    store = TopicStore(log)
    for number in range(60):
        for _ in range(rng.randrange(1, 5)):
            name, who = rng.choice(["a.b", "a_b", "a.c.d.e.f", "x"]), rng.choice(["User:ann", "User:bob"])
            match rng.randrange(3):
                case 0:
                    create(rig, name, rng.randrange(1, 4), principal=who)
                case 1:
                    delete(rig, name)
                case _:
                    grow(rig, name, rng.randrange(1, 9))
            for key in ("a_b", "a_c_d_e_f", "x"):
                store.put(shard_key(key), rig.state.topics.get(shard_key(key)))
        topics = [topic for topic in rig.state.topics.values() if topic.name != "pay.orders"]  # type: ignore[attr-defined]
        expected: Counter[str] = Counter()
        for topic in topics:
            expected.update(dict.fromkeys(groups_of(topic.name, topic.principal), len(topic.partitions)))
        groups = ["", "@User:ann", "@User:bob", "a.", "a_", "a.c.", "a.c.d.", "a.c.d.e."]
        assert [store.counts(group).partitions for group in groups] == [expected[group] for group in groups]
        state = store.state()
        log.write(Commit([Entry(b"")], store.changes(state)))
        log.flush()
        store.became_durable(state)
        assert store.durable_counts == Counts(len(topics), expected[""])
        if number % 10 == 9:
            store = TopicStore(log)


def test_topics_in_memory_count_a_recreated_topic_once() -> None:
    rig = ready()
    topics = DictTopics()
    first = rig.state.topics.get(shard_key("pay.orders"))
    topics.put(shard_key("pay.orders"), first)
    delete(rig, "pay.orders")
    create(rig, "pay_orders", 3, principal="User:bob")
    topics.put(shard_key("pay_orders"), rig.state.topics.get(shard_key("pay_orders")))
    assert topics.counts("") == Counts(1, 3)
    assert topics.counts("pay.") == topics.counts("@User:ann") == Counts()
    assert topics.counts("pay_") == topics.counts("@User:bob") == Counts(1, 3)
