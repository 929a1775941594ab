"""Generates docs/lifecycle.md: `python -m tests.machine.audit.lifecycle_page > docs/lifecycle.md`."""

from __future__ import annotations

import sys

from tests.machine.audit.lifecycle import LIFECYCLES, Lifecycle

HEAD = """# Life cycles

The states of create requests, topics, partitions and brokers, for readers of the event log. This page is generated:
edit the tables in `tests/machine/audit/lifecycle.py`, then run `python -m tests.machine.audit.lifecycle_page`. The
tests check every log that they write against these tables.

Each table lists the events that may come in a state, and the next state. An event that is not in the table is a bug, or
a sign of a damaged log. `LeaderElected` and `LeaderLost` are a `PartitionChanged` after which another replica leads, or
none.
"""


def page() -> str:
    return "\n".join([HEAD, *(section(lifecycle) for lifecycle in LIFECYCLES)])


def section(lifecycle: Lifecycle) -> str:
    """One life cycle: what it is about, its diagram, its states, its transitions."""
    lines = [f"## A {lifecycle.name}", "", lifecycle.about, "", "```mermaid", *_diagram(lifecycle), "```", ""]
    lines += ["| state | means |", "|---|---|"]
    lines += [f"| {name} | {state.meaning} |" for name, state in lifecycle.states.items()]
    lines += ["", "| state | event | next |", "|---|---|---|"]
    for name, state in lifecycle.states.items():
        lines += [f"| {name} | `{event}` | {after} |" for event, after in state.nexts.items()]
    return "\n".join([*lines, ""])


def _diagram(lifecycle: Lifecycle) -> list[str]:
    """Mermaid's state diagram; events that lead the same way share an arrow."""
    lines = ["stateDiagram-v2", f"    [*] --> {_id(lifecycle.start)}"]
    for state, (_, nexts) in lifecycle.states.items():
        by_target: dict[str, list[str]] = {}
        for event, after in nexts.items():
            by_target.setdefault(after, []).append(event)
        for after, events in by_target.items():
            lines.append(f"    {_id(state)} --> {_id(after)}: {', '.join(events)}")
        if not nexts:
            lines.append(f"    {_id(state)} --> [*]")
    return lines


def _id(state: str) -> str:
    """Mermaid takes no dashes in a state's name."""
    return state.replace("-", "_")


if __name__ == "__main__":
    sys.stdout.write(page())
