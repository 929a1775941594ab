"""What clients send before they log in makes no labels of metrics."""

from __future__ import annotations

import struct
import urllib.request
from pathlib import Path

from tests.serving.service import Serving
from tests.support.wire import ConnectionClosed, Wire


def test_apis_and_versions_that_are_not_spoken_share_one_label(tmp_path: Path) -> None:
    server = Serving(tmp_path / "serving")
    try:
        for number in range(200):
            key, version = (1000 + number, 0) if number % 2 else (19, 1000 + number)
            with Wire(server.kafka) as wire:
                wire.send_frame(struct.pack(">hhih", key, version, 1, -1))
                try:
                    wire.receive_frame()
                except ConnectionClosed:
                    continue
                raise AssertionError("what is not spoken was answered")
        with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=240) as answer:
            counts = [line for line in answer.read().decode().splitlines() if "request_seconds_count{api=" in line]
        assert sorted(line.partition("{")[2] for line in counts) == [
            'api="CreateTopics",outcome="unsupported",version="other"} 100.0',
            'api="other",outcome="unsupported",version="other"} 100.0',
        ]
    finally:
        assert server.process.stop(within_s=240) == 0, server.process.output[-3000:]
