"""kill -9 at every step of snapshots, archive, retention, backup and bases: nothing is missing, and nothing is twice.

    python -m tests.store.archive.killed [--rounds 50] [--seed N]

A story is written once. In each round a process goes on with a log of it where the last one died: it writes events,
takes snapshots, archives, drops what is archived, puts a base, and backs up. It dies by SIGKILL at a step that is
drawn: before a file below the folder is opened, made, renamed or removed, or before or after a call that writes the
log. Then all that there is is compared with the story. The last round lives.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.store.archived import retention
from controller.store.archived.recovering import archived
from controller.store.recorder import Recorder
from controller.store.snapshotting import Snapshotting, StateRebuild, state_keys
from controller.store.store import TopicStore
from controller.store.tree import head_of, root_over
from events.codec import decode_event
from events.logs.archive.base import bases, download_base, write_base
from events.logs.archive.manifest import (
    MANIFEST,
    Base,
    ManifestWriter,
    archive_status,
    find_manifest,
    read_manifest,
    segment_changes,
    segments_of,
    status_changes,
)
from events.logs.archive.store import Folder
from events.logs.log import Commit, shard_offsets
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import open_snapshot, snapshot_offsets
from tests.store.archive.archives import WRITER, archiver, open_any, query_of_log, write_a_day

EVENTS_A_ROUND = 300
STEPS_A_ROUND = 160
"""About so many a round has; some rounds die before one, others live to their end."""
_FILE_STEPS = ("os.rename", "os.remove", "os.mkdir")
_LOG_STEPS = ("write", "flush", "drop_before", "forget")


class Mortal:
    """Ends the process at a step."""

    def __init__(self, folder: Path, die_at: int) -> None:
        self._folder, self._left = str(folder), die_at
        sys.addaudithook(self._audit)
        for name in _LOG_STEPS:
            self._watch(name)

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, what: str, given: tuple[Any, ...]) -> None:
        changes = what in _FILE_STEPS or (what == "open" and given[2] & (os.O_WRONLY | os.O_RDWR))
        if changes and str(given[0]).startswith(self._folder):
            self.step()

    def _watch(self, name: str) -> None:
        real: Callable[..., Any] = getattr(RocksDbLog, name)

        @wraps(real)
        def watched(*args: Any, **named: Any) -> Any:
            self.step()
            done = real(*args, **named)
            self.step()
            return done

        setattr(RocksDbLog, name, watched)


class Reports:
    """Snapshots are taken."""

    def snapshot_taken(self, offset: int, size: int) -> None:
        return None

    def snapshot_failed(self, why: str) -> None:
        assert "removed" in why, why


def live(folder: Path, until: int, die_at: int, durable: Connection) -> None:
    """A process of one round: go on to so many events, and say how far they are durable."""
    Mortal(folder, die_at)
    with closing(open_any(folder / "log")) as log:
        durable.send(log.durable_offset)
        store = TopicStore(log)
        query = query_of_log(log)
        taking = Snapshotting(log, EVENTS_A_ROUND // 3, lambda work: work(), query.snapshot_pairs, Reports())
        taking.begin()
        _write(log, store, msgspec.msgpack.decode((folder / "story").read_bytes(), type=list[bytes])[:until], durable)
        taking.reached(store.durable_counts.topics)
        _archive(log, folder)
        backing_up = archiver(log, Folder(folder / "backup"), backup=True)
        while backing_up.step(log.durable_offset) is not None:
            pass


def _write(log: RocksDbLog, store: TopicStore, story: list[bytes], durable: Connection) -> None:
    recorder, cause = Recorder(log, store), None
    for number, (offset, value) in enumerate(list(enumerate(story))[log.next_offset :]):
        record = decode_event(offset, value)
        if number >= 40 and record.cause != cause and number % 5 == 0:
            recorder.commit()
            durable.send(log.flush())
            store.became_durable(recorder.state)
        recorder.record_encoded([record], [value])
        cause = record.cause
    recorder.commit()
    durable.send(log.flush())
    store.became_durable(recorder.state)


def _archive(log: RocksDbLog, folder: Path) -> None:
    place = Folder(folder / "archive")
    log.write(Commit(own=status_changes(replace(archive_status(log), url=place.url))))
    archiving = archiver(log, place)
    while (segment := archiving.step()) is not None:
        log.write(Commit(own=segment_changes(segment)))
    manifests = list(segments_of(log))
    retention.drop(log, manifests, 10**15, 0, -1)
    while (leaving := retention.IndexCleanup.next(log, manifests)) is not None:
        for piece in leaving.slices(log.archive.index(leaving.segment)):
            piece()
    base = Base(topic_id="t", start=log.start_offset, offset=log.next_offset, kafka_offset=0)
    write_base(ManifestWriter(place, WRITER), base, log.frozen_pairs())


# --- what must hold


def check(folder: Path, story: list[bytes], durable: int, died: int) -> int:
    """Whatever died, so often, and wherever; how many events the log has."""
    with closing(open_any(folder / "log")) as log:
        end = log.next_offset
        assert end >= durable, "what was durable is there"
        assert [value for _, value in log.read()] == story[:end]
        assert head_of(log) == (end, root_over(story[:end]))
        assert list(log.shard_keys()) == sorted(set(log.shard_keys())), "each name once"
        for offset in snapshot_offsets(log):
            with open_snapshot(log, offset) as snapshot:
                snapshot.check()
        known = {manifest.start: manifest for manifest in segments_of(log)}
        cluster_id = log.cluster_id
    for name in ("archive", "backup"):
        if (folder / name / MANIFEST).is_file():
            _check_archive(folder / name, story, died)
    place = Folder(folder / "archive")
    if known:
        there = {manifest.start: manifest for manifest in read_manifest(place).segments}
        assert {start: there.get(start) for start in known} == known
    found = bases(place, cluster_id, "t") if find_manifest(place) else ()
    for number, base in enumerate(found):
        copy = folder / f"copy-{number}"
        download_base(place, base, copy)
        with closing(open_any(copy)) as log:
            assert [value for _, value in log.read()] == story[: base.offset]
        rmtree(copy)
    return end


def _check_archive(folder: Path, story: list[bytes], died: int) -> None:
    """Every segment is there once, none is missing, and all of it is what was written. Who dies before a manifest
    leaves a file that is no part of it: who goes on writes the same, or, of a backup's last segment, a longer one."""
    place = Folder(folder)
    chain = read_manifest(place).segments
    values = [value for _, value in archived(place, chain)]
    assert values == story[: len(values)]
    files = sorted(one.name for one in (folder / "events").glob("*.parquet"))
    ours = sorted(manifest.name.removeprefix("events/") for manifest in chain)
    assert len(set(files) - set(ours)) <= died, "one that each wrote, and is not part of it"
    assert not set(ours) - set(files)


def check_state(folder: Path, story: list[bytes]) -> None:
    """At the end: the state, and each snapshot, is what follows from the events alone."""
    from_scratch = folder / "from-scratch"
    with closing(open_any(folder / "log")) as log, closing(open_any(from_scratch)) as plain:
        store = TopicStore(plain)
        recorder = Recorder(plain, store)
        for offset, value in enumerate(story):
            record = decode_event(offset, value)
            recorder.record_encoded([record], [value])
        recorder.commit()
        plain.flush()
        refold = StateRebuild(plain, lambda: None)
        for at in snapshot_offsets(log):
            refold.go_to(at)
            with open_snapshot(log, at) as snapshot:
                assert dict(state_keys(snapshot)) == dict(refold.pairs()), at
        store.became_durable(recorder.state)
        assert TopicStore(log).durable_slice(None, 100_000) == store.durable_slice(None, 100_000)
        for name in {"", *list(plain.shard_keys())[::20]}:
            assert list(shard_offsets(log, name)) == list(shard_offsets(plain, name)), name


def rounds(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Live and die so often, and once more to the end; how it went."""
    chance = random.Random(seed)
    write_a_day(folder / "day", EVENTS_A_ROUND * (count + 1))
    with closing(open_any(folder / "day")) as day:
        story = [value for _, value in day.read()]
    (folder / "story").write_bytes(msgspec.msgpack.encode(story))
    context = get_context("forkserver")  # of a process that never had a database open
    context.set_forkserver_preload([__name__])
    died = 0
    for number in range(count + 1):
        until = EVENTS_A_ROUND * (number + 1) if number < count else len(story)
        die_at = chance.randrange(1, STEPS_A_ROUND) if number < count else 0
        mine, its = context.Pipe(duplex=False)
        process = context.Process(target=live, args=(folder, until, die_at, its))
        process.start()
        its.close()
        durable = _last(mine)
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), f"round {number} ended with {process.exitcode}"
        died += process.exitcode != 0
        end = check(folder, story, durable, died)
    assert end == len(story)
    check_state(folder, story)
    return {"rounds": count, "died": died, "events": end}


def _last(pipe: Connection) -> int:
    last = 0
    while True:
        try:
            last = pipe.recv()
        except EOFError:
            return last


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with TemporaryDirectory(prefix="topicwright-killed-") as folder:
        found = rounds(Path(folder), options.rounds, options.seed)
    print(", ".join(f"{what} {count}" for what, count in found.items()) + ": nothing is missing, and nothing twice")


if __name__ == "__main__":
    main()
