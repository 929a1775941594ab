"""Plans select which of a seed's faults and requests run; `shrink` finds a smaller failing plan (Zeller's ddmin).

A simulator numbers its faults and the requests of each client. A plan that names some of them skips all others, so a
failure is reproduced with fewer faults and requests.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

FAULTS: Final = "faults"
"""The kind of faults; all other kinds are names of clients."""

Item = tuple[str, int]
Deed = Callable[[], Awaitable[None]]


class Plan:
    """Counts the drawn items by kind and selects the ones that run: all, or those whose numbers are in `only`."""

    def __init__(self, only: Mapping[str, frozenset[int]] | None = None) -> None:
        self.drawn: Counter[str] = Counter()
        self._only = only

    def happens(self, kind: str) -> bool:
        """Draw the next item of a kind; True if it must run."""
        number = self.drawn[kind]
        self.drawn[kind] += 1
        return self._only is None or number in self._only.get(kind, ())

    async def go_on(
        self, rng: random.Random, deeds: Sequence[Deed], done: Counter[str], until: float, pause_s: float
    ) -> None:
        """Do random deeds until the loop's time is `until`, on average every `pause_s`; counts them in `done`."""
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(rng.expovariate(1 / pause_s))
            deed = rng.choice(deeds)
            if self.happens(FAULTS):
                done[deed.__name__] += 1
                await deed()

    @property
    def items(self) -> list[Item]:
        """The items that were drawn and selected."""
        drawn = [(kind, number) for kind, count in sorted(self.drawn.items()) for number in range(count)]
        return [(kind, number) for kind, number in drawn if self._only is None or number in self._only.get(kind, ())]


def plan_of(items: Iterable[Item]) -> Plan:
    only: dict[str, set[int]] = {}
    for kind, number in items:
        only.setdefault(kind, set()).add(number)
    return Plan({kind: frozenset(numbers) for kind, numbers in only.items()})


def in_words(items: Iterable[Item]) -> str:
    """Items in the syntax of the command line, such as `faults:0-2,7 c0:4`; `-` if there are none."""
    kinds: dict[str, list[int]] = {}
    for kind, number in sorted(items):
        kinds.setdefault(kind, []).append(number)
    return " ".join(f"{kind}:{_runs(numbers)}" for kind, numbers in kinds.items()) or "-"


def from_words(words: str) -> Plan:
    """Parse the output of `in_words`. Raises ValueError."""
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
    """Returns a smaller list for which `fails` is still true, after at most `tries_max` calls. Within this limit, no
    single item of the result can be removed."""
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
