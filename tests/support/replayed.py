"""Proves and explains the log of a controller that Kafka brokers have followed."""

from __future__ import annotations

from pathlib import Path

from projections.replay.checks.invariants import run_invariants
from projections.replay.log.log_ref import open_folder
from projections.replay.outcome import Options
from projections.replay.rebuild.compare import run_compare
from projections.replay.rebuild.explaining import run_explain
from projections.replay.rebuild.rebuild import run_rebuild
from projections.replay.redecide.backtest import run_backtest
from projections.replay.redecide.redecide import run_redecide
from projections.replay.runner import InProcess


def assert_proved(data: Path) -> None:
    """Every rule holds in a log, each request is decided as it was, the live state is what the events come to; and what
    was requested and became of topics can be explained. A service may be writing to it."""
    ref = open_folder(str(data))
    same = Options(settings=(("num.partitions", "1"),))
    checks = ((run_compare, Options()), (run_redecide, Options()), (run_invariants, Options()), (run_backtest, same))
    for run, options in checks:
        outcome = run(InProcess(), ref, options)
        assert not outcome.found, "\n".join(outcome.lines)
    requests = run_rebuild(InProcess(), ref, Options(view="requests", all_rows=True)).rows
    assert requests, "somebody sent a request"
    assert run_explain(None, ref, Options(subject=requests[-1]["topic"])).rows, "it can be explained"
