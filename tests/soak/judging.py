"""Checks after the soak: no acknowledged change is lost, and all logs agree."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.stage import NAMES, STREAM_PARTITIONS, Stage
from tests.stream.checking import check_topics, next_source
from tests.stream.gateway.load import Changes, altered_otherwise, decided_otherwise, shown_otherwise
from tests.stream.load import read_topic
from tests.support.quorum_faults import check_logs
from tests.support.topicwright import COMMAND

DECIDED_WITHIN_S: Final = 120.0


def tried(what: str, check: Callable[[], list[str]]) -> list[str]:
    """The violations that a check found; if the check itself fails, its error."""
    try:
        return check()
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {str(error)[:2000]}"]


def lost_topics(client: Changes, address: str) -> list[str]:
    """The client's topics that differ from the answers it got."""
    if client.report.wrong:
        return client.report.wrong
    return [*shown_otherwise([client.report], address), *altered_otherwise(client, address)]


def differing_logs(stage: Stage) -> list[str]:
    """Compare the copies of the metadata log, and their snapshots. Raises AssertionError if they differ."""
    check_logs(stage.cluster)
    return []


def lost_commands(stage: Stage, client: Changes) -> list[str]:
    """Commands that the events topic shows as not decided, decided twice or out of order, or not as answered."""
    bootstrap, deadline = stage.cluster.bootstrap, time.monotonic() + DECIDED_WITHIN_S
    while True:
        commands = read_topic(bootstrap, f"{NAMES}.commands", STREAM_PARTITIONS)
        events = read_topic(bootstrap, f"{NAMES}.events", STREAM_PARTITIONS)
        undecided = [len(sent) - next_source(each) for sent, each in zip(commands, events, strict=True)]
        if not any(undecided):
            break
        if time.monotonic() > deadline:
            return [f"commands that are not decided, by partition: {undecided}"]
        time.sleep(1)
    found = check_topics(commands, events)
    counts = {name: found.counts[name] for name in ("lost", "decided twice", "out of order")}
    wrong = [f"commands: {counts}"] if any(counts.values()) else []
    return [*wrong, *found.wrong, *decided_otherwise([client.report], events)]


def broken_rules(folder: Path) -> list[str]:
    """Violations that `verify` and `replay invariants` find in the log of the stopped voter."""
    found = []
    for words in (["verify", folder], ["replay", "invariants", folder, "--local"]):
        argv = [str(each) for each in (COMMAND, *words)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            found.append(f"{' '.join(argv[1:])} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
    return found


def ended_badly(stage: Stage) -> list[str]:
    """Stop all Topicwright processes with SIGTERM; returns those whose exit code is not 0."""
    found = []
    for node in sorted(stage.ours, key=lambda each: each.kind == "voter"):
        node.disturbed.set()
        code = node.running.stop(within_s=120)
        if code:
            found.append(f"{node.name}: SIGTERM ended with {code}\n{node.running.output[-3000:]}")
    return found
