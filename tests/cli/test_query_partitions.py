"""The query commands on the folder of a stopped worker or gateway, a log for each partition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from controller.cli.reads import common
from controller.stream.log.partition import PartitionState
from events.logs.events_topic import partition_of
from events.names import shard_key
from tests.cli.commands import Run
from tests.stream.log.records import Writing, create, joined

PARTITIONS = 3
NAMES = [f"topic.{number}" for number in range(9)]


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture
def folder(_folder: Path, tmp_path: Path) -> Path:
    """What a worker leaves that has owned every partition."""
    return Path(shutil.copytree(_folder, tmp_path / "worker"))


def _partition(name: str) -> int:
    return partition_of(shard_key(name), PARTITIONS)


def test_topics_of_all_partitions_are_listed_and_shown(folder: Path, run: Run) -> None:
    code, out, _ = run("topics", "--data", folder, "--json")
    assert code == 0
    assert [topic["name"] for topic in json.loads(out)["topics"]] == NAMES
    code, out, _ = run("topics", "--data", folder, "--at", "2099-01-01")
    assert (code, all(name in out for name in NAMES)) == (0, True)
    code, out, _ = run("topics", "--data", folder, "--json", "--at", "2099-01-01")
    as_of = json.loads(out)["as_of"]
    assert as_of["offset"] + 1 == sum(as_of["ends"]) == len(_events(folder, run))
    code, out, _ = run("topics", NAMES[3], "--data", folder)
    assert (code, NAMES[3] in out) == (0, True)
    code, out, _ = run("topics", NAMES[3], "--data", folder, "--json", "--at", "7")
    assert json.loads(out)["as_of"]["partition"] == _partition(NAMES[3]), "an offset of the topic's own partition"
    code, _, err = run("topics", "--data", folder, "--at", "7")
    assert (code, "give a time, or query one topic" in err) == (2, True)


def _events(folder: Path, run: Run, *words: str) -> list[tuple[int, int]]:
    code, out, err = run("events", "--data", folder, "--json", *words)
    assert code == 0, err
    return [(event["partition"], event["offset"]) for event in map(json.loads, out.splitlines())]


def test_events_are_listed_over_all_pages(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _events(folder, run)
    assert {partition for partition, _ in whole} == {0, 1, 2}
    monkeypatch.setattr(common, "PAGE", 2)
    assert _events(folder, run) == whole
    of_one = [place for place in whole if place[0] == 1]
    assert _events(folder, run, "--partition", "1") == of_one
    assert _events(folder, run, "--partition", "1", "--from", "2") == of_one[2:]
    assert _events(folder, run, "--tail", "5") == whole[-5:]
    assert _events(folder, run, "--since", "2001-01-01") == whole
    assert _events(folder, run, "--since", "1h") == []
    assert _events(folder, run, "--partition", "1", "--tail", "2") == of_one[-2:]
    code, out, _ = run("events", "--data", folder, "--topic", NAMES[0])
    assert code == 0
    assert out.splitlines()[1].lstrip().startswith(f"{_partition(NAMES[0])}:")


def test_a_place_that_is_none_is_refused(folder: Path, run: Run) -> None:
    code, _, err = run("events", "--data", folder, "--from", "2")
    assert (code, "give partition or topic too" in err) == (2, True)
    code, _, err = run("events", "--data", folder, "--partition", "3")
    assert (code, "there is no partition 3; allowed are 0 to 2" in err) == (2, True)


def test_a_topic_is_explained_and_a_create_is_tried(folder: Path, run: Run) -> None:
    code, out, _ = run("explain", NAMES[5], "--data", folder)
    assert (code, out.startswith(f"topic {NAMES[5]}: ")) == (0, True)
    code, out, _ = run("topic", "create", "another", "--dry-run", "--data", folder)
    assert (code, out.startswith("another would be created")) == (0, True)
    code, out, _ = run("topic", "create", NAMES[5], "--dry-run", "--data", folder)
    assert (code, "would be refused" in out) == (1, True)


def test_partitions_that_are_missing_or_in_use_are_named(folder: Path, run: Run) -> None:
    state = PartitionState.open(folder, 2, cluster_id="c", topic_id="t")
    code, _, err = run("topics", "--data", folder)
    assert (code, "partition-00002" in err) == (2, True)
    state.close()
    (folder / "partition-00001").rename(folder / "elsewhere")
    code, _, err = run("topics", "--data", folder)
    assert (code, "lacks partition 1: name the folder of a gateway" in err) == (2, True)


def test_each_partition_has_a_tree_of_its_own(folder: Path, run: Run, tmp_path: Path) -> None:
    code, out, _ = run("verify", folder)
    assert (code, [line.split(":")[0] for line in out.splitlines()]) == (0, ["c/0", "c/1", "c/2"])
    of_one = out.splitlines()[1]
    assert run("verify", folder, "--partition", "1")[:2] == (0, of_one + "\n")
    code, _, err = run("verify", folder, "--partition", "3")
    assert (code, "--partition 3: " in err) == (2, True)
    code, _, err = run("prove", "2", "--data", folder)
    assert (code, "partition: each partition has its own tree: name one, 0 to 2" in err) == (2, True)
    code, proof, _ = run("prove", "2", "--data", folder, "--partition", "1")
    head = json.loads(proof)["head"]
    assert (code, head["log"], of_one.endswith(f"root {head['root']}")) == (0, "c/1", True)
    (tmp_path / "head.json").write_text(proof)
    for words, expected in ((("--partition", "1"), 0), (("--partition", "2"), 1)):
        assert run("verify", folder, *words, "--head", tmp_path / "head.json")[0] == expected, words
