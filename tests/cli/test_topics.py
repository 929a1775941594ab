"""`topicwright topics` on the folder of a stopped service; dry runs of creates; and query commands on the folder of
a stopped worker or gateway, which has a log for each partition."""

import asyncio
import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from controller.cli.reads import common
from controller.stream.log.codec import partition_of
from controller.stream.log.partition import PartitionState
from events.names import shard_key
from tests.cli.commands import Outcome, Printed, Run, columns, open_log
from tests.http.service import POLICY, Judge, Rules, owned, service
from tests.stream.log.records import Writing, create, joined


def test_topics_are_listed_in_columns(offline: Run) -> None:
    outcome = offline("topics")
    assert (outcome.code, outcome.err) == (0, "")
    header, first, second = columns(outcome.out)
    assert header == ["TOPIC", "PARTITIONS", "FACTOR", "STATUS", "CREATED", "OWNER"]
    assert first[:4] == ["a.t", "1", "3", "ready"]
    assert second[:4] == ["u", "2", "3", "ready"]
    assert second[5:] == ["created", "by", "User:ANONYMOUS"]
    starts = {line.index("ready") for line in outcome.out.splitlines()[1:]}
    assert starts == {outcome.out.index("STATUS")}, "the column is aligned with its heading"


def test_one_topic_is_printed_with_all_details(offline: Run) -> None:
    outcome = offline("topics", "a.t")
    assert outcome.code == 0
    assert outcome.out.startswith("a.t: ready, as of offset ")
    for words in (
        "partitions  1, factor 3",
        "by User:ANONYMOUS (python-httpx",
        "over HTTP, in request boot-",
        "later\n",
    ):
        assert words in outcome.out
    assert "configs     retention.ms=5" in outcome.out
    assert columns(outcome.out)[-2:] == [
        ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "OFFLINE"],
        ["0", *_replicas(outcome.out), "-"],
    ]


def _replicas(text: str) -> list[str]:
    last = text.splitlines()[-1].split()
    assert last[1] == last[2].partition(",")[0] == last[3].partition(",")[0], "the first replica leads"
    return last[1:4]


def test_topics_are_printed_as_of_an_offset_or_time(offline: Run) -> None:
    events = [json.loads(line) for line in offline("events", "--json").out.splitlines()]
    born = next(event for event in events if event["type"] == "TopicCreated" and event["fields"]["topic"] == "v")
    for at in (born["offset"], born["at"], f"{born['at_ms']}ms"):
        outcome = offline("topics", "v", "--at", at)
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith("v: ")
    listed = json.loads(offline("topics", "--at", born["offset"], "--json").out)
    assert [topic["name"] for topic in listed["topics"]] == ["a.t", "v"]
    before = offline("topics", "--at", "2001-01-01")
    assert (before.code, before.out) == (0, "State before the first event:\nThere are no topics.\n")


def test_topics_are_filtered_by_pattern_status_and_principal(offline: Run) -> None:
    def names(*words: str) -> list[str]:
        return offline("topics", *words, "-o", "name").out.split()

    assert names() == ["a.t", "u"]
    assert names("a.*") == names("?.t") == ["a.t"]
    assert names("--status", "ready") == ["a.t", "u"]
    assert names("--status", "offline") == []
    assert names("--principal", "User:ANON*") == ["a.t", "u"]
    assert names("--principal", "User:bob") == []
    assert offline("topics", "z*").out.startswith("There are no topics that match.")


async def test_errors_of_topics_name_what_is_meant(run: Run) -> None:
    async with service(authorizer=Rules(lambda _, operation, *__: operation != "Create")) as one:
        denied = await asyncio.to_thread(run, "topic", "create", "t", "--http", f"127.0.0.1:{one.port}")
    assert denied.out == (
        "t is rejected: Authorization failed. (TOPIC_AUTHORIZATION_FAILED, by authorizer); "
        "this login needs Create on Topic:t\n"
    )
    async with service() as one:
        at = ("--http", f"127.0.0.1:{one.port}")
        for name in ("pay.orders", "old"):
            await one.create(name, num_partitions=1)
        await one.request("DELETE", "/v1/topics/old")
        again = await asyncio.to_thread(run, "topic", "delete", "old", *at)
        assert re.search(r"old is not deleted: .*: it was deleted at offset \d+ .* by User:ANONYMOUS", again.out)
        near = await asyncio.to_thread(run, "topics", "pay.ordrs", *at)
        assert near.err.endswith("; did you mean pay.orders?\n")
        late = await asyncio.to_thread(run, "diff", "now", "1h", *at)
        assert "FROM is later than TO: give 20" in late.err
        assert "type: 'Created' is unknown; use AclsCreated or TopicCreated" in str(
            await one.get("/v1/events", 400, type="Created")
        )
        assert "limit: must be a whole number" in str(await one.get("/v1/events", 400, limit="abc"))


def test_topics_are_sorted_by_a_column(offline: Run) -> None:
    assert offline("topics", "--sort-by", "created", "-o", "name").out == "a.t\nu\n"
    assert offline("topics", "--sort-by", "partitions", "-o", "name").out == "a.t\nu\n"
    assert offline("topics", "--sort-by", "topic", "--principal", "ANON*", "-o", "name").out == "a.t\nu\n"
    assert "allowed: topic, partitions" in offline("topics", "--sort-by", "size").err


async def test_topic_wait_and_simulated_brokers(run: Run) -> None:
    async with service() as one:

        async def of_service(*words: object) -> Outcome:
            return await asyncio.to_thread(run, *words, "--http", f"127.0.0.1:{one.port}")

        assert (await of_service("topic", "create", "t", "--partitions", 3)).code == 0
        assert (await of_service("topic", "wait", "t")).out == "t is ready\n"
        assert (await of_service("broker", "stop", 1)).out.endswith(" is stopped\n")
        late = await of_service("topic", "wait", "t", "--timeout-ms", 1)
        assert late.code == 1
        assert "t is not ready after 1 ms: 3 partitions of t are under-replicated" in late.err
        assert (await of_service("broker", "delay", 1, 5)).out.endswith("applies events after 5 ms\n")
        assert (await of_service("broker", "start", 1)).out.endswith(" is running; it applies events after 5 ms\n")
        assert (await of_service("broker", "start", 2)).out.endswith(" is running\n")
        assert (await of_service("topic", "wait", "t")).code == 0
        assert json.loads((await of_service("broker", "add", "--rack", "z", "--json")).out)["rack"] == "z"
        assert "no simulated broker 99; known: 1, 2, 3, 4" in (await of_service("broker", "stop", 99)).err
        assert (await of_service("topic", "delete", "t")).code == 0
        assert (await of_service("topic", "wait", "t", "--for", "deleted")).out == "t is deleted\n"
        assert (await of_service("topic", "wait", "t")).code == 1


def test_watch_prints_again_until_interrupted(offline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter((None, None, KeyboardInterrupt()))

    def sleep(seconds: float) -> None:
        assert seconds == common.WATCH_S
        if (end := next(rounds)) is not None:
            raise end

    monkeypatch.setattr(common, "sleep", sleep)
    assert offline("topics", "--watch").out.count("a.t ") == 3
    assert "--watch shows the present" in offline("topics", "--watch", "--at", 3).err


def test_topic_and_event_pages_are_concatenated(offline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [("topics",), ("topics", "--at", 20), ("events",)]
    whole = [offline(*one) for one in commands]
    monkeypatch.setattr(common, "PAGE", 1)
    assert [offline(*one) for one in commands] == whole


async def test_topic_create_dry_run_prints_replicas_or_the_refusal(run: Run) -> None:
    async with service() as one:
        await one.create("u")

        def dry_run(name: str, *flags: object) -> Outcome:
            return run("topic", "create", name, "--dry-run", *flags, "--http", f"127.0.0.1:{one.port}")

        of_new = ("--partitions", 2, "--config", "retention.ms=9")
        outcome = await asyncio.to_thread(dry_run, "new", *of_new)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("new would be created: 2 partitions, factor 3\n  retention.ms=9\n\nPARTITION")
        assert len(outcome.out.splitlines()) == 6
        again = json.loads((await asyncio.to_thread(dry_run, "new", *of_new, "--json")).out)
        assert [part["partition"] for part in again["partitions"]] == [0, 1]
        refused = await asyncio.to_thread(dry_run, "u", "--replication-factor", 2)
        assert refused.code == 1
        assert refused.out.startswith("u would be rejected: Topic 'u' already exists.")
        assert refused.out.endswith("(TOPIC_ALREADY_EXISTS, by validation:exists)\n")
        odd = await asyncio.to_thread(dry_run, "new", "--partitions", -7)
        assert odd.code == 1
        assert "num_partitions" in odd.out


async def test_policies_of_a_dry_run(run: Run, tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    async with service(log=log, settings=POLICY, judge=Judge(owned)) as one:
        refused = await asyncio.to_thread(run, "topic", "create", "t", "--dry-run", "--http", f"127.0.0.1:{one.port}")
    log.close()
    assert refused.code == 1
    assert refused.out == "t would be rejected: t has no owner (POLICY_VIOLATION, by policy:tests.Owned/owner)\n"


PARTITIONS = 3
NAMES = [f"topic.{number}" for number in range(9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a worker that has owned every partition."""
    folder = tmp_path_factory.mktemp("worker")
    for number in range(PARTITIONS):
        state = PartitionState.open(folder, number, cluster_id="c", topic_id="t")
        worker = Writing(state)
        worker.fence()
        worker.decide(*joined(1))
        worker.decide(*(create(name, timeout_ms=0) for name in NAMES if _partition(name) == number))
        state.commit()
        state.close()
    return folder


def _partition(name: str) -> int:
    return partition_of(shard_key(name), PARTITIONS)


def test_topics_of_all_log_partitions_are_listed(folder: Path, printed: Printed) -> None:
    topics = ("topics", "--data", folder)
    assert [topic["name"] for topic in json.loads(printed(*topics, "--json"))["topics"]] == NAMES
    shown = printed(*topics, "--at", "now")
    assert shown.startswith("State as of ")
    assert all(name in shown for name in NAMES)
    as_of = json.loads(printed(*topics, "--json", "--at", "now"))["as_of"]
    assert as_of["offset"] + 1 == sum(as_of["ends"]) == len(_events(folder, printed))
    assert NAMES[3] in printed(*topics, NAMES[3])
    as_of = json.loads(printed(*topics, NAMES[3], "--json", "--at", "7"))["as_of"]
    assert as_of["partition"] == _partition(NAMES[3]), "an offset of the topic's own partition"
    assert "give a time, or query one topic" in printed(*topics, "--at", "7", code=2)


def _events(folder: Path, printed: Printed, *words: str) -> list[tuple[int, int]]:
    lines = printed("events", "--data", folder, "--json", *words).splitlines()
    return [(event["partition"], event["offset"]) for event in map(json.loads, lines)]


def test_event_pages_cover_all_log_partitions(folder: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    events = partial(_events, folder, printed)
    whole = events()
    assert {partition for partition, _ in whole} == {0, 1, 2}
    monkeypatch.setattr(common, "PAGE", 2)
    assert events() == whole
    of_one = [place for place in whole if place[0] == 1]
    assert events("--partition", "1") == of_one
    assert events("--partition", "1", "--since", "2") == of_one[2:]
    assert events("--tail", "5") == whole[-5:]
    assert events("--since", "2001-01-01") == whole
    assert events("--since", "1h") == []
    assert events("--partition", "1", "--tail", "2") == of_one[-2:]
    shown = printed("events", "--data", folder, "--topic", NAMES[0])
    assert shown.splitlines()[1].lstrip().startswith(f"{_partition(NAMES[0])}:")


# command | exit code and output
OF_PARTITIONS = f"""
events --since 2                   | 2 give partition or topic too
events --partition 3               | 2 there is no partition 3; allowed are 0 to 2
explain {NAMES[5]}                 | 0 Topic {NAMES[5]}:
prove 2                            | 2 partition: each partition has its own tree: name one, 0 to 2
"""


@pytest.mark.parametrize("line", OF_PARTITIONS.strip().splitlines())
def test_commands_on_partitions(folder: Path, printed: Printed, line: str) -> None:
    command, expected = (column.strip() for column in line.split("|"))
    code, words = expected.split(" ", 1)
    assert words in printed(*command.split(), "--data", folder, code=int(code))


def test_missing_or_locked_log_partitions_are_reported(folder: Path, printed: Printed, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder, tmp_path / "worker"))
    state = PartitionState.open(folder, 2, cluster_id="c", topic_id="t")
    assert "partition-00002" in printed("topics", "--data", folder, code=2)
    state.close()
    (folder / "partition-00001").rename(folder / "elsewhere")
    said = printed("topics", "--data", folder, code=2)
    assert "lacks partition 1: a worker has only partitions that it owned" in said


def test_each_log_partition_has_its_own_merkle_tree(folder: Path, printed: Printed, run: Run, tmp_path: Path) -> None:
    lines = printed("verify", folder).splitlines()
    assert [line.split(":")[0] for line in lines] == ["c/0", "c/1", "c/2"]
    assert printed("verify", folder, "--partition", "1") == lines[1] + "\n"
    assert "--partition 3: " in printed("verify", folder, "--partition", "3", code=2)
    proof = run("prove", "2", "--data", folder, "--partition", "1").out
    head = json.loads(proof)["head"]
    assert (head["log"], lines[1].endswith(f"root {head['root']}")) == ("c/1", True)
    (tmp_path / "head.json").write_text(proof)
    for number, code in (("1", 0), ("2", 1)):
        printed("verify", folder, "--partition", number, "--head", tmp_path / "head.json", code=code)
