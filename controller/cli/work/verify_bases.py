"""`topicwright verify URL`, of the bases beside an archive: is each what the log came to?

A base is put into a folder of its own, for as long as it is read. The log there reads the archive for what is older,
and is audited as that of a stopped service, with its tree and its indexes; then its state is made anew of the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from events.catalog import EVENT_VERSION
from events.logs.archive.base import Base, fetch_base, offsets_of_bases, read_base
from events.logs.archive.manifest import ArchiveDamaged, note, noted
from events.logs.archive.place import Place
from events.logs.heads import Head
from events.logs.log import LogCorrupted
from events.logs.rocksdb_log import RocksDbLog
from projections.queries.auditing import audit
from projections.queries.query import Query
from projections.store.archived.bases import check_tree, wrong_state
from projections.store.snapshotting import Refold
from projections.store.store import TopicStore


def wrong_bases(
    place: Place, log_name: str, partition: int | None, heads: Sequence[Head], index_key: bytes
) -> Iterator[str]:
    """What is wrong with the bases of a place, in words; `index_key` is what `audit` says. Raises LogError for what is
    no damage, SourceError."""
    for offset in offsets_of_bases(place):
        try:
            base = read_base(place, offset)
            with TemporaryDirectory(prefix="topicwright-verify-") as folder:
                path = Path(folder) / "log"
                fetch_base(place, base, path)
                for finding in _wrong(path, base, place, log_name, partition, heads, index_key):
                    yield f"{base.name}: {finding}"
        except LogCorrupted as error:
            yield str(error)


def _wrong(
    path: Path,
    base: Base,
    place: Place,
    log_name: str,
    partition: int | None,
    heads: Sequence[Head],
    index_key: bytes,
) -> Iterator[str]:
    log = RocksDbLog.open(
        path, cluster_id=base.cluster_id, event_version=EVENT_VERSION, new_cluster_id=lambda: base.cluster_id
    )
    with closing(log):
        log.note(note(replace(noted(log), url=place.url)))
        try:
            check_tree(log, base, place)
        except ArchiveDamaged as error:
            yield str(error)
        found = audit(
            log,
            log_name,
            Query(log, partial(TopicStore, log), partition),
            heads=[head for head in heads if head.size <= base.offset],
            public_key=None,
            index_key=index_key,
        )
        yield from found.findings
        yield from wrong_state(log, Refold(log, lambda: None, from_scratch=True))
