"""Runs simulations for a series of seeds. For each failure it prints the seed, commit, step, and a smaller plan of
faults and requests that fails in the same way."""

import re
import subprocess
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.simulation.plan import FAULTS, Item, Plan, in_words, plan_of, shrink


class Outcome(NamedTuple):
    """The result of one simulation: counts of what happened, and a hash of the final log."""

    counts: Counter[str]
    digest: str = ""


Simulate = Callable[[int, Plan], Outcome]

SHRINK_TRIES = 120


def live_through(
    seeds: Iterable[int],
    simulate: Simulate,
    lived: Callable[[Outcome | None], None],
    *,
    module: str,
    only: Plan | None = None,
    tries: int = SHRINK_TRIES,
) -> None:
    """Simulate each seed and print the failures. `lived` is called with each outcome, or None after a failure."""
    for seed in seeds:
        plan = only or Plan()
        try:
            outcome = simulate(seed, plan)
        except Exception as error:
            print(failure(module, seed, plan.items, simulate, error, tries), flush=True)
            lived(None)
        else:
            lived(outcome)


def failure(module: str, seed: int, items: list[Item], simulate: Simulate, error: Exception, tries: int) -> str:
    notes = getattr(error, "__notes__", ())
    where = "".join(traceback.format_exception(error))
    print(f"seed {seed}, commit {_commit()}: {_kind(error)}; {'; '.join(notes)}\n{where}", flush=True)

    def fails(fewer: list[Item]) -> bool:
        try:
            simulate(seed, plan_of(fewer))
        except Exception as other:
            return _kind(other) == _kind(error)
        return False

    all_faults, all_requests = ([each for each in items if (each[0] == FAULTS) is wanted] for wanted in (True, False))
    faults = shrink(all_faults, lambda fewer: fails(fewer + all_requests), tries // 2)
    requests = shrink(all_requests, lambda fewer: fails(faults + fewer), tries // 2)
    return (
        f"seed {seed} still fails with {len(faults)} of {len(all_faults)} faults and {len(requests)} of "
        f"{len(all_requests)} requests: python -m {module} {seed} --only '{in_words(faults + requests)}'"
    )


def _kind(error: BaseException) -> str:
    """The error's type and the start of its message, with each number replaced by N."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {re.sub(r'[0-9]+', 'N', str(error))[:60]}"


@contextmanager
def named(simulator: str, seed: int) -> Iterator[None]:
    """Adds the command that repeats the simulation to an exception of the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"to see it again: python -m tests.simulation {simulator} {seed}")
        raise


def _commit() -> str:
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
