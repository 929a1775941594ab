"""Tries rules on their examples, or on the requests of a running service, in a process of its own: for
`POST /v1/rules/test` and `/v1/rules/backtest`.

The service sends a `Task` as JSON on stdin, and gets the view, or the text of an error, as JSON on stdout. The process
reads the files of the logs while the service writes to them (`projections.replay.log.secondary`), so it never holds up
the service. It runs at a low priority, and the system ends it after LIMIT_S.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from controller.machine.rules.reading import read_rules
from events.errors import UserError, shortened
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import ReplayError
from projections.replay.redecide.backtest import count_effects, tally
from projections.replay.redecide.whatif import WhatIf
from projections.replay.runner import InProcess
from projections.replay.shards import AT_FIRST, Row, newest_snapshot, rows_of
from projections.views.backtests import LIMIT_S, BacktestGroupView, BacktestView, Past, RulesTestView, Task

NICENESS = 10
GROUPS_MAX, REQUESTS_MAX = 500, 1_000
"""The most groups, and requests of all groups, in an answer."""
MESSAGE_CHARS_MAX = 500
EVENTS_MAX = 1_000_000
"""They take about half a gigabyte of memory while they are sorted."""


def backtest(text: str, past: Past) -> BacktestView:
    """The effect of rules on past requests. Raises ReplayError, LogError, EventDecodeError."""
    tried = WhatIf(rules=text)
    rows: list[Row] = []
    room = EVENTS_MAX
    for one in past.logs:
        partition = one.partition or 0
        ref = LogRef(one.path, Path(one.path), partition)
        begin = newest_snapshot(ref, {partition: one.start - 1}) if one.start else AT_FIRST
        room -= one.end - begin.offset
        if room < 0:
            raise ReplayError(
                f"since: a running service tries at most {EVENTS_MAX:,} events, counted from the snapshot before "
                f"{past.since}: choose a later time, or run `topicwright replay backtest` on a copy of the data folder"
            )
        rows += rows_of(count_effects(InProcess(), ref, {partition: one.end}, tried, one.start, begin))
    counts = tally(rows).to_pylist()
    found = [one for one in counts if one["change"]]
    refused = [one for one in found if one["change"] == "refused"]
    has_partitions = past.logs[0].partition is not None
    groups = tuple(_groups(found[:GROUPS_MAX], has_partitions))
    return BacktestView(
        since=past.since,
        requests=sum(one["count"] for one in counts),
        refused=sum(one["count"] for one in refused),
        principals=len({one["principal"] for one in refused}),
        groups=groups,
        more=len(found) > len(groups) or any(one.count > len(one.requests) for one in groups),
        as_of=past.as_of,
    )


def _groups(counts: Sequence[dict[str, Any]], has_partitions: bool) -> Iterator[BacktestGroupView]:
    room = REQUESTS_MAX
    for one in counts:
        requests = one["examples"][:room]
        room -= len(requests)
        for each in requests:
            each["partition"] = each["log_partition"] if has_partitions else None
            each["message"] = shortened(each["message"], MESSAGE_CHARS_MAX)
        yield msgspec.convert({**one, "requests": requests}, BacktestGroupView)


def main() -> None:
    os.nice(NICENESS)
    signal.alarm(LIMIT_S)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    answer: BacktestView | RulesTestView | str
    try:
        if task.past is None:
            answer = RulesTestView.of(read_rules(task.text), task.at_ms)
        else:
            answer = backtest(task.text, task.past)
    except UserError as error:
        answer = str(error)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
