"""`topicwright join` among real Kafka controllers: its vote counts, its log is theirs, and it comes and goes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from controller.brokers.kraft.log import metadata_records as kinds
from tests.support import tools
from tests.support.kafka_quorum import Controller, KafkaQuorum, kafka_quorum
from tests.support.ports import free_ports
from tests.support.quorum_logs import records_at
from tests.support.real_brokers import until
from tests.support.topicwright import COMMAND
from tests.support.voter import VOTER, voter

LOG = "00000000000000000000.log"


def topicwright(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=120, check=False)


def leader_of(controllers: str) -> int | None:
    """The leader's node id; None while an election runs."""
    shown = topicwright("quorum", "--bootstrap-controller", controllers)
    return int(shown.stdout.split()[1].rstrip(",")) if shown.returncode == 0 else None


def others(quorum: KafkaQuorum) -> tuple[Controller, Controller]:
    """The leader, if Kafka's, and the other of Kafka's two controllers."""
    leader = until(lambda: leader_of(quorum.bootstrap), 120, "there is a leader")
    first, second = quorum.controllers
    return (first, second) if first.node_id == leader else (second, first)


def alike(one: Path, other: Path) -> bool:
    """Whether one log is the beginning of the other, and neither is empty."""
    a, b = (one / LOG).read_bytes(), (other / LOG).read_bytes()
    return bool(a and b) and a[: len(b)] == b[: len(a)]


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, "3.9.1"])
def test_a_voter_joins_votes_and_leaves(tmp_path: Path, version: str) -> None:
    with kafka_quorum(tmp_path, version=version) as quorum, voter(quorum, tmp_path / "voter") as ours:
        ours.start()
        ours.votes()
        leader, left = others(quorum)
        leader.kill()  # of three voters two are left, and it takes two to elect one
        until(lambda: leader_of(left.address) in (left.node_id, VOTER), 120, "one of the two that are left leads")
        assert alike(ours.folder / "__cluster_metadata-0", left.metadata)

        quorum.start(leader)
        assert ours.process is not None
        ours.process.kill()
        ours.start()  # by the same words: it is a voter still
        ours.votes()
        shown = topicwright("quorum", "--bootstrap-controller", f"127.0.0.1:{ours.port}")
        assert [line.split()[2] for line in shown.stdout.splitlines() if line.startswith(f"{VOTER} ")] in (
            ["voter"],
            ["leader"],
        )
        assert re.match(r"leader \d+ since 20\d\d-\d\d-\d\dT[\d:.]+Z, epoch \d+, ", shown.stdout), shown.stdout
        rows = [line.split() for line in shown.stdout.splitlines()[2:]]
        assert {row[0]: row[-1] for row in rows} == {"3001": "-", "3002": "-", str(VOTER): "0"}, "their priorities"

        gone = topicwright("leave", "--bootstrap-controller", quorum.bootstrap, "--data", ours.folder)
        assert (gone.returncode, gone.stderr) == (0, "")
        assert gone.stdout.startswith(f"node {VOTER} is no longer a voter; the voters are 3001, 3002\n")
        again = topicwright("leave", "--bootstrap-controller", quorum.bootstrap, "--data", ours.folder)
        assert again.returncode == 1, (gone.stdout, again.stdout, ours.process.output[-4000:])
        assert f"node {VOTER} is not a voter, and has no registration that blocks upgrades" in again.stderr


def test_a_voter_whose_registration_is_removed_registers_again(tmp_path: Path) -> None:
    with kafka_quorum(tmp_path, count=1) as quorum, voter(quorum, tmp_path / "voter") as ours:
        ours.start()
        ours.votes()
        (kafka,) = quorum.controllers

        def registered() -> list[bool]:
            """Of each record about the voter's registration, whether there is one from then on."""
            return [
                isinstance(each, kinds.RegisterControllerRecord)
                for each in records_at(kafka.metadata)
                if isinstance(each, kinds.RegisterControllerRecord | kinds.UnregisterControllerRecord)
                and each.controller_id == VOTER
            ]

        until(lambda: registered() == [True], 120, "it is registered")
        words = ["org.apache.kafka.tools.ClusterTool", "unregister-controller", "--id", str(VOTER)]
        command = tools.java_command(tools.server_classpath(), *words, "--bootstrap-controller", kafka.address)
        done = tools.run_quietly(command)
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: registered() == [True, False, True], 120, "it is registered again")


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, "3.7.2"])
def test_a_voter_of_controller_quorum_voters(tmp_path: Path, version: str) -> None:
    (port,) = free_ports(1)
    static = kafka_quorum(tmp_path, version=version, kraft_version=0, others=(f"{VOTER}@127.0.0.1:{port}",))
    with static as quorum:
        named = f"controller.quorum.voters={quorum.static_voters}"
        with voter(quorum, tmp_path / "voter", named, port=port) as ours:
            ours.start()
            ours.votes()
            leader, left = others(quorum)
            leader.kill()
            until(lambda: leader_of(left.address) in (left.node_id, VOTER), 120, "one of the two that are left leads")
            assert alike(ours.folder / "__cluster_metadata-0", left.metadata)
            with voter(quorum, tmp_path / "stranger") as stranger:
                process = stranger.start(3010)
                assert process.wait(120) == 2
                assert "node 3010 is not in controller.quorum.voters" in process.output


def test_a_rejected_change_has_no_effect(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    shown = topicwright("quorum", "--bootstrap-controller", f"127.0.0.1:{nobody}")
    assert shown.returncode == 1
    assert f"no controller responds: 127.0.0.1:{nobody} cannot be reached" in shown.stderr
    with kafka_quorum(tmp_path) as quorum:
        until(
            lambda: topicwright("quorum", "--bootstrap-controller", quorum.bootstrap).returncode == 0, 120, "it leads"
        )
        with voter(quorum, tmp_path / "double") as double:
            process = double.start(3001)
            assert process.wait(120) == 2
            assert "node 3001 is a voter already, with another folder" in process.output
        with voter(quorum, tmp_path / "voter") as ours:
            foreign = ours.folder / "meta.properties"
            foreign.parent.mkdir()
            foreign.write_text(f"version=1\ncluster.id=another\nnode.id={VOTER}\n")
            process = ours.start()
            assert process.wait(120) == 2
            assert "is of cluster another, and the controllers are of" in process.output
            foreign.unlink()
            ours.start()
            ours.votes()
            leader, other = others(quorum)
            other.kill()

            def is_silent() -> bool:
                shown = topicwright("quorum", "--bootstrap-controller", leader.address).stdout
                found = re.search(rf"^{other.node_id} .* ([0-9.]+) s ago\b", shown, re.MULTILINE)
                return found is not None and float(found[1]) > 4

            until(is_silent, 120, f"{other.node_id} is known to be silent")
            alone = topicwright("leave", "--bootstrap-controller", leader.address, "--id", str(VOTER))
            assert alone.returncode == 1
            assert f"of its 2 other voters 1 do not fetch ({other.node_id})" in alone.stderr
        neither = topicwright("leave", "--bootstrap-controller", quorum.bootstrap)
        assert neither.returncode == 2
        assert "--data DIR" in neither.stderr
