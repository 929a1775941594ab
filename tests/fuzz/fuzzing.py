"""Sends a target what nobody honest sends, while an honest client goes on, and says what came of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.frames import Mutator
from tests.fuzz.target import Target, receive

OPEN_MAX = 50
"""Connections of the fuzzer that are open together."""


@dataclass
class Found:
    """What became of a target."""

    frames: int = 0
    connections: int = 0
    stood_still_s: float = 0.0
    worked_s: float = 0.0
    blocks_kept: int = 0

    def __str__(self) -> str:
        still = f"stood still for {self.stood_still_s * 1000:.0f} ms, worked for {self.worked_s * 1000:.0f} ms"
        return f"{self.frames} frames on {self.connections} connections: {still}, keeps {self.blocks_kept} objects"


def fuzz(target: Target, seed: int, enough: Callable[[Found], bool]) -> Found:
    """Send mutated frames until it is enough. Raises where an honest client is not answered."""
    mutator, found = Mutator(seed, target.table), Found()
    opened: list[socket.socket] = []
    with target.connect() as honest:
        assert target.is_answering(honest)
        target.reset()
        while not enough(found):
            frames = mutator.frames()
            client = target.connect()
            client.settimeout(2)
            opened.append(client)
            with contextlib.suppress(OSError):
                client.sendall(b"".join(frames))
            found.frames += len(frames)
            found.connections += 1
            if len(opened) > OPEN_MAX:
                opened.pop(0).close()
            assert target.is_answering(honest), "an honest client is not answered"
        for client in opened:
            client.close()
        found.stood_still_s = target.stood_still_s
    return found


def give(target: Target, frame: bytes, blocks_kept_max: int) -> Found:
    """Send one frame, and wait for its answer or the end of its connection. If it leaves more than `blocks_kept_max`,
    it is sent again: the second frame also leaves what is only kept until the next one."""
    with target.connect() as honest:
        assert target.is_answering(honest)
        found = Found()
        while found.frames < 2:
            found.frames += 1
            found.connections += 1
            target.reset()
            with target.connect() as client:
                client.settimeout(120)
                with contextlib.suppress(ConnectionError):
                    client.sendall(frame)
                    receive(client)
            assert target.is_answering(honest)
            found.stood_still_s = max(found.stood_still_s, target.stood_still_s)
            found.worked_s = max(found.worked_s, target.worked_s)
            before, target.blocks_held = target.blocks_held, target.blocks()
            found.blocks_kept = target.blocks_held - before
            if found.blocks_kept < blocks_kept_max:
                break
    return found
