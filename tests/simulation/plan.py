"""What of all that a seed draws is to happen; and smaller plans that fail as well (delta debugging, Zeller's ddmin).

A simulator draws its faults and each client's requests by number. A plan that names some leaves all others out: the
seed then lives through less, and what still fails is shown by less.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

FAULTS: Final = "faults"
"""The faults' kind; the other kinds are clients, by name."""

Item = tuple[str, int]
Deed = Callable[[], Awaitable[None]]


class Plan:
    """What is drawn, by kind, and what of it happens: all of it unless `only` says by number what does."""

    def __init__(self, only: Mapping[str, frozenset[int]] | None = None) -> None:
        self.drawn: Counter[str] = Counter()
        self._only = only

    def happens(self, kind: str) -> bool:
        """The next one of a kind is drawn: whether it is to happen."""
        number = self.drawn[kind]
        self.drawn[kind] += 1
        return self._only is None or number in self._only.get(kind, ())

    async def go_on(
        self, rng: random.Random, deeds: Sequence[Deed], done: Counter[str], until: float, pause_s: float
    ) -> None:
        """Do one of the deeds now and then, until that time of the loop; what happened is counted as `done`."""
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(rng.expovariate(1 / pause_s))
            deed = rng.choice(deeds)
            if self.happens(FAULTS):
                done[deed.__name__] += 1
                await deed()

    @property
    def items(self) -> list[Item]:
        """All that was drawn and happened."""
        drawn = [(kind, number) for kind, count in sorted(self.drawn.items()) for number in range(count)]
        return [(kind, number) for kind, number in drawn if self._only is None or number in self._only.get(kind, ())]


def plan_of(items: Iterable[Item]) -> Plan:
    only: dict[str, set[int]] = {}
    for kind, number in items:
        only.setdefault(kind, set()).add(number)
    return Plan({kind: frozenset(numbers) for kind, numbers in only.items()})


def in_words(items: Iterable[Item]) -> str:
    """Items as the command line has them: `faults:0-2,7 c0:4`; `-` where there is none."""
    kinds: dict[str, list[int]] = {}
    for kind, number in sorted(items):
        kinds.setdefault(kind, []).append(number)
    return " ".join(f"{kind}:{_runs(numbers)}" for kind, numbers in kinds.items()) or "-"


def from_words(words: str) -> Plan:
    """The plan of what `in_words` gave. Raises ValueError."""
    items: list[Item] = []
    for word in words.split() if words != "-" else ():
        kind, _, runs = word.partition(":")
        for run in runs.split(","):
            first, _, last = run.partition("-")
            items += [(kind, number) for number in range(int(first), int(last or first) + 1)]
    return plan_of(items)


def _runs(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def shrink(items: list[Item], fails: Callable[[list[Item]], bool], tries_max: int) -> list[Item]:
    """Fewer items of which `fails` says so too; at most so many tries. Of a failing list no half, quarter and so on to
    single items can then be left out."""
    tries, parts = 0, 2
    while items and tries < tries_max:
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            tries += 1
            if fails(rest):
                items, parts = rest, max(parts - 1, 2)
                break
            if tries >= tries_max:
                return items
        else:
            if size == 1:
                return items
            parts = min(parts * 2, len(items))
    return items
