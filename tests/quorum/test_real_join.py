"""`topicwright join` with real Kafka controllers: the voter votes, copies their log, restarts and leaves."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from controller.kafka.messages import records as kinds
from controller.quorum.folder import PARTITION
from tests.support import tools
from tests.support.kafka_quorum import Controller, KafkaQuorum, kafka_quorum
from tests.support.kafka_tools import kafka_tools
from tests.support.ports import free_ports
from tests.support.quorum_logs import records_at
from tests.support.real_brokers import until
from tests.support.topicwright import command
from tests.support.voter import VOTER, Voter, voter

LOG = "00000000000000000000.log"
REGISTRATIONS = kinds.RegisterControllerRecord | kinds.UnregisterControllerRecord


def shown(controllers: str) -> str:
    """The output of `topicwright quorum`; empty while an election runs."""
    done = command("quorum", "--bootstrap-controller", controllers)
    return done.stdout if done.returncode == 0 else ""


def leader_of(controllers: str) -> int | None:
    """The leader's node id; None while an election runs."""
    text = shown(controllers)
    return int(text.split()[1].rstrip(",")) if text else None


def others(quorum: KafkaQuorum) -> tuple[Controller, Controller]:
    """Kafka's two controllers, the leader first if it is one of them."""
    leader = until(lambda: leader_of(quorum.bootstrap), 120, "there is a leader")
    first, second = quorum.controllers
    return (first, second) if first.node_id == leader else (second, first)


def alike(one: Path, other: Path) -> bool:
    """True if one log is a prefix of the other, and neither is empty."""
    a, b = (one / LOG).read_bytes(), (other / LOG).read_bytes()
    return bool(a and b) and a[: len(b)] == b[: len(a)]


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, "3.9.1"])
def test_a_voter_joins_votes_and_leaves(tmp_path: Path, version: str) -> None:
    with kafka_quorum(tmp_path, version=version) as quorum, voter(quorum, tmp_path / "voter") as ours:
        if version == tools.KAFKA_SERVER:
            _another_folder_and_another_cluster_are_rejected(quorum, ours)
        ours.start()
        ours.votes()
        if version == tools.KAFKA_SERVER:
            _registers_again(quorum)
            _survives_a_pause_and_a_kill_with_a_torn_tail(quorum, ours)
            _leaves_no_quorum_whose_other_voters_are_silent(quorum)
        _elects(quorum, ours)
        _is_killed_and_starts_again(ours)
        _leaves(quorum, ours)
        if version != tools.KAFKA_SERVER:
            _leads_and_hands_over(quorum)


def _another_folder_and_another_cluster_are_rejected(quorum: KafkaQuorum, ours: Voter) -> None:
    until(lambda: leader_of(quorum.bootstrap), 120, "there is a leader")
    with voter(quorum, quorum.folder / "double") as double:
        process = double.start(3001)
        assert process.wait(120) == 2
        assert "node 3001 is a voter already, with another folder" in process.output
    foreign = ours.folder / "meta.properties"
    foreign.parent.mkdir()
    foreign.write_text(f"version=1\ncluster.id=another\nnode.id={VOTER}\n")
    process = ours.start()
    assert process.wait(120) == 2
    assert "is of cluster another, and the controllers are of" in process.output
    foreign.unlink()


def _registers_again(quorum: KafkaQuorum) -> None:
    """The voter registers again after its registration was removed."""
    metadata = quorum.controllers[0].metadata

    def registered() -> list[bool]:
        """One value per registration record of the voter: True if it registers, False if it removes."""
        found = (each for each in records_at(metadata) if isinstance(each, REGISTRATIONS))
        return [isinstance(each, kinds.RegisterControllerRecord) for each in found if each.controller_id == VOTER]

    known = until(lambda: known if (known := registered())[-1:] == [True] else [], 120, "it is registered")
    words = ("unregister-controller", "--id", str(VOTER), "--bootstrap-controller", quorum.bootstrap)
    kafka_tools().output("kafka-cluster", *words)
    until(lambda: registered() == [*known, False, True], 120, "it is registered again")


def _survives_a_pause_and_a_kill_with_a_torn_tail(quorum: KafkaQuorum, ours: Voter) -> None:
    process, mine = ours.process, ours.folder / PARTITION
    assert process is not None
    before = _leader_and_epoch(quorum)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(8)  # four fetch timeouts
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: _is_caught_up(quorum), 120, "it follows again")
    assert _leader_and_epoch(quorum) == before, "the pause caused an election"
    assert process.popen.poll() is None, process.output

    process.kill()
    last = max(mine.glob("*.log"))
    whole = last.read_bytes()
    with last.open("ab") as file:
        file.write(whole[:100] + b"\xff" * 50)
    ours.start()
    ours.votes()
    until(lambda: _is_caught_up(quorum), 120, "it follows again")
    assert _leader_and_epoch(quorum) == before
    assert ours.process is not None
    assert ours.process.stop() == 0
    assert last.read_bytes().startswith(whole)
    assert all(alike(mine, each.metadata) for each in quorum.controllers)
    ours.start()
    ours.votes()


def _leader_and_epoch(quorum: KafkaQuorum) -> str:
    return until(lambda: shown(quorum.bootstrap), 120, "there is a leader").split(", high")[0]


def _is_caught_up(quorum: KafkaQuorum) -> bool:
    """True if the leader shows that the Topicwright voter fetched just now and lags by one record at most."""
    rows = (line.split() for line in shown(quorum.bootstrap).splitlines())
    return any(row[2] == "voter" and int(row[4]) <= 1 and float(row[5]) < 2 for row in rows if row[:1] == [f"{VOTER}"])


def _with_all_listed(text: str) -> str:
    """The text if it lists all controllers, else empty: a new leader sends no log before a commit in its epoch."""
    return "" if "cannot be listed" in text else text


def _all_fetch(quorum: KafkaQuorum) -> bool:
    """True if both followers fetched just now, also one that has just started."""
    ages_s = re.findall(r"^\d+ .* voter .* ([0-9.]+) s ago\b", shown(quorum.bootstrap), re.MULTILINE)
    return len(ages_s) == 2 and all(float(each) < 2 for each in ages_s)


def _elects(quorum: KafkaQuorum, ours: Voter) -> None:
    """After the leader's death, the vote of the Topicwright voter is needed to elect one of the other two voters."""
    leader, left = others(quorum)
    leader.kill()
    until(lambda: leader_of(left.address) in (left.node_id, VOTER), 120, "one of the two that are left leads")
    assert alike(ours.metadata, left.metadata)
    quorum.start(leader)


def _is_killed_and_starts_again(ours: Voter) -> None:
    """Kill and restart with the same command: the node is still a voter."""
    assert ours.process is not None
    ours.process.kill()
    ours.start()
    ours.votes()
    text = until(lambda: _with_all_listed(shown(ours.own_address)), 120, "there is a leader that has committed")
    assert [line.split()[2] for line in text.splitlines() if line.startswith(f"{VOTER} ")] in (["voter"], ["leader"])
    assert re.match(r"leader \d+ since 20\d\d-\d\d-\d\dT[\d:.]+Z, epoch \d+, ", text), text
    rows = [line.split() for line in text.splitlines()[2:]]
    assert {row[0]: row[-1] for row in rows} == {"3001": "-", "3002": "-", str(VOTER): "0"}, "wrong priorities"


def _leaves_no_quorum_whose_other_voters_are_silent(quorum: KafkaQuorum) -> None:
    leader, other = others(quorum)
    other.kill()

    def silent_s() -> float | None:
        found = re.search(rf"^{other.node_id} .* ([0-9.]+) s ago\b", shown(leader.address), re.MULTILINE)
        return None if found is None else float(found[1])

    until(lambda: (silent_s() or 0) > 4, 120, f"{other.node_id} is known to be silent")
    alone = command("leave", "--bootstrap-controller", leader.address, "--id", str(VOTER))
    assert alone.returncode == 1
    assert f"1 of the 2 other voters do not fetch ({other.node_id})" in alone.stderr
    quorum.start(other)
    until(lambda: (silent_s() or 9) < 2, 240, f"{other.node_id} is back")


def _leaves(quorum: KafkaQuorum, ours: Voter) -> None:
    until(lambda: _all_fetch(quorum), 240, "both others follow, or one leads")
    leave = ("leave", "--bootstrap-controller", quorum.bootstrap)
    gone = command(*leave, "--data", ours.folder)
    assert (gone.returncode, gone.stderr) == (0, "")
    assert gone.stdout.startswith(f"node {VOTER} is no longer a voter; the voters are 3001, 3002\n")
    again = command(*leave, "--data", ours.folder)
    assert again.returncode == 1, (gone.stdout, again.stdout, ours.process and ours.process.output[-4000:])
    assert f"node {VOTER} is not a voter, and has no registration that blocks upgrades" in again.stderr
    neither = command(*leave)
    assert neither.returncode == 2
    assert "--data DIR" in neither.stderr


def _leads_and_hands_over(quorum: KafkaQuorum) -> None:
    """Runs with the oldest release with a dynamic voter set; other tests use the newest."""
    with voter(quorum, quorum.folder / "leader", "quorum.priority=1", node_id=VOTER + 1) as leader:
        leader.start()
        leader.votes()
        until(lambda: leader_of(quorum.bootstrap) == leader.node_id, 120, "it leads")
        assert leader.process is not None
        assert leader.process.stop() == 0
        until(lambda: leader_of(quorum.bootstrap) in {each.node_id for each in quorum.controllers}, 120, "Kafka leads")
        assert all(alike(leader.metadata, each.metadata) for each in quorum.controllers)


def test_a_voter_joins_by_controller_quorum_voters(tmp_path: Path) -> None:
    """Runs with the oldest supported release."""
    (port,) = free_ports(1)
    static = kafka_quorum(tmp_path, version="3.7.2", kraft_version=0, others=(f"{VOTER}@127.0.0.1:{port}",))
    with static as quorum:
        named = f"controller.quorum.voters={quorum.static_voters}"
        with voter(quorum, tmp_path / "voter", named, port=port) as ours:
            ours.start()
            ours.votes()
            _elects(quorum, ours)
            with voter(quorum, tmp_path / "stranger") as stranger:
                process = stranger.start(3010)
                assert process.wait(120) == 2
                assert "node 3010 is not in controller.quorum.voters" in process.output


def test_join_reports_unreachable_controllers() -> None:
    (nobody,) = free_ports(1)
    done = command("quorum", "--bootstrap-controller", f"127.0.0.1:{nobody}")
    assert done.returncode == 1
    assert f"no controller responds: 127.0.0.1:{nobody} cannot be reached" in done.stderr
