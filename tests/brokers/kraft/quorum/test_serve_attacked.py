"""A `serve` that strangers send quorum requests to, and one whose folder holds what such requests once left."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import msgspec
import pytest

from controller.brokers.kraft.log.batches import KRAFT_VOTERS, encode_batch
from controller.brokers.kraft.quorum.folder import PARTITION, QUORUM_STATE
from controller.brokers.kraft.quorum.raft.log import EPOCH_MAX
from controller.kafka.codec import codec
from controller.kafka.messages import APIS, ApiKey
from controller.machine.errors import ErrorCode
from tests.brokers.kraft.quorum.logs import opened
from tests.brokers.kraft.quorum.test_epochs import STRANGER, code_of, request_of
from tests.support.processes import Process
from tests.support.topicwright import COMMAND, Topicwright, topicwright
from tests.support.wire import Wire

KINDS: Final = {
    "vote": ApiKey.VOTE,
    "pre-vote": ApiKey.VOTE,
    "begin": ApiKey.BEGIN_QUORUM_EPOCH,
    "end": ApiKey.END_QUORUM_EPOCH,
}


def code(wire: Wire, kind: str, epoch: int) -> int:
    """The answer to a stranger's request, in an epoch."""
    key, version = KINDS[kind], APIS[KINDS[kind]].max_version
    request = msgspec.structs.replace(request_of(kind, STRANGER, epoch), cluster_id=None)
    wire.send_frame(codec.encode_request(key, version, 1, None, request)[4:])
    return code_of(codec.decode_response(key, version, wire.receive_frame())[1])


def test_no_quorum_request_of_an_unknown_node_ends_the_process(tmp_path: Path) -> None:
    for _ in range(2):
        with topicwright(tmp_path, brokers="kraft") as server, Wire(server.kafka) as wire:
            for kind in KINDS:
                for epoch in (EPOCH_MAX, (1 << 31) - 1):
                    assert code(wire, kind, epoch) == ErrorCode.INVALID_REQUEST
            for kind in ("begin", "end"):
                assert code(wire, kind, 100) == ErrorCode.INCONSISTENT_VOTER_SET
            assert ready(server) == (200, "")


def ready(server: Topicwright) -> tuple[int, str]:
    """The status and the reason of /health/ready."""
    try:
        with urllib.request.urlopen(f"http://{server.http}/health/ready", timeout=60) as answer:
            return answer.status, json.load(answer)["reason"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["reason"]


def test_a_controller_is_not_ready_without_a_leader(tmp_path: Path) -> None:
    """A Vote of a higher epoch takes the lead from it, and it stands again after the election timeout."""
    settings = {"controller.quorum.election.timeout.ms": "600000"}
    with topicwright(tmp_path, settings, brokers="kraft") as server, Wire(server.kafka) as wire:
        assert ready(server) == (200, "")
        assert code(wire, "vote", 100) == ErrorCode.NONE
        assert ready(server) == (503, "no leader of the controllers is known")


def ended(folder: Path) -> str:
    """What a start on a data folder prints; it fails."""
    places = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(folder)]
    with Process([COMMAND, "serve", *places, "--brokers", "kraft"], cwd=folder.parent) as process:
        assert process.wait(within_s=240) == 2, process.output
        return process.output


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A data folder of a controller that was stopped."""
    with topicwright(tmp_path, brokers="kraft") as server:
        return server.data


def test_a_start_reports_a_malformed_control_record_with_advice(served: Path) -> None:
    log = opened(served)
    data = encode_batch(log.end, log.last_epoch, 0, [(KRAFT_VOTERS.to_bytes(4, "big"), b"\0\0")], is_control=True)
    end = log.end
    log.close()
    (segment,) = (served / PARTITION).glob("*.log")
    with segment.open("ab") as file:
        file.write(data)
    output = ended(served)
    assert f"{segment}, byte 0: invalid control record at offset {end}: VotersV0" in output
    assert "Restore the folder from a copy" in output
    assert "Traceback" not in output


def test_a_start_reports_the_last_epoch_with_advice(served: Path) -> None:
    path = served / PARTITION / QUORUM_STATE
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "leaderId": -1, "leaderEpoch": (1 << 31) - 1}))
    assert f"{path} is in epoch 2147483647, and no leader can be elected after {EPOCH_MAX}" in ended(served)
    path.unlink()
    with topicwright(served.parent, brokers="kraft"):
        pass
