"""The life-cycle tables, and the page generated from them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from events import catalog
from events.names import NO_LEADER, BrokerId, RequestId, TopicName
from tests.machine.audit.lifecycle import (
    CREATE_REQUEST,
    LIFECYCLES,
    NAMED,
    PARTITION,
    Lifecycle,
    Lives,
    OutOfLifecycle,
    advance,
    event_name,
    page,
)
from tests.machine.audit.planted import clean, ids
from tests.machine.tables import command, given

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def test_lifecycle_page_is_current() -> None:
    drawn = page()
    assert PAGE.read_text() == drawn, "generate it: python -m tests.machine.audit.lifecycle > docs/lifecycle.md"


@pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=lambda lifecycle: lifecycle.name)
def test_lifecycle_tables_are_complete(lifecycle: Lifecycle) -> None:
    reached, fresh = {lifecycle.start}, [lifecycle.start]
    while fresh:
        new = {after for after in lifecycle.states[fresh.pop()].nexts.values() if after not in reached}
        reached |= new
        fresh += new
    assert reached == set(lifecycle.states), "every state is reachable and has a row"
    names = {kind.__name__ for kind in catalog.EVENT_TYPES} | {"LeaderElected", "LeaderLost"}
    assert {event for state in lifecycle.states.values() for event in state.nexts} <= names, (
        "every event is in the catalog"
    )


def test_events_without_a_lifecycle_are_listed() -> None:
    of_access = {kind.__name__ for kind in catalog.EVENT_TYPES if kind.__module__ == "events.access"}
    assert {kind.__name__ for kind in catalog.EVENT_TYPES} - NAMED - of_access == {
        "ApprovalDecided", "ApprovalRequested", "ChangeCarriedOut", "ChangeRejected", "FeaturesChanged", "HeadSigned",
        "HistorySkipped", "MetadataAdopted",
        "MetadataHandedBack", "ProducerIdsAllocated", "QuorumEpochBegun", "ResourceConfigsChanged", "RulesApplied",
        "RulesObserved", "SettingsChanged",
    }  # fmt: skip


def test_an_event_outside_its_lifecycle_is_an_error() -> None:
    answered = catalog.CreateAnswered(RequestId("q"), TopicName("t"), 0, "", 0)
    with pytest.raises(
        OutOfLifecycle, match="CreateAnswered may not come to a create request that is requested; allowed: "
    ):
        advance(CREATE_REQUEST, "requested", answered)
    with pytest.raises(OutOfLifecycle, match="that is succeeded; allowed: nothing: it has ended"):
        advance(CREATE_REQUEST, "succeeded", answered)


def test_lifecycle_distinguishes_leader_elected_from_leader_lost() -> None:
    one, other = (catalog.Partition(ids(1, 2), ids(1, 2), BrokerId(leader)) for leader in (1, 2))
    nobody = replace(other, leader=NO_LEADER)
    pairs = ((one, other), (other, nobody), (one, replace(one, isr=ids(1))))
    won, lost, same = (catalog.PartitionChanged(TopicName("t"), 0, before, after, "") for before, after in pairs)
    assert [event_name(event) for event in (won, lost, same)] == ["LeaderElected", "LeaderLost", "PartitionChanged"]
    assert advance(PARTITION, "led", lost) == "leaderless"
    with pytest.raises(OutOfLifecycle):
        advance(PARTITION, "leaderless", lost)


REQUESTS = """
create t 1x1 id=q0                      | created
confirm 1                               | succeeded
create t 1x1 id=q2                      | refused
create u 1x1 id=q3 timeout=0            | timed-out
create v 1x1 id=q4                      | created
expire v id=q4 at=5000                  | timed-out
create w 1x1 id=q6                      | created
delete w                                | abandoned
"""


def test_lifecycle_state_of_a_create_request_follows_its_events() -> None:
    rig = given("1")
    key = ("", "")
    for line in REQUESTS.strip().splitlines():
        request, _, state = (part.strip() for part in line.partition("|"))
        if request.startswith("create"):
            key = (request.partition("id=")[2].split()[0], request.split()[1])
        rig.put(command(rig, request))
        assert Lives().see_all(rig.log).requests[key] == state, request


def test_a_log_with_missing_events_violates_the_lifecycle() -> None:
    log = clean()
    for kind in (catalog.TopicCreated, catalog.CreateRequested, catalog.BrokerUnfenced):
        broken = [record for record in log if not isinstance(record.event, kind)]
        with pytest.raises(OutOfLifecycle):
            Lives().see_all(broken)
