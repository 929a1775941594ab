"""`topicwright verify URL`, of the segments of an archive: are manifests, indexes and requests those of the events?

The events of a segment are held against the tree that its manifest names, as they are read. All else that it says is
made anew of them: who can write to the place can write a manifest and an index that fit each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice

from msgspec.structs import replace

from events.catalog import Recorded
from events.logs.archive.manifest import ArchiveDamaged, Manifest, Stored, read_stored
from events.logs.archive.segment import SegmentIndexBuilder
from events.logs.archive.store import ArchiveStore
from projections.queries.auditing import Findings
from projections.store.archived.recovering import archived


def each_event(
    place: ArchiveStore, manifests: Sequence[Manifest], findings: Findings
) -> Iterator[tuple[Recorded, bytes]]:
    """The events of an archive; what else of a segment is wrong is found when its last event was taken. Raises
    ArchiveError."""
    events = archived(place, manifests)
    for manifest in manifests:
        index, size, first_ms = SegmentIndexBuilder(manifest.start), 0, None
        for record, value in islice(events, manifest.end - manifest.start):
            index.add(record)
            size += len(value)
            first_ms = record.at_ms if first_ms is None else first_ms
            yield record, value
        content = index.content(manifest.cluster_id, value, manifest.event_version)
        said = replace(manifest, first_ms=first_ms, last_ms=record.at_ms, event_bytes=size, index=Stored.of(content))
        if said != manifest:
            findings.found(f"{manifest.name} does not say what its events say, or has the index of others")
        _check_beside(place, manifest, findings)


def _check_beside(place: ArchiveStore, manifest: Manifest, findings: Findings) -> None:
    try:
        read_stored(place, manifest.index_name, manifest.index)
    except ArchiveDamaged as error:
        findings.found(str(error))
    name = manifest.find_requests(place)
    if name is not None and sha256(place.read(name) or b"").hexdigest()[:16] not in name:
        findings.found(f"{name} is not as it was archived: restore it from a copy of the archive")
