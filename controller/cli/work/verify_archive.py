"""`topicwright verify URL`: check an archive or a backup.

The events of each segment (a range of events) are checked against the tree root in the manifest. The segment's index
and the other fields of the manifest are recomputed from the events, because anybody who can write to the store can
write a manifest and an index that match. Each base (a copy of the log's database) is unpacked into a temporary folder
and audited like the log of a stopped service, with its tree and indexes; then its state is recomputed from the events.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from controller.cli.output import progress_to
from controller.store.recovering import archived, check_tree, segment_files, wrong_state
from controller.store.snapshotting import StateRebuild
from controller.store.store import TopicStore
from events.catalog import HeadSigned, Recorded
from events.logs.archive.base import download_base, pairs_of
from events.logs.archive.manifest import (
    MANIFEST,
    ArchiveDamaged,
    Base,
    Manifest,
    Segment,
    archive_status,
    read_manifest,
    status_changes,
)
from events.logs.archive.segment import IndexBuilder
from events.logs.archive.store import ArchiveStore, open_store
from events.logs.log import Commit, LogCorrupted
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import Head, log_name
from projections.queries.proving import NONE_SIGNED, Findings, against_head, audit, signed_head
from projections.queries.query import Query

_PROGRESS_EVERY = 10_000


def verify_archive(
    options: argparse.Namespace, key: bytes | None, head: Head | None
) -> tuple[Findings, str, int, str, list[Head], str]:
    """Verify an archive or a backup. Returns the findings, the name, size and root of the log, the tree heads that
    it was compared with, and a text to append to the report. Raises LogError."""
    heads, findings, frontier = [head] if head is not None else [], Findings(), Frontier()
    roots = {0: frontier.root()}
    place = open_store(options.what)
    manifest = read_manifest(place)
    name = log_name(manifest.cluster_id, options.partition)
    progress = progress_to(manifest.end)
    if key is not None and (manifest.bases or manifest.signature) and not manifest.is_signed_by(key):
        findings.add(f"{MANIFEST} is not signed by that key: its bases and snapshots may be anybody's")
    signed = [] if key is None else list(_signed_in(archived(place, manifest.segments), name))
    sizes = {one.size for one in (*heads, *signed)}
    for record, value in _each_event(place, manifest.segments, findings):
        frontier.extend((value,), PATH_LENGTH_MAX)
        if frontier.size in sizes:
            roots[frontier.size] = frontier.root()
        if not record.offset % _PROGRESS_EVERY:
            progress(record.offset)
    newest = manifest.bases[-1].offset if manifest.bases else 0
    for one in heads:
        if one.log == name and one.size > max(frontier.size, newest):
            findings.add(f"it has only {frontier.size} events, and the head covers {one.size}")
        elif one.log != name or one.size <= frontier.size:  # else a base has the remaining events
            against_head(findings, one, name, frontier.size, lambda size: roots[size].hex())
    if key is not None:
        _check_signed(findings, key, signed, roots)
    for finding in _wrong_bases(place, manifest, options.partition, heads):
        findings.add(finding)
    more = f", with {len(signed)} signed heads" if signed else ""
    return findings, name, frontier.size, frontier.root().hex(), heads, more


def _signed_in(events: Iterable[tuple[Recorded, bytes]], log: str) -> Iterator[Head]:
    """The signed tree heads in HeadSigned events. A head over more events than precede its event is left out."""
    for record, _ in events:
        if isinstance(record.event, HeadSigned) and record.event.size <= record.offset:
            yield signed_head(log, record.event)


def _check_signed(findings: Findings, key: bytes, signed: list[Head], roots: dict[int, bytes]) -> None:
    if not signed:
        findings.add(NONE_SIGNED)
    for one in signed:
        if not one.is_signed_by(key):
            findings.add(f"the head over its first {one.size} events was not signed by that key")
        elif roots[one.size].hex() != one.root:
            findings.add(f"its first {one.size} events do not match the signed head")


def _wrong_bases(
    place: ArchiveStore, manifest: Manifest, partition: int | None, heads: Sequence[Head]
) -> Iterator[str]:
    """The findings about the bases and snapshots of an archive. Raises LogError for other errors."""
    for copy in manifest.snapshots:
        try:
            for _ in pairs_of(place, copy):
                pass
        except LogCorrupted as error:
            yield f"the snapshot at {copy.offset}: {error}"
    for base in manifest.bases:
        try:
            with TemporaryDirectory(prefix="topicwright-verify-") as folder:
                path = Path(folder) / "log"
                download_base(place, base, path)
                for finding in _wrong(path, base, place, manifest.cluster_id, partition, heads):
                    yield f"{base}: {finding}"
        except LogCorrupted as error:
            yield f"{base}: {error}"


def _wrong(
    path: Path, base: Base, place: ArchiveStore, cluster_id: str, partition: int | None, heads: Sequence[Head]
) -> Iterator[str]:
    with closing(RocksDbLog(path, cluster_id=cluster_id)) as log:
        log.write(Commit(own=status_changes(replace(archive_status(log), url=place.url))))
        try:
            check_tree(log, base, place)
        except ArchiveDamaged as error:
            yield str(error)
        found = audit(
            log,
            Query(log, partial(TopicStore, log), partition),
            heads=[head for head in heads if head.size <= base.offset],
            public_key=None,
            index_key=secrets.token_bytes(32),
        )
        yield from found.findings
        yield from wrong_state(log, StateRebuild(log, lambda: None, from_scratch=True))


def _each_event(
    place: ArchiveStore, segments: Sequence[Segment], findings: Findings
) -> Iterator[tuple[Recorded, bytes]]:
    """The events of an archive. After the last event of a segment, its index and its entry in the manifest are
    checked. Raises ArchiveError."""
    for file in segment_files(place, segments):
        segment, times, size = file.segment, list[int](), 0
        expected = IndexBuilder(segment.start)
        for record, value in file.records():
            expected.add(record)
            size += len(value)
            times = [*times[:1], record.at_ms]
            yield record, value
        if file.index().pairs() != expected.pairs():
            findings.add(f"the index in {segment.name} does not match its events")
        own = replace(segment, first_ms=times[0], last_ms=times[-1], event_bytes=size, footer=file.footer)
        if own != segment:
            findings.add(f"what {MANIFEST} says of {segment.name} does not match its events")
