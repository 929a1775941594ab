"""Traces of the consensus as text, in `traces`: one step a line, with its results indented below.

`python -m tests.quorum.test_traces` runs the steps and rewrites the results; review the diff. The steps:

    voters COUNT [static] [settled] [priorities P...]   replicas 1 to COUNT start; without priorities none takes over;
                                              settled: 10 seconds later
    run SECONDS                               roles that change, with epoch and leader; truncated logs, snapshots
    logs                                      each replica's log end and high watermark
    append NODE [BYTES] [without-metadata] | shows NODE version V   the newest version of Vote of a peer
    elect NODE | hand-over NODE SECONDS | cannot-lead NODE | can-lead NODE | full NODE | room NODE
    kill NODE | boot NODE | pause NODE | resume NODE | cut NODE NODE | heal
    vote NODE candidate NODE epoch E log END@EPOCH [pre-vote]
    fetch NODE epoch E offset N last E [as NODE [another-disk]]   by default by a replica that does not vote
    begin NODE leader NODE epoch E | end NODE leader NODE epoch E successors NODE...
    add NODE... [FIELD=VALUE...] | remove NODE... [FIELD=VALUE...]   at the leader, or at=NODE, until it responds;
                                              changed fields of the request have a value of VALUES
    raise-kraft-version NODE | describe NODE
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.cluster import Listener
from controller.kafka.messages.quorum import DescribeQuorumRequest
from controller.machine.errors import ErrorCode
from controller.quorum.log.batches import decode_batches
from controller.quorum.raft.effects import NotLeader, Refused, RoleChanged
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.role import start_election
from tests.quorum.worlds import (
    OTHER_DISK,
    answer,
    begin_request,
    booted,
    end_request,
    leader_of,
    quorum_of,
    vote_request,
)
from tests.simulation.quorum.disk import Disk
from tests.simulation.quorum.world import Replica, World
from tests.support.metadata_files import fetch_of

OTHER_LISTENER = Listener(name="OTHER", host="elsewhere", port=1)
VALUES: dict[str, Any] = {
    "-1": -1,
    "77": 77,
    "none": (),
    "elsewhere": (OTHER_LISTENER,),
    "both": (OTHER_LISTENER, Listener(name="CONTROLLER", host="node", port=2)),
    "zeros": ZERO_UUID,
    "other": OTHER_DISK,
}
TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))


class Trace:
    """A quorum, and the results of the current step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world: World
        self._happened: list[str] = []
        self._began = 0.0
        carry_out = Replica._carry_out
        answer_admin = World.answer

        def carried_out(replica: Replica, quorum: Any, effect: object) -> None:
            match effect:
                case RoleChanged(role, epoch, leader_id):
                    leader = f", leader {leader_id}" if leader_id not in (-1, replica.id) else ""
                    self._record(replica.world, f"{replica.id} {role.value}, epoch {epoch}{leader}")
            carry_out(replica, quorum, effect)

        def answered(world: World, token: Any, response: Any) -> None:
            if token[0] == "admin":
                message = getattr(response, "error_message", None)
                self._record(world, ErrorCode(response.error_code).name + (f": {message}" if message else ""))
            answer_admin(world, token, response)

        def truncated(world: World, disk: Disk, was: int, end: int) -> None:
            if was != end:
                self._record(world, f"{world.replica_on(disk).id} truncated from {was} to {end}")

        def installed(world: World, disk: Disk, snapshot: SnapshotId) -> None:
            self._record(world, f"{world.replica_on(disk).id} snapshot {snapshot.end_offset}")

        monkeypatch.setattr(Replica, "_carry_out", carried_out)
        monkeypatch.setattr(World, "truncated", truncated)
        monkeypatch.setattr(World, "installed", installed)
        monkeypatch.setattr(World, "answer", answered)

    def _record(self, world: World, text: str) -> None:
        self._happened.append(f"{world.now - self._began:.2f} {text}")

    def step(self, line: str) -> list[str]:
        """Run a step; returns its results."""
        name, *words = line.split()
        self._happened = []
        if name == "voters":
            self._began = 0.0
            priorities = words[words.index("priorities") + 1 :] if "priorities" in words else []
            by_id = {number: int(each) for number, each in enumerate(priorities, 1)} or None
            self._world = booted(int(words[0]), by_id, is_dynamic="static" not in words)
            if "settled" in words:
                self._world.run_until(10.0)
                return []
            return self._happened
        self._began = self._world.now
        result = getattr(self, "_" + name.replace("-", "_"))(*words)
        return [*self._happened, *([] if result is None else [result] if isinstance(result, str) else result)]

    def _replica(self, node_id: str) -> Replica:
        return self._world.replicas[int(node_id)]

    def _run(self, seconds: str) -> None:
        self._world.run_until(self._world.now + float(seconds))

    def _logs(self) -> list[str]:
        rows = [each for each in self._world.replicas.values() if each.quorum is not None]
        return [f"{each.id} log {each.disk.start} to {each.disk.end}, watermark {each.watermark}" for each in rows]

    def _append(self, node_id: str, size: str = "1", *words: str) -> str | None:
        replica, records, for_observers = self._replica(node_id), [(None, b"x" * int(size))], not words
        try:
            replica.does(lambda quorum: quorum.append(replica.now(), 0, records, for_observers=for_observers))
        except NotLeader:
            return "not leader"
        return None

    def _shows(self, node_id: str, _: str, version: str) -> None:
        """Report the node's version of Vote to all others."""
        peer = self._replica(node_id)
        peer.vote_version = int(version)
        for each in self._world.replicas.values():
            self._world.shows(each, peer)

    def _elect(self, node_id: str) -> None:
        replica = self._replica(node_id)
        replica.does(lambda quorum: quorum._run(replica.now(), start_election(quorum)))

    def _hand_over(self, node_id: str, seconds: str) -> None:
        self._replica(node_id).does(lambda quorum: quorum.hand_over(self._world.now, float(seconds)))

    def _cannot_lead(self, node_id: str) -> None:
        self._replica(node_id).does(lambda quorum: quorum.set_can_lead(self._replica(node_id).now(), can_lead=False))

    def _can_lead(self, node_id: str) -> None:
        self._replica(node_id).does(lambda quorum: quorum.set_can_lead(self._replica(node_id).now(), can_lead=True))

    def _full(self, node_id: str) -> None:
        self._replica(node_id).disk.is_full = True

    def _room(self, node_id: str) -> None:
        self._replica(node_id).disk.is_full = False

    def _kill(self, node_id: str) -> None:
        self._replica(node_id).kill(power=True)

    def _boot(self, node_id: str) -> None:
        replica = self._replica(node_id)
        replica.boot()
        if replica.shown_priority is None:
            quorum_of(replica).wants_leadership = False

    def _pause(self, node_id: str) -> None:
        self._replica(node_id).paused = []

    def _resume(self, node_id: str) -> None:
        self._replica(node_id).resume()

    def _cut(self, one: str, other: str) -> None:
        self._world.cut |= {(int(one), int(other)), (int(other), int(one))}

    def _heal(self) -> None:
        self._world.cut = set()

    def _vote(self, node_id: str, *words: str) -> str:
        _, candidate, _, epoch, _, log, *rest = words
        end, _, last = log.partition("@")
        request = vote_request(self._replica(candidate), int(epoch), int(end), int(last), pre_vote=bool(rest))
        part = answer(self._replica(node_id), request).topics[0].partitions[0]
        if part.error_code:
            return ErrorCode(part.error_code).name
        return f"{'granted' if part.vote_granted else 'refused'}, epoch {part.leader_epoch}, leader {part.leader_id}"

    def _fetch(self, node_id: str, *words: str) -> str:
        _, epoch, _, offset, _, last, *by = words
        replica, disk = -1, OTHER_DISK
        if by:
            replica, disk = int(by[1]), OTHER_DISK if by[2:] else self._replica(by[1]).disk.directory
        place = {"replica_directory_id": disk}
        request = fetch_of(int(offset), int(epoch), int(last), replica=replica, partition=place)
        response = answer(self._replica(node_id), request)
        found = response.responses[0].partitions[0] if response.responses else response
        if found.error_code:
            return ErrorCode(found.error_code).name
        if found.diverging_epoch.epoch >= 0:
            return f"diverging, epoch {found.diverging_epoch.epoch} ends at {found.diverging_epoch.end_offset}"
        if found.snapshot_id.end_offset >= 0:
            return f"snapshot {found.snapshot_id.end_offset}"
        end = max((each.last_offset + 1 for each in decode_batches(found.records)), default=int(offset))
        return f"records to {end}, watermark {found.high_watermark}, leader {found.current_leader.leader_id}"

    def _begin(self, node_id: str, *words: str) -> str:
        _, leader, _, epoch = words
        return self._code(node_id, begin_request(int(leader), int(epoch)))

    def _end(self, node_id: str, *words: str) -> str:
        _, leader, _, epoch, _, *successors = words
        return self._code(node_id, end_request(int(leader), int(epoch), *map(int, successors)))

    def _code(self, node_id: str, request: Any) -> str:
        return ErrorCode(answer(self._replica(node_id), request).topics[0].partitions[0].error_code).name

    def _add(self, *words: str) -> None:
        self._change(Replica.add_request, words)

    def _remove(self, *words: str) -> None:
        self._change(Replica.remove_request, words)

    def _change(self, request_of: Callable[[Replica], Any], words: Sequence[str]) -> None:
        given = dict(each.split("=") for each in words if "=" in each)
        at = self._replica(given.pop("at")) if "at" in given else leader_of(self._world)
        fields = {name: VALUES[value] for name, value in given.items()}
        for node_id in (each for each in words if "=" not in each):
            at.administer(msgspec.structs.replace(request_of(self._replica(node_id)), **fields))
        self._run("3")

    def _raise_kraft_version(self, node_id: str) -> str | None:
        replica = self._replica(node_id)
        try:
            replica.does(lambda quorum: quorum.raise_kraft_version(replica.now()))
        except Refused as refused:
            return f"refused: {refused}"
        return None

    def _describe(self, node_id: str) -> str:
        quorum = quorum_of(self._replica(node_id))
        part = answer(self._replica(node_id), DescribeQuorumRequest()).topics[0].partitions[0]
        if part.error_code:
            return f"{ErrorCode(part.error_code).name}, leader {part.leader_id}, kraft.version {quorum.kraft_version}"
        voters, observers = (
            " ".join(f"{each.replica_id} to {each.log_end_offset}" for each in states) or "none"
            for states in (part.current_voters, part.observers)
        )
        head = f"leader {part.leader_id}, kraft.version {quorum.kraft_version}, watermark {part.high_watermark}"
        return f"{head}, voters {voters}, observers {observers}"


def replayed(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The steps of a file with their results."""
    trace, lines = Trace(monkeypatch), []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"    {each}" for each in trace.step(line)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_consensus_traces_are_unchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(path.read_text(), monkeypatch) == path.read_text()


if __name__ == "__main__":
    for each in TRACES:
        with pytest.MonkeyPatch.context() as patching:
            each.write_text(replayed(each.read_text(), patching))
