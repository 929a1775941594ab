"""A `serve` that strangers send quorum requests to, and one whose folder holds what such requests once left."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import pytest

from controller.kafka.codec import codec
from controller.kafka.messages import APIS, ApiKey
from controller.machine.errors import ErrorCode
from controller.quorum.folder import PARTITION, QUORUM_STATE
from controller.quorum.log.batches import KRAFT_VOTERS, encode_batch
from controller.quorum.raft.log import EPOCH_MAX
from tests.quorum.logs import opened
from tests.quorum.test_epochs import STRANGER, code_of, request_of
from tests.support.processes import Process
from tests.support.topicwright import COMMAND, Topicwright, topicwright
from tests.support.wire import Wire

DATA: Final = "topicwright-data"
KINDS: Final = {
    "vote": ApiKey.VOTE,
    "pre-vote": ApiKey.VOTE,
    "begin": ApiKey.BEGIN_QUORUM_EPOCH,
    "end": ApiKey.END_QUORUM_EPOCH,
}


def code(wire: Wire, kind: str, epoch: int) -> int:
    """The answer to a stranger's request, in an epoch."""
    key, version = KINDS[kind], APIS[KINDS[kind]].max_version
    wire.send_frame(codec.encode_request(key, version, 1, None, request_of(kind, STRANGER, epoch))[4:])
    return code_of(codec.decode_response(key, version, wire.receive_frame())[1])


def ready(server: Topicwright) -> tuple[int, str]:
    """The status and the reason of /health/ready."""
    try:
        with urllib.request.urlopen(f"http://{server.http}/health/ready", timeout=60) as answer:
            return answer.status, json.load(answer)["reason"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["reason"]


def attack(server: Topicwright, wire: Wire) -> None:
    """No quorum request of an unknown node ends the process."""
    for kind in KINDS:
        for epoch in (EPOCH_MAX, (1 << 31) - 1):
            assert code(wire, kind, epoch) == ErrorCode.INVALID_REQUEST
    for kind in ("begin", "end"):
        assert code(wire, kind, 1000) == ErrorCode.INCONSISTENT_VOTER_SET
    assert ready(server) == (200, "")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a controller that unknown nodes attacked and that was not ready without a leader: a Vote of a
    higher epoch ends its leadership, and it starts an election after the election timeout."""
    settings = {"controller.quorum.election.timeout.ms": "600000"}
    folder = tmp_path_factory.mktemp("attacked")
    with topicwright(folder, settings, brokers="kraft") as server, Wire(server.kafka) as wire:
        attack(server, wire)
        assert code(wire, "vote", 100) == ErrorCode.NONE
        assert ready(server) == (503, "no leader of the controllers is known")
    return folder


@pytest.fixture
def folder(attacked: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(attacked, tmp_path / "copy")


def ended(data: Path) -> str:
    """What a start on a data folder prints; it fails."""
    places = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(data)]
    with Process([COMMAND, "serve", *places, "--brokers", "kraft"], cwd=data.parent) as process:
        assert process.wait(within_s=240) == 2, process.output
        return process.output


def test_a_start_reports_a_malformed_control_record_with_advice(folder: Path) -> None:
    data = folder / DATA
    log = opened(data)
    batch = encode_batch(log.end, log.last_epoch, 0, [(KRAFT_VOTERS.to_bytes(4, "big"), b"\0\0")], is_control=True)
    end = log.end
    log.close()
    (segment,) = (data / PARTITION).glob("*.log")
    with segment.open("ab") as file:
        file.write(batch)
    output = ended(data)
    assert f"{segment}, byte 0: invalid control record at offset {end}: VotersV0" in output
    assert "Restore the folder from a copy" in output
    assert "Traceback" not in output


def test_a_start_reports_the_last_epoch_with_advice(folder: Path) -> None:
    """And then it starts, as if nobody had attacked it."""
    path = folder / DATA / PARTITION / QUORUM_STATE
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "leaderId": -1, "leaderEpoch": (1 << 31) - 1}))
    assert f"{path} is in epoch 2147483647, and no leader can be elected after {EPOCH_MAX}" in ended(folder / DATA)
    path.unlink()
    with topicwright(folder, brokers="kraft") as server, Wire(server.kafka) as wire:
        attack(server, wire)
