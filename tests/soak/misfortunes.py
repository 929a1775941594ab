"""Injects faults into nodes, from a seed, and measures how long the cluster takes to recover."""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.soak.nodes import FAULTS, WELL_WITHIN_S, Node
from tests.soak.stage import Stage

PAUSE_S: Final = (1.0, 5.0)
TWO_AT_ONCE: Final = 0.25
_Fate = tuple[str, Node]


class Misfortunes:
    """Draws a fault and a node at random until each node has had each fault, then starts again. Sometimes it draws two
    nodes of different kinds at once."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        """Injected faults by "fault kind-of-node"."""
        self.well_s: list[float] = []
        """Seconds from each fault until all nodes worked again."""
        self._stage, self._chance = stage, random.Random(seed)
        self._left: list[_Fate] = []

    def until(self, end_s: float, faults: Collection[str]) -> None:
        """Inject these faults until `end_s` of the monotonic clock. Raises AssertionError if a node does not recover or
        exits with an unexpected code."""
        while time.monotonic() < end_s:
            self._one(faults)
            time.sleep(min(self._chance.uniform(*PAUSE_S), max(0.0, end_s - time.monotonic())))

    def _one(self, faults: Collection[str]) -> None:
        fates = [self._draw(faults, set())]
        if self._chance.random() < TWO_AT_ONCE:
            fates.append(self._draw(faults, {fates[0][1].kind}))
        began_s = time.monotonic()
        for fault, node in fates:
            self.counts[f"{fault} {node.kind}"] += 1
            node.disturbed.set()
        with ThreadPoolExecutor(len(fates)) as pool:
            chances = [random.Random(self._chance.random()) for _ in fates]
            done = [
                pool.submit(FAULTS[fate], node, chance) for (fate, node), chance in zip(fates, chances, strict=True)
            ]
        for each in done:
            each.result()
        for _, node in fates:
            node.disturbed.clear()
        what = " and ".join(f"{fault} of {node.name}" for fault, node in fates)
        self._wait_until_well(what)
        self.well_s.append(time.monotonic() - began_s)

    def _draw(self, faults: Collection[str], but: Collection[str]) -> _Fate:
        """The next allowed pair of fault and node; a new shuffle begins when none is left."""
        for _ in range(2):
            for each in self._allowed(faults, but):
                self._left.remove(each)
                return each
            self._left = [(fault, node) for fault in FAULTS for node in self._stage.nodes]
            self._chance.shuffle(self._left)
        raise AssertionError(f"no node for {faults} but of {but}")

    def _allowed(self, faults: Collection[str], but: Collection[str]) -> Iterator[_Fate]:
        return (each for each in list(self._left) if each[0] in faults and each[1].kind not in but)

    def _wait_until_well(self, what: str) -> None:
        deadline = time.monotonic() + WELL_WITHIN_S
        while unwell := self._stage.not_well():
            ended = [each for node in self._stage.nodes if (each := node.ended()) is not None]
            assert not ended, f"{what}: {ended}"
            assert time.monotonic() < deadline, f"{what}: not recovered within {WELL_WITHIN_S:.0f} s: {unwell}"
            time.sleep(0.5)
