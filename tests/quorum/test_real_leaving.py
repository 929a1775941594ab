"""A node that left a real Kafka quorum does not block upgrades (KIP-919): Kafka 4.4 then goes from level 4.3 to 4.4."""

import subprocess
from contextlib import suppress
from pathlib import Path

from controller.quorum.features import Registered, fold
from controller.quorum.folder import META_PROPERTIES, read_properties
from controller.quorum.log.batches import BrokenBatch, decode_batches
from tests.support.kafka_quorum import KafkaQuorum, kafka_quorum
from tests.support.kafka_tools import kafka_tools
from tests.support.real_brokers import until
from tests.support.topicwright import command
from tests.support.voter import VOTER, Voter, voter

OLDER, NEWEST = "4.3.1", "4.4.0"


def topicwright(quorum: KafkaQuorum, name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return command(name, "--bootstrap-controller", quorum.bootstrap, *words)


def kafka(quorum: KafkaQuorum, tool: str, *words: str) -> str:
    """The output of a Kafka tool."""
    return kafka_tools(quorum.version).run(tool, "--bootstrap-controller", quorum.bootstrap, *words)[1]


def upgrade(quorum: KafkaQuorum) -> str:
    return kafka(quorum, "kafka-features", "upgrade", "--release-version", "4.4")


def remove(quorum: KafkaQuorum, node_id: int, directory_id: str) -> None:
    words = "--controller-id", str(node_id), "--controller-directory-id", directory_id
    removed = kafka(quorum, "kafka-metadata-quorum", "remove-controller", *words)
    assert f"Removed KRaft controller {node_id}" in removed


def remove_topicwright_voter(quorum: KafkaQuorum, ours: Voter) -> None:
    remove(quorum, VOTER, read_properties(ours.folder / META_PROPERTIES)["directory.id"])


def refused(node_id: int) -> str:
    return f"Controller {node_id} only supports versions"


def left(quorum: KafkaQuorum) -> list[str]:
    """The controllers that left and block upgrades, from the output of `topicwright quorum`."""
    shown = topicwright(quorum, "quorum")
    assert shown.returncode == 0, shown.stderr
    table = shown.stdout.partition("Controllers that left")[2].splitlines()[2:-1]
    return [line.split()[0] for line in table if "metadata.version 3" in line]


def ranges(quorum: KafkaQuorum) -> dict[int, dict[str, int]]:
    """Node id → feature → highest supported level, from the registrations in a Kafka controller's log."""
    files = quorum.controllers[0].metadata.glob("*.log")
    batches = (batch for file in sorted(files) for batch in decode_batches(file.read_bytes()))
    found: Registered = {}
    with suppress(BrokenBatch):  # the last batch is being written
        fold(found, batches)
    return {node: {each.name: each.max_supported_version for each in one.features} for node, one in found.items()}


def test_removed_controllers_do_not_block_feature_upgrades(tmp_path: Path) -> None:
    joins = {"controller.quorum.auto.join.enable": "true"}
    with kafka_quorum(tmp_path, count=3, version=NEWEST, release="4.3", settings=joins) as quorum:
        old = quorum.controllers[2]
        old.kill()
        quorum.version = OLDER
        quorum.start(old)
        quorum.version = NEWEST
        assert old.process is not None
        old.process.wait_for_line("Our registration has been persisted", within_s=240)
        assert refused(old.node_id) in upgrade(quorum), "a 4.3 controller does not support the level of 4.4"
        with voter(quorum, tmp_path / "voter") as ours:
            process = ours.start()
            ours.votes()
            remove_topicwright_voter(quorum, ours)
            process.wait_for_line("registered without limits", within_s=120)
            ours.start()  # it joins again and registers its supported levels
            ours.votes()
            again = topicwright(quorum, "leave", "--id", str(old.node_id))
            assert again.returncode == 1
            assert f"node {old.node_id} votes again: it runs, and joins by itself" in again.stderr
            assert left(quorum) == []

            assert ours.process is not None
            ours.process.kill()
            remove_topicwright_voter(quorum, ours)
            old.kill()
            remove(quorum, old.node_id, old.directory_id)
        until(lambda: left(quorum) == [str(old.node_id), str(VOTER)], 60, "both are known to be gone")
        for node_id in (VOTER, old.node_id):
            assert refused(old.node_id) in upgrade(quorum)
            freed = topicwright(quorum, "leave", "--id", str(node_id))
            assert (freed.returncode, freed.stderr) == (0, "")
            assert freed.stdout == f"the registration of node {node_id} no longer blocks upgrades\n"
        assert left(quorum) == []
        assert "was upgraded to 33" in upgrade(quorum)
