"""Explanations: the chain of events behind a topic or a request. The JSON of every query on a golden history has the
types that its schema declares."""

from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest
from hypothesis import given as drawn

from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.catalog import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    HistorySkipped,
    MetadataAdopted,
    MetadataHandedBack,
    RulesApplied,
    RulesObserved,
)
from events.names import RequestId, TopicName
from projections.queries import explain as module
from projections.queries import overviews
from projections.queries.events import EventFilter, Window, events_page
from projections.queries.query import NotFound, Queries
from projections.queries.topics import topic_at, topics_at
from projections.text.wording import event_text
from projections.views.events import ExplanationView
from projections.views.topics import created, deleted, refusal
from projections.views.view import ErrorView
from tests.events import golden
from tests.events.golden import HISTORIES, REAL, history
from tests.machine.tables import command
from tests.machine.walks import Walk, walked, walks
from tests.projections.logs import explain, kept, questions_of, story

LIFE = """
1 2 3 fewer
create t 1x4 id=ask conf=retention.ms=5
confirm 1 2 3
create t 1x1 id=again timeout=0
register 4 rack=x
unfence 4
reconcile t
sync t
fence 3
reconcile t
partitions t to=3 id=more
alter t set:retention.ms=7 append:cleanup.policy=compact delete:x id=conf
partitions t to=1 id=less
delete t id=end as=User:bob
unregister 4
"""

EXPLAINED = """
Topic t: deleted 2023-11-14T22:13:20.020Z by User:bob
7 +0 CreateTopic ask: User:alice (table) requests by CreateTopics v7 to create t with 1 partition, factor 4, \
retention.ms=5, waiting up to 1000 ms
8 +0 CreateTopic ask: t is created, 1 partition with factor 4, placed on live brokers 1, 2, 3; replicas 0: [3,1,2,-1]; \
-1 is a placeholder: too few brokers are live (KIP-409)
9 +1 ConfirmMetadata q: brokers 1, 2, 3 applied the creation of t
10 +1 ConfirmMetadata q: t is ready: every partition has a leader and every live broker knows it
11 +1 ConfirmMetadata q: t: answered in 1 ms: success
12 +2 CreateTopic again: User:alice (table) requests by CreateTopics v7 to create t with 1 partition, factor 1, \
not waiting
13 +2 CreateTopic again: t is rejected with TOPIC_ALREADY_EXISTS (36) by validation:exists: Topic 't' already exists. \
It was created at 2023-11-14T22:13:20.008Z and is ready.
14 +2 CreateTopic again: t: answered in 0 ms: TOPIC_ALREADY_EXISTS (36): Topic 't' already exists. \
It was created at 2023-11-14T22:13:20.008Z and is ready.
17 +5 ReconcileTopics q: partition 0: broker 4 replaces placeholder -1 (live brokers changed) \
<= broker 4 is live (why) at offset 16
18 +6 AlterPartition q: partition 0: the ISR is [3,1,2,4] (reported by broker 3) \
<= broker 4 is live (why) at offset 16
20 +8 ReconcileTopics q: partition 0: broker 1 leads in epoch 1, the ISR is [1,2,4] (live brokers changed) \
<= broker 3 is fenced (why) at offset 19
21 +9 CreatePartitions more: User:alice (table) raises t from 1 to 3 partitions; replicas 1: [1,4,2,-1], 2: [4,2,1,-1]
22 +10 AlterTopicConfigs conf: User:alice (table) changes the configs of t: \
cleanup.policy unset -> delete,compact, retention.ms 5 -> 7
23 +11 CreatePartitions less: User:alice (table) requests a change of t (to have 1 partition), but is rejected with \
INVALID_PARTITIONS (37) by validation:partitions: The topic t currently has 3 partition(s); 1 would not be an increase.
24 +12 DeleteTopic end: User:bob (table) deletes t
"""


def _shown(chain: ExplanationView) -> str:
    lines = [chain.summary]
    for step in chain.steps:
        because = f" <= {step.because}" if step.because else ""
        cause = f"{step.cause.command} {step.cause.request_id}"
        lines.append(f"{step.offset} +{step.after_ms} {cause}: {step.text}{because}")
    return "\n".join(lines)


def test_explain_covers_a_topic_from_request_to_deletion() -> None:
    chain = explain(questions_of(story(LIFE).log), "t")
    assert chain.kind == "topic"
    assert _shown(chain) == EXPLAINED.strip()


# steps | the request's summary without the time, and the types of its events
REQUESTS = """
create t 1x1                                 | t waiting                            | CreateRequested TopicCreated
create t 1x1; confirm 1 2                    | t waiting                            | CreateRequested TopicCreated MetadataPropagated
create t 1x1; confirm 1 2 3                  | t created                            | CreateRequested TopicCreated MetadataPropagated TopicReady CreateAnswered
create t 1x1 timeout=0; confirm 1 2 3; sync t| t timed-out REQUEST_TIMED_OUT (7)    | CreateRequested TopicCreated CreateAnswered MetadataPropagated TopicReady
create t 1x1; delete t id=other              | t failed UNKNOWN_TOPIC_OR_PARTITION (3) | CreateRequested TopicCreated TopicDeleted CreateAnswered
create t 1x1; create t 1x1 id=other; confirm 1 2 3 | t created | CreateRequested TopicCreated MetadataPropagated TopicReady CreateAnswered
create t 0x1                                 | t rejected INVALID_PARTITIONS (37) | CreateRequested CreateRejected CreateAnswered
create t 1x1; confirm 1 2 3; fence 3; reconcile t | t created | CreateRequested TopicCreated MetadataPropagated TopicReady CreateAnswered
create t 1x1; create u 0x1                   | t waiting, u rejected INVALID_PARTITIONS (37) | CreateRequested TopicCreated CreateRequested CreateRejected CreateAnswered
delete t                                     | t rejected UNKNOWN_TOPIC_OR_PARTITION (3) | ChangeRejected
"""  # noqa: E501


@pytest.mark.parametrize("line", REQUESTS.strip().splitlines())
def test_explain_covers_a_request_until_its_topics_are_ready(line: str) -> None:
    steps, fared, events = (column.strip() for column in line.split("|"))
    chain = explain(questions_of(story("1 2 3\n" + steps.replace(";", "\n")).log), "q")
    assert chain.kind == "request"
    assert chain.summary.startswith(fared)
    assert "; request q: " in chain.summary
    assert " ".join(step.event for step in chain.steps) == events


def test_explain_prefers_a_topic_over_a_request_of_the_same_name() -> None:
    chain = explain(questions_of(story("1 2 3\ncreate both 1x1 id=both").log), "both")
    assert chain.kind == "topic"
    conclusion, facts = chain.summary.split(". ")
    assert conclusion == "both is not ready: it waits for the metadata to be applied by brokers 1, 2, 3"
    assert facts.startswith("Topic both: pending, 1 partition, created 2023-11-14T22:13:20.008Z by User:alice")


def test_explain_covers_a_rejected_topic_name() -> None:
    chain = explain(questions_of(story("1 2 3\ncreate t 0x1").log), "t")
    assert "no topic 't' was ever created; its newest create request was rejected at 2023" in chain.summary
    assert "by validation:partitions: Number of partitions was set to an invalid non-positive value." in chain.summary
    assert len(chain.steps) == 3


def test_explain_omits_the_middle_of_a_long_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS_BEFORE_GAP", 3)
    monkeypatch.setattr(module, "STEPS_AFTER_GAP", 4)
    rig = story("1 2 3\ncreate t 1x1")
    for number in range(20):
        rig.put(command(rig, f"alter t set:retention.ms={number}"))
    chain = explain(questions_of(rig.log), "t")
    first = rig.log[-1].offset - 19
    assert [step.offset for step in chain.steps] == [first - 2, first - 1, first, *range(first + 16, first + 20)]
    assert chain.omitted == 15


@drawn(walks())
def test_every_event_of_random_runs_has_a_text(walk: Walk) -> None:
    for record in walked(walk).log:
        text = event_text(record.event)
        assert text, f"no sentence for {record}"
        assert text == text.strip(), f"blanks around the sentence for {record}"


def test_every_event_type_has_a_distinct_text() -> None:
    log = [
        *story(f"fewer\n{REAL.strip()}").log,
        *story(LIFE).log,
        *history("cluster"),
        *history("signed"),
        *(one for one in golden.history("approvals") if isinstance(one.event, ApprovalRequested | ApprovalDecided)),
        *(one for one in golden.history("rules") if isinstance(one.event, RulesApplied | RulesObserved)),
        *(one for one in golden.history("followed") if isinstance(one.event, HistorySkipped)),
        *(one for one in golden.history("adopted") if isinstance(one.event, MetadataAdopted | MetadataHandedBack)),
    ]
    sentences = {type(record.event): event_text(record.event) for record in log}
    assert sentences.keys() == {kind for kind in get_args(Event) if kind.__module__ != "events.access"}
    assert len(set(sentences.values())) == len(sentences), "each sentence is different"


THREE = """fewer
quorum elr
join 1
join 2
join 3
unfence 1
unfence 2
unfence 3
create t 1x3 timeout=0 id=c0
alter t set:min.insync.replicas=3 id=c1"""

# after three brokers with a topic on all of them and min.insync.replicas=3: steps | the cause of the last event
CASES = """
fence 2; reconcile t; join 2 as=second unclean; fence 3; reconcile t | broker 3 is fenced (why)
fence 2; fence 3; reconcile t; join 2 as=second unclean; reconcile t | broker 2 registers, with epoch 4, after an unclean shutdown
join 2 as=second unclean; reconcile t                      | broker 2 registers, with epoch 4, after an unclean shutdown
join 2 as=second; reconcile t                              | broker 2 is fenced (registered again)
join 4; unfence 4; fence 2; fence 4; reconcile t           | broker 2 is fenced (why)
leave 2; fence 4; reconcile t                              | broker 2 begins controlled shutdown
join 4; unfence 4; dirs 2 77; fence 4; reconcile t         | broker 2 has 1 log directory online
fence 2; reconcile t; unfence 2; report t by=3 0:3.1.2:0:1 | broker 2 is live (why)
report t by=3 0:3.1:0:0                                    |
"""  # noqa: E501


@pytest.mark.parametrize("line", CASES.strip().splitlines())
def test_a_partition_change_text_names_the_changed_field(line: str) -> None:
    steps, because = (column.strip() for column in line.split("|"))
    rig = story(f"{THREE}\n{steps}".replace("; ", "\n"))
    step = explain(questions_of(rig.log), "t").steps[-1]
    assert step.event == "PartitionChanged", step
    assert step.because.partition(" at offset ")[0] == because, step
    if because:
        assert int(step.because.rpartition(" ")[2]) < step.offset, "the cause comes before the effect"


def _answers(query: Queries, topics: set[str], requests: set[str], end: int) -> Iterator[msgspec.Struct]:
    """Yields every answer that queries give about a history."""
    yield events_page(query, EventFilter(), Window(limit=end))
    for at in map(str, range(end)):
        yield topics_at(query, at, None, end)
        yield overviews.brokers(query, at)
    for request_id in requests:
        yield query.request(request_id)
    for subject in topics | requests:
        yield explain(query, subject)
    for name in topics:
        try:
            yield topic_at(query.of_topic(name), name, None)
        except NotFound:
            continue


@pytest.mark.parametrize("name", HISTORIES)
def test_every_query_response_round_trips_through_json(name: str) -> None:
    records = history(name)
    query = questions_of(records)
    topics = {topic for one in records if (topic := getattr(one.event, "topic", None))}
    requests = {request for one in records if (request := getattr(one.event, "request_id", None))}
    for answer in _answers(query, topics, requests, len(records)):
        encoded = msgspec.json.encode(answer)
        assert msgspec.json.encode(msgspec.json.decode(encoded, type=type(answer))) == encoded


def test_create_delete_and_refusal_responses_round_trip_through_json() -> None:
    rig = story("1 2 3\ncreate t 2x3 id=q")
    store = kept(rig.log)[1]
    topic = store.durable_named("t")
    answer = Answer(RequestId("q"), TopicName("t"), 0, topic=topic)
    refused = rig.put(command(rig, "create t 2x3 id=again")).answers[0]
    made = created(answer, store.durable_cluster.live, False)
    for shape in (made, deleted(answer, topic), refusal(refused)):
        assert msgspec.json.decode(msgspec.json.encode(shape), type=type(shape)) == shape
    assert (made.status, made.replication_factor) == ("ready", 3)
    assert created(answer, (), True).topic_id is None, "a dry run has no id"
    assert refusal(refused) == ErrorView(
        error="TOPIC_ALREADY_EXISTS",
        code=ErrorCode.TOPIC_ALREADY_EXISTS,
        message=refused.message,
        request_id="again",
        rule="validation:exists",
    )
