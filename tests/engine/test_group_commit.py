"""Group commit: which commands share a commit, when they are answered, and what readers see before."""

import asyncio

from controller.engine.group_commit import COMMANDS_PER_COMMIT_MAX
from events.catalog import SettingsChanged, TopicCreated
from tests.engine.stage import Stage, codes, on_stage


@on_stage()
async def test_requests_during_a_sync_share_the_next_commit(stage: Stage) -> None:
    stage.hold_syncs()
    first = stage.create("first")
    await stage.settle()
    others = [stage.create(f"other-{number}") for number in range(20)]
    await stage.settle()
    stage.heard.commits.clear()
    stage.release_syncs()
    await asyncio.gather(first, *others)
    assert stage.heard.commits == [(1, 5), (20, 100)], "the first alone, then the others with their confirmations"


@on_stage()
async def test_responses_and_reads_wait_for_the_sync(stage: Stage) -> None:
    stage.hold_syncs()
    create = stage.create("orders", timeout_ms=0)
    refused = stage.create("no/name")
    await stage.settle()
    assert stage.log.next_offset > stage.log.durable_offset, "written, but not durable"
    assert not create.done(), "no answer before it is durable"
    assert not refused.done(), "no rejection before it is durable"
    assert not stage.shows("orders"), "readers do not see what could be lost"
    assert stage.controller.store.durable_counts.topics == 0, "counts exclude it"
    assert stage.heard.of("decided") == [], "a decision that could be lost is not logged"
    stage.release_syncs()
    assert codes(await create) == [7], "created, but not confirmed in time"
    assert codes(await refused) == [17], "INVALID_TOPIC_EXCEPTION"
    assert stage.shows("orders")
    assert stage.controller.store.durable_counts.topics == 1
    assert [line["code"] for line in stage.heard.of("decided")] == [7, 17]


@on_stage()
async def test_commands_per_commit_are_limited(stage: Stage) -> None:
    stage.heard.commits.clear()
    count = 2 * COMMANDS_PER_COMMIT_MAX + 10
    answers = await stage.create(*(f"t{number}" for number in range(count)))
    assert codes(answers) == [0] * count
    assert [answer.topic_name for answer in answers] == [f"t{number}" for number in range(count)], "in request order"
    assert max(commands for commands, _ in stage.heard.commits) == COMMANDS_PER_COMMIT_MAX


@on_stage()
async def test_other_tasks_run_between_two_commits(stage: Stage) -> None:
    second_was_done: list[bool] = []
    names = [[f"{letter}{number}" for number in range(COMMANDS_PER_COMMIT_MAX)] for letter in "ab"]
    first, second = (stage.create(*each, validate_only=True) for each in names)
    first.add_done_callback(lambda _: second_was_done.append(second.done()))
    await asyncio.gather(first, second)
    assert second_was_done == [False]


@on_stage()
async def test_a_dry_run_writes_nothing_and_needs_no_sync(stage: Stage) -> None:
    syncs, end = stage.syncs, stage.log.next_offset
    [answer] = await stage.create("orders", validate_only=True)
    assert (answer.code, answer.topic is not None) == (0, True)
    assert (stage.syncs, stage.log.next_offset) == (syncs, end), "nothing is written"
    assert not stage.shows("orders")


@on_stage()
async def test_requests_are_decided_in_arrival_order(stage: Stage) -> None:
    replies = [stage.create("x", timeout_ms=0), stage.delete("x"), stage.create("x", timeout_ms=0), stage.delete("x")]
    assert [codes(answers) for answers in await asyncio.gather(*replies)] == [[7], [0], [7], [0]]
    assert len(stage.events(TopicCreated)) == 2
    assert not stage.shows("x")
    assert stage.controller.store.durable_counts.topics == 0


@on_stage(settings={"num.partitions": "3"})
async def test_settings_are_the_first_event_and_recorded_only_on_change(stage: Stage) -> None:
    assert isinstance(stage.records()[0].event, SettingsChanged)
    await stage.controller.stop()
    same = await Stage(disk=stage.disk, settings={"num.partitions": "3"}, boot_id="s2").start()
    assert len(same.events(SettingsChanged)) == 1
    await same.controller.stop()
    other = await Stage(disk=stage.disk, settings={"num.partitions": "4"}, boot_id="s3").start()
    assert [dict(event.settings)["num.partitions"] for event in other.events(SettingsChanged)] == ["3", "4"]


@on_stage()
async def test_background_tasks_can_await_a_durable_commit(stage: Stage) -> None:
    await stage.controller.decided()  # returns at once without pending commands
    stage.hold_syncs()
    stage.create("a", timeout_ms=0)
    await stage.settle()
    stage.change_settings(num_partitions="2")
    waits = asyncio.ensure_future(stage.controller.decided())
    await stage.settle()
    assert not waits.done(), "neither the previous commit nor its own is durable"
    stage.release_syncs()
    await waits
    assert stage.controller.store.durable_cluster.settings.num_partitions == 2


@on_stage()
async def test_a_large_request_is_decided_in_several_commits(stage: Stage) -> None:
    stage.heard.commits.clear()
    begin = len(stage.records())
    names = [f"t{number}" for number in range(6)]
    answered = stage.create(*names, num_partitions=9_000, timeout_ms=0)
    assert codes(await stage.create("small", timeout_ms=0)) == [7]
    assert codes(await answered) == [7] * 6
    assert [event.topic for event in stage.events(TopicCreated)] == [*names, "small"], "in request order"
    records = stage.records()
    for _, events in stage.heard.commits:
        together = records[begin : begin + events]
        assert sum(isinstance(record.event, TopicCreated) for record in together) <= 1
        begin += events
