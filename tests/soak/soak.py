"""A soak: a calm start, all faults for nodes of every kind, then only SIGSTOP, a calm end, and the checks.

The second half has no kills, so that every process lives long enough for the check of memory growth.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.soak import rules
from tests.soak.figures import Figures, between
from tests.soak.judging import broken_rules, ended_badly
from tests.soak.load import load_on
from tests.soak.misfortunes import Misfortunes
from tests.soak.nodes import FAULTS
from tests.soak.stage import DISK_MIB, Stage, stage
from tests.soak.table import minute, table

_GAUGES: Final = re.compile(r"^topicwright_(log_[a-z]+_offset) (\S+)$", re.MULTILINE)
_HISTORY: Final = ("log_snapshot_offset", "log_archived_offset", "log_start_offset")
"""These must be above 0 at the end: a snapshot was taken, segments were archived and deleted from the data folder."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration, seed, and numbers of brokers and workers; without workers there is no gateway."""

    minutes: float
    seed: int
    brokers: int = 3
    workers: int = 2

    @property
    def whole_s(self) -> float:
        """Total duration."""
        return self.minutes * 60

    @property
    def calm_s(self) -> float:
        """Duration of the calm start and of the calm end, without faults."""
        return min(60.0, self.whole_s / 6)


@dataclass(slots=True)
class Outcome:
    """The result: the table, and the violations (`wrong`)."""

    table: str = ""
    wrong: list[str] = field(default_factory=list)
    faults: int = 0
    answers: int = 0
    """Answers to clients that change topics."""


def soak(folder: Path, plan: Plan, say: Callable[[str], object]) -> Outcome:
    """Run a soak in a folder; `say` is called with one line a minute."""
    outcome = Outcome()
    with stage(folder, brokers=plan.brokers, workers=plan.workers) as made:
        misfortunes = Misfortunes(made, plan.seed)
        figures = Figures(made.nodes)
        with load_on(made, plan.seed) as load, figures:
            try:
                _live(plan, figures, misfortunes, lambda: say(minute(figures, misfortunes, load, _gauges(made))))
            except AssertionError as error:  # the other checks need all nodes
                outcome.wrong += [str(error), *figures.ended]
                return outcome
            ended_s = figures.now_s()
            outcome.wrong += load.lost()
            gauges = _gauges(made)
            outcome.wrong += [f"{name} is 0" for name in _HISTORY if not gauges.get(name) and plan.minutes > 10]
        outcome.wrong += [*figures.ended, *ended_badly(made)]
        voter = made.voter.folder
    outcome.wrong += broken_rules(voter)
    for node in made.ours:
        samples, calm_s = between(figures.samples[node.name], 0, ended_s), plan.calm_s
        first, last = between(samples, 0, calm_s), between(samples, ended_s - calm_s, ended_s)
        outcome.wrong += rules.too_many(node.name, first, last)
        outcome.wrong += rules.grows(node.name, samples)
        outcome.wrong += rules.too_large(node.name, figures.disks[node.name], DISK_MIB[node.kind])
    outcome.faults = misfortunes.counts.total()
    outcome.answers = sum(one.report.answers for one in load.changes.values())
    outcome.table = table(made, figures, misfortunes, load, plan.calm_s, ended_s)
    return outcome


def _live(plan: Plan, figures: Figures, misfortunes: Misfortunes, say: Callable[[], object]) -> None:
    """Run the phases of the soak; `say` is called once a minute."""
    figures.each_minute(say)
    began_s = time.monotonic()
    time.sleep(plan.calm_s)
    misfortunes.until(began_s + plan.whole_s / 2, FAULTS)
    misfortunes.until(began_s + plan.whole_s - plan.calm_s, ("stop",))
    time.sleep(plan.calm_s)


def _gauges(made: Stage) -> dict[str, float]:
    """Offsets of the voter's log, snapshots and archive from its metrics; empty while it does not respond."""
    with suppress(OSError):
        return {name: float(value) for name, value in _GAUGES.findall(made.voter.get("/metrics").decode())}
    return {}
