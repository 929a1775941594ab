"""`topicwright verify URL`: check an archive or a backup.

The events of each segment are checked against the tree root in its manifest. Its index, its request file and the
manifest's other fields are recomputed from the events, because whoever can write to the store can write a manifest and
an index that fit each other. Each base is unpacked into a temporary folder and audited like the log of a stopped
service, with its tree and indexes; then its state is recomputed from the events.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from controller.cli.arguments import complain
from controller.cli.output import progress_to
from controller.cli.reads.common import FOUND
from controller.cli.work.verify import report
from events.catalog import EVENT_VERSION, HeadSigned, Recorded
from events.logs.archive.base import Base, download_base, offsets_of_bases, read_base
from events.logs.archive.manifest import (
    ArchiveDamaged,
    Manifest,
    Stored,
    archive_status,
    read_chain,
    read_stored,
    status_changes,
)
from events.logs.archive.segment import SegmentIndexBuilder
from events.logs.archive.store import ArchiveStore, open_store
from events.logs.log import LogCorrupted, LogError
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import Head, log_name
from projections.queries.auditing import NONE_SIGNED, Findings, against_head, audit
from projections.queries.proving import signed_head
from projections.queries.query import Query
from projections.store.archived.bases import check_tree, wrong_state
from projections.store.archived.recovering import archived
from projections.store.snapshotting import Refold
from projections.store.store import TopicStore

_PROGRESS_EVERY = 10_000


def verify_archive(options: argparse.Namespace, key: bytes | None, head: Head | None) -> int:
    """Verify an archive or a backup; returns the exit code."""
    heads, findings, frontier = [head] if head is not None else [], Findings(), Frontier()
    roots = {0: frontier.root()}
    try:
        place = open_store(options.what)
        about, manifests = read_chain(place)
        name = log_name(about.cluster_id, options.partition)
        progress = progress_to(manifests[-1].end if manifests else 0)
        signed = [] if key is None else list(_signed_in(archived(place, manifests), name))
        sizes = {one.size for one in (*heads, *signed)}
        for record, value in _each_event(place, manifests, findings):
            frontier.extend((value,), PATH_LENGTH_MAX)
            if frontier.size in sizes:
                roots[frontier.size] = frontier.root()
            if not record.offset % _PROGRESS_EVERY:
                progress(record.offset)
        newest = max(offsets_of_bases(place), default=0)
        for one in heads:
            if one.log == name and one.size > max(frontier.size, newest):
                findings.found(f"it has only {frontier.size} events, and the head covers {one.size}")
            elif one.log != name or one.size <= frontier.size:  # else a base has the remaining events
                against_head(findings, one, name, frontier.size, lambda size: roots[size].hex())
        if key is not None:
            _check_signed(findings, key, signed, roots)
        for finding in _wrong_bases(place, name, options.partition, heads, secrets.token_bytes(32)):
            findings.found(finding)
    except LogError as error:
        return complain(str(error), FOUND if isinstance(error, LogCorrupted) else 2)
    more = f", with {len(signed)} signed heads" if signed else ""
    return report(findings, name, frontier.size, frontier.root().hex(), heads, more)


def _signed_in(events: Iterable[tuple[Recorded, bytes]], log: str) -> Iterator[Head]:
    """The heads that are recorded as events; each is older than its event."""
    for record, _ in events:
        if isinstance(record.event, HeadSigned) and record.event.size <= record.offset:
            yield signed_head(log, record.event)


def _check_signed(findings: Findings, key: bytes, signed: list[Head], roots: dict[int, bytes]) -> None:
    if not signed:
        findings.found(NONE_SIGNED)
    for one in signed:
        if not one.is_signed_by(key):
            findings.found(f"the head over its first {one.size} events was not signed by that key")
        elif roots[one.size].hex() != one.root:
            findings.found(f"its first {one.size} events do not match the signed head")


def _wrong_bases(
    place: ArchiveStore, name: str, partition: int | None, heads: Sequence[Head], index_key: bytes
) -> Iterator[str]:
    """The findings about the bases of a store; `index_key` is as for `audit`. Raises LogError for other errors."""
    for offset in offsets_of_bases(place):
        try:
            base = read_base(place, offset)
            with TemporaryDirectory(prefix="topicwright-verify-") as folder:
                path = Path(folder) / "log"
                download_base(place, base, path)
                for finding in _wrong(path, base, place, name, partition, heads, index_key):
                    yield f"{base.name}: {finding}"
        except LogCorrupted as error:
            yield str(error)


def _wrong(
    path: Path,
    base: Base,
    place: ArchiveStore,
    name: str,
    partition: int | None,
    heads: Sequence[Head],
    index_key: bytes,
) -> Iterator[str]:
    log = RocksDbLog.open(
        path, cluster_id=base.cluster_id, event_version=EVENT_VERSION, new_cluster_id=lambda: base.cluster_id
    )
    with closing(log):
        log.put_state(status_changes(replace(archive_status(log), url=place.url)))
        try:
            check_tree(log, base, place)
        except ArchiveDamaged as error:
            yield str(error)
        found = audit(
            log,
            name,
            Query(log, partial(TopicStore, log), partition),
            heads=[head for head in heads if head.size <= base.offset],
            public_key=None,
            index_key=index_key,
        )
        yield from found.findings
        yield from wrong_state(log, Refold(log, lambda: None, from_scratch=True))


def _each_event(
    place: ArchiveStore, manifests: Sequence[Manifest], findings: Findings
) -> Iterator[tuple[Recorded, bytes]]:
    """The events of an archive. After the last event of a segment, its other files are checked. Raises ArchiveError."""
    events = archived(place, manifests)
    for manifest in manifests:
        index, size, first_ms = SegmentIndexBuilder(manifest.start), 0, None
        for record, value in islice(events, manifest.end - manifest.start):
            index.add(record)
            size += len(value)
            first_ms = record.at_ms if first_ms is None else first_ms
            yield record, value
        content = index.content(manifest.cluster_id, value, manifest.event_version)
        expected = replace(
            manifest, first_ms=first_ms, last_ms=record.at_ms, event_bytes=size, index=Stored.of(content)
        )
        if expected != manifest:
            findings.found(f"{manifest.name} does not match its events")
        _check_files(place, manifest, findings)


def _check_files(place: ArchiveStore, manifest: Manifest, findings: Findings) -> None:
    try:
        read_stored(place, manifest.index_name, manifest.index)
    except ArchiveDamaged as error:
        findings.found(str(error))
    name = manifest.find_requests(place)
    if name is not None and sha256(place.read(name) or b"").hexdigest()[:16] not in name:
        findings.found(f"{name} was changed: restore it from a copy of the archive")
