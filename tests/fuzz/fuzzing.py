"""Sends malformed frames to a target while a valid client uses it, and measures the effect."""

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.frames import Mutator
from tests.fuzz.target import Target, receive

OPEN_MAX = 50
"""The number of connections that the fuzzer keeps open."""


@dataclass
class Found:
    """Measurements of a fuzzed target."""

    frames: int = 0
    connections: int = 0
    stood_still_s: float = 0.0
    worked_s: float = 0.0
    blocks_kept: int = 0

    def __str__(self) -> str:
        still = f"stood still for {self.stood_still_s * 1000:.0f} ms, worked for {self.worked_s * 1000:.0f} ms"
        return f"{self.frames} frames on {self.connections} connections: {still}, keeps {self.blocks_kept} objects"


def fuzz(target: Target, seed: int, enough: Callable[[Found], bool]) -> Found:
    """Send mutated frames until `enough`. Raises an error if the valid client gets no response."""
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
            assert target.is_answering(honest), "a valid client gets no response"
        for client in opened:
            client.close()
        found.stood_still_s = target.stood_still_s
    return found


def give(target: Target, frame: bytes, blocks_kept_max: int) -> Found:
    """Send one frame, and wait for the response or a disconnect. If more than `blocks_kept_max` objects remain, send it
    once more: objects that live only until the next request do not count."""
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
