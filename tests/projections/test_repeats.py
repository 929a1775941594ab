"""What came of a request that is sent once more."""

from __future__ import annotations

import pytest

from controller.http.changes import TRIES_MAX, TriedTooOften, earlier
from controller.machine.commands.commands import TopicCommand
from events.names import RequestId
from projections.queries.query import Questions
from tests.machine.tables import command, given
from tests.projections.logs import query_of, questions_of

# given | steps, separated by `;` | the request q sent again | whether it is the same wish, and the answer
TABLE = """
1 2 3         |                                                  | create t 1x1 | try q
1 2 3         | create t 1x1                                     | create t 1x1 | same, due
1 2 3         | create t 1x1; confirm 1 2 3                      | create t 1x1 | same, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | create t 2x1 | other, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | create u 1x1 | other, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | create t 1x1 as=User:b timeout=5 | same, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | delete t | other, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3; partitions t to=4 id=p; delete t id=d | create t 1x1 | same, 0 with 1 partitions
1 2 3         | create t 1x1 timeout=0                           | create t 1x1 | same, 7 with 1 partitions
1 2 3         | create t 1x1; delete t id=d                      | create t 1x1 | same, 3
1 2 3         | create t 0x1                                     | create t 0x1 | same, 37 by validation:partitions
1 2 3 has:t   | partitions t to=3; partitions t to=5 id=p        | partitions t to=3 | same, 0 with 3 partitions
1 2 3 has:t   | partitions t to=3                                | partitions t to=4 | other, 0 with 3 partitions
1 2 3 has:t   | alter t set:retention.ms=5                       | alter t set:retention.ms=5 | same, 0 with 1 partitions
1 2 3 has:t   | alter t set:retention.ms=5                       | alter t set:retention.ms=6 | other, 0 with 1 partitions
1 2 3 has:t   | delete t                                         | delete t | same, 0 with 1 partitions
1 2 3         | delete t                                         | delete t | same, 3 by validation:unknown-topic
1 2 3 cluster | create t 1x1 clear=41                            | create t 1x1 | try q-2
1 2 3 cluster | create t 1x1 clear=7                             | create t 1x1 | try q-2
1 2 3 cluster | create t 1x1 clear=89; create t 2x1 clear=0 id=q-2 | create t 2x1 | same, due
1 2 3 cluster | create t 1x1 clear=89; create t 1x1 clear=56 id=q-2 | create t 1x1 | try q-3
1 2 3 cluster | create t 1x1 clear=89; create t 1x1 clear=44 id=q-2 | create t 1x1 | same, 44 by cluster
1 2 3 cluster | create t 1x1 clear=44 id=q-3                     | create t 1x1 | same, 44 by cluster
1 2 3 cluster | create t 1x1 clear=44 id=q-10                    | create t 1x1 | try q
1 2 3 cluster | seen t 1::1:0 conf=; delete t clear=0                  | delete t | same, due
1 2 3 cluster | seen t 1::1:0 conf=; partitions t to=3 clear=0; done t id=q | partitions t to=3 | same, 0 with 3 partitions
1 2 3 cluster | seen t 1::1:0 conf=; partitions t to=3 clear=0; done t id=q code=44 | partitions t to=3 | same, 44 by cluster
"""  # noqa: E501


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_a_request_is_known_by_its_events(line: str) -> None:
    begin, steps, again, expected = (column.strip() for column in line.split("|"))
    rig = given(begin)
    for step in filter(None, steps.split(";")):
        rig.put(command(rig, step.strip()))
    carried_out = "cluster" in begin.split()
    request_id, found = earlier(questions_of(rig.log), RequestId("q"), has_target_cluster=carried_out)
    if found is None:
        assert f"try {request_id}" == expected
        return
    sent = command(rig, again)
    assert isinstance(sent, TopicCommand)
    wish, answer = "same" if found.has_same_parameters(sent) else "other", found.answer
    if answer is None:
        assert f"{wish}, due" == expected
        return
    rule = f" by {answer.rule}" if answer.rule else ""
    topic = f" with {len(answer.topic.partitions)} partitions" if answer.topic is not None and not answer.rule else ""
    assert f"{wish}, {answer.code}{rule}{topic}" == expected


def test_a_try_that_may_be_decided_late_is_not_made_again() -> None:
    rig = given("1 2 3 cluster")
    query = questions_of(rig.log)
    late = [RequestId("q"), RequestId("q-2")]
    assert earlier(query, RequestId("q"), late) == ("q-3", None)
    for number in range(1, TRIES_MAX + 1):
        rig.put(command(rig, f"create t 1x1 clear=89 id=q{'' if number == 1 else f'-{number}'}"))
    with pytest.raises(TriedTooOften):
        earlier(questions_of(rig.log), RequestId("q"))


def test_a_request_is_found_in_any_partition() -> None:
    rig = given("1 2 3")
    rig.put(command(rig, "create t 1x1 timeout=0"))
    both = Questions([query_of(given("1 2 3").log), query_of(rig.log)], lambda key: 1)
    request_id, found = earlier(both, RequestId("q"))
    assert (request_id, found is not None) == ("q", True)
    assert earlier(both, RequestId("other")) == ("other", None)
