"""Tries rules on their examples, or on the requests of a running service, in a process of its own: for
`POST /v1/rules/test`, `/v1/rules/backtest` and `/v1/rules/redecide`.

The service sends a `Task` as JSON on stdin, and gets the view, or the text of an error, as JSON on stdout. The process
reads the files of the logs while the service writes to them (`projections.replay.log.secondary`), so it never holds up
the service. It runs at a low priority, and the system ends it after LIMIT_S.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from controller.machine.rules.reading import read_rules
from controller.release import RELEASE
from events.errors import UserError
from projections.replay.log.log_ref import Ends, LogRef
from projections.replay.outcome import ReplayError
from projections.replay.redecide.backtest import count_effects, tally
from projections.replay.redecide.redecide import decided_again
from projections.replay.redecide.whatif import WhatIf
from projections.replay.runner import InProcess
from projections.replay.shards import AT_FIRST, Beginning, Row, newest_snapshot, rows_of
from projections.text.wording import many
from projections.views.backtests import LIMIT_S, Past, RulesTestView, Task, TrialGroupView, TrialView, group_of

NICENESS = 10
GROUPS_MAX, REQUESTS_MAX = 500, 1_000
"""The most groups, and requests of all groups, in an answer."""
EVENTS_MAX = 1_000_000
"""They take about half a gigabyte of memory while they are sorted."""


def backtest(text: str, past: Past) -> TrialView:
    """The effect of rules on past requests. Raises ReplayError, LogError, EventDecodeError."""
    tried, rows = WhatIf(rules=text), list[Row]()
    for ref, ends, start, begin in _logs(past):
        rows += rows_of(count_effects(InProcess(), ref, ends, tried, start, begin))
    counts = tally(rows).to_pylist()
    refused = [one for one in counts if one["change"] == "refused"]
    of = f" of {many(len({one['principal'] for one in refused}), 'principal')}" if refused else ""
    requests = sum(one["count"] for one in counts)
    words = f"would have rejected {many(sum(one['count'] for one in refused), 'request')}{of}"
    summary = f"{words}; tried {many(requests, 'request')} since {past.since}"
    return _view(past, summary, requests, [one for one in counts if one["change"]])


def redecide(past: Past) -> TrialView:
    """Decide past requests again by the recorded rules. Raises ReplayError, LogError, EventDecodeError."""
    requests, causes, rows = 0, Counter[str](), list[dict[str, Any]]()
    for ref, ends, start, begin in _logs(past):
        count, of_log, found = decided_again(InProcess(), ref, ends, start=start, begin=begin)
        requests, causes, rows = requests + count, causes + of_log, rows + found
    for row in rows:
        row["message"] = f"recorded: {row['recorded']}; now: {row['now']}"
    counts = [
        {**_REDECIDED, "rule": why, "count": count, "examples": [row for row in rows if row["why"] == why]}
        for why, count in causes.most_common()
    ]
    words = f"{many(requests, 'request')} since {past.since} decided again by release {RELEASE}"
    return _view(past, f"{words}: {causes.total()} otherwise", requests, counts)


_REDECIDED = {"change": "redecided", "principal": "", "api": "", "was_rule": ""}


def _view(past: Past, summary: str, requests: int, counts: Sequence[dict[str, Any]]) -> TrialView:
    room, groups, has_partitions = REQUESTS_MAX, list[TrialGroupView](), past.logs[0].partition is not None
    for one in counts[:GROUPS_MAX]:
        groups.append(group_of(one, room, has_partitions=has_partitions))
        room -= len(groups[-1].requests)
    return TrialView(
        summary=summary,
        since=past.since,
        requests=requests,
        otherwise=sum(one["count"] for one in counts),
        groups=tuple(groups),
        more=len(counts) > len(groups) or any(one.count > len(one.requests) for one in groups),
        as_of=past.as_of,
    )


def _logs(past: Past) -> Iterator[tuple[LogRef, Ends, int, Beginning]]:
    """Each log with its end, the first offset to try, and the snapshot before that. Raises ReplayError."""
    room = EVENTS_MAX
    for one in past.logs:
        partition = one.partition or 0
        ref = LogRef(one.path, Path(one.path), partition)
        begin = newest_snapshot(ref, {partition: one.start - 1}) if one.start else AT_FIRST
        room -= one.end - begin.offset
        if room < 0:
            raise ReplayError(
                f"since: a running service tries at most {EVENTS_MAX:,} events, counted from the snapshot before "
                f"{past.since}: choose a later time, or run `topicwright replay` on a copy of the data folder"
            )
        yield ref, {partition: one.end}, one.start, begin


def main() -> None:
    """Do one task from stdin, with low priority and a time limit; write its answer, or an error as text, to stdout."""
    os.nice(NICENESS)
    signal.alarm(LIMIT_S)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    answer: TrialView | RulesTestView | str
    try:
        match task:
            case Task(past=None, text=str(text)):
                answer = RulesTestView.of(read_rules(text), task.at_ms)
            case Task(past=Past() as past, text=str(text)):
                answer = backtest(text, past)
            case Task(past=Past() as past):
                answer = redecide(past)
            case _:
                raise AssertionError("a task has rules or a past")
    except UserError as error:
        answer = str(error)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
