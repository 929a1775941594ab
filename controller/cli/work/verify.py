"""`topicwright verify` and `prove`: write a proof that events are in the log; verify a proof, a log, or an archive.

The events of each segment (a range of events) of an archive or a backup are checked against the tree root in the
manifest. The segment's index and the other fields of the manifest are recomputed from the events, because anybody who
can write to the store can write a manifest and an index that match. Each base (a copy of the log's database) is
unpacked into a temporary folder and audited like the log of a stopped service, with its tree and indexes; then its
state is recomputed from the events.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.cli.arguments import DONE, NEGATIVE, Negative, http_address
from controller.cli.backend import Backend, HttpBackend, Refusal
from controller.cli.folder import holds_log, open_log, partitions_in
from controller.cli.output import harmless, progress_to
from controller.store.recovering import archived, check_tree, segment_files, wrong_state
from controller.store.snapshotting import StateRebuild
from controller.store.store import TopicStore
from events.catalog import HeadSigned, Recorded
from events.codec import EventDecodeError, decode_event
from events.errors import UserError
from events.logs import tree_heads
from events.logs.archive import manifest as manifests
from events.logs.archive.base import download_base, pairs_of
from events.logs.archive.segment import IndexBuilder
from events.logs.archive.store import ArchiveStore, open_store
from events.logs.log import Commit, LogCorrupted, read_bytes
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import Head, Proof, ProofFails, ProvedEvent, log_name
from projections.queries import proving
from projections.queries.proving import Audit, Findings, against_head
from projections.queries.query import Query
from projections.text.points_in_time import iso
from projections.views.events import event_view

_PROGRESS_EVERY = 10_000


def verify(options: argparse.Namespace) -> int:
    what = Path(options.what)
    try:
        key = None if options.key is None else tree_heads.read_public_key(options.key)
        head = None if options.head is None else read_head(options.head)
        if "://" in options.what or ((what / manifests.MANIFEST).is_file() and not holds_log(what)):
            return _archive(options, key, head)
        if what.is_dir():
            return _folder(options, what, key, head)
        if what.is_file():
            return _proof(_read(what), key, head)
        return _service(options, key, head)
    except argparse.ArgumentTypeError as error:
        why = str(error).partition(" is ")[2]
        raise UserError(f"{options.what!r} is not a file, not a folder, and {why}") from None
    except LogCorrupted as error:
        raise Negative(str(error)) from error
    except ProofFails as error:
        raise Negative(f"{options.what}: {error}") from error


def read_head(path: Path) -> Head:
    """Read a tree head from a file, which has the head alone, a response, or a proof. Raises UserError."""
    try:
        found = msgspec.json.decode(_read(path), type=dict[str, Any])
        return msgspec.convert(found.get("head", found), Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(
            f"--head {path} contains no head ({error}): save a response of GET /v1/log/head, or a proof"
        ) from None


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, tree_heads.FILE_BYTES_MAX)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


# --- a proof


def _proof(text: bytes, key: bytes | None, known: Head | None) -> int:
    proof = tree_heads.read_proof(text)
    tree_heads.check_paths(proof)
    head = proof.head
    if key is None and known is None:
        raise UserError(
            f"the proof matches its head, of {head.size} events with root {head.root}; to check the head itself, give "
            "--key with the public key of the service, or --head with a saved head"
        )
    if key is not None and not head.is_signed_by(key):
        raise ProofFails("its head is not signed" + (" by that key" if head.signature else ""))
    if known is not None and (known.log, known.size, known.root) != (head.log, head.size, head.root):
        if known.size != head.size:
            raise ProofFails(
                f"its head covers {head.size} events, the saved one {known.size}: create the proof with "
                "`topicwright prove --head`"
            )
        raise ProofFails("its head is not the saved one")
    trusted = head if key is not None or known is None else known
    print(f"valid: {len(proof.events)} events of log {head.log}, which had {head.size} events at {iso(trusted.at_ms)}")
    for event in proof.events:
        print(harmless(_line_of(event)))
    return DONE


def _line_of(event: ProvedEvent) -> str:
    if not event.value:
        return f"{event.offset}: an event with a secret, of which only the hash is shown"
    try:
        view = event_view(decode_event(event.offset, event.value))
    except EventDecodeError as error:
        return f"{error}: written by a newer release?"
    return f"{view.offset:>8}  {view.at}  {view.type:<19}  {view.text}"


# --- a log


def _folder(options: argparse.Namespace, folder: Path, key: bytes | None, head: Head | None) -> int:
    numbered: dict[int | None, Path] = dict(enumerate(partitions_in(folder))) or {None: folder}
    if options.partition is not None:
        if options.partition not in numbered:
            raise UserError(f"--partition {options.partition}: {folder} has {len(numbered) - (None in numbered)}")
        numbered = {options.partition: numbered[options.partition]}
    code, compared = DONE, head is None
    for number, path in numbered.items():
        with closing(open_log(path)) as log:
            name = log_name(log.cluster_id, number)
            heads = [head] if head is not None and (len(numbered) == 1 or head.log == name) else []
            compared = compared or bool(heads)
            part = Query(log, partial(TopicStore, log), number)
            found = Audit(log, part, heads=heads, public_key=key, progress=progress_to(log.durable_offset))
            refold = StateRebuild(log, lambda: None, from_scratch=True)
            wrong = found.findings or (*proving.wrong_snapshots(log, part, refold), *wrong_state(log, refold))
        code = max(code, _report(wrong, name, found.size, found.root, heads, found.signed))
    if head is not None and not compared:
        raise Negative(f"--head is of log {head.log}, which is not among the partitions in {folder}")
    return code


def _service(options: argparse.Namespace, key: bytes | None, old: Head | None) -> int:
    """Verify the log of a running service: compute the roots of its head and of `old` from one list of its leaf
    hashes."""
    with closing(HttpBackend(http_address(options.what), options.command_config)) as backend:
        head = backend.get(proving.HeadView, "/log/head", partition=options.partition).head
        findings = Findings()
        if key is not None and not head.is_signed_by(key):
            findings.add("its head is not signed by that key")
        sizes = {one.size for one in (head, old) if one is not None and one.size <= head.size}
        roots = _roots_over(backend, options.partition, sorted(sizes))
        if roots.get(head.size) != head.root:
            findings.add("its events do not match its head")
        if old is not None:
            against_head(findings, old, head.log, head.size, lambda size: roots.get(size, ""))
    return _report(findings, head.log, head.size, head.root, [old] if old is not None else [])


def _roots_over(backend: HttpBackend, partition: int | None, sizes: list[int]) -> dict[int, str]:
    """The roots over the first N events for each size, as far as there are events."""
    frontier, progress = Frontier(), progress_to(sizes[-1])
    roots: dict[int, str] = {}
    for size in sizes:
        while frontier.size < size:
            page = backend.get(
                proving.Leaves, "/log/leaves", from_=frontier.size, limit=proving.LEAVES_MAX, partition=partition
            )
            leaves = page.leaves[: size - frontier.size]
            if not leaves:
                return roots
            frontier.extend_leaves(leaf.hash for leaf in leaves)
            progress(frontier.size)
        roots[size] = frontier.root().hex()
    return roots


def _report(findings: Sequence[str], log: str, size: int, root: str, heads: list[Head], signed: int = 0) -> int:
    for finding in findings:
        print(f"{log}: {finding}")
    if findings:
        return NEGATIVE
    since = "".join(f", and its first {head.size} match the saved head" for head in heads)
    with_signed = f", with {signed} signed heads" if signed else ""
    print(f"{log}: {size} events match its head{since}{with_signed}; root {root}")
    return DONE


# --- an archive


def _archive(options: argparse.Namespace, key: bytes | None, head: Head | None) -> int:
    """Verify an archive or a backup. Raises LogError."""
    heads, findings, frontier = [head] if head is not None else [], Findings(), Frontier()
    roots = {0: frontier.root()}
    place = open_store(options.what)
    manifest = manifests.read_manifest(place)
    name = log_name(manifest.cluster_id, options.partition)
    progress = progress_to(manifest.end)
    if key is not None and (manifest.bases or manifest.signature) and not manifest.is_signed_by(key):
        findings.add(f"{manifests.MANIFEST} is not signed by that key: its bases and snapshots may be anybody's")
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
    return _report(findings, name, frontier.size, frontier.root().hex(), heads, len(signed))


def _signed_in(events: Iterable[tuple[Recorded, bytes]], log: str) -> Iterator[Head]:
    """The signed tree heads in HeadSigned events. A head over more events than precede its event is left out."""
    for record, _ in events:
        if isinstance(record.event, HeadSigned) and record.event.size <= record.offset:
            yield proving.signed_head(log, record.event)


def _check_signed(findings: Findings, key: bytes, signed: list[Head], roots: dict[int, bytes]) -> None:
    if not signed:
        findings.add(proving.NONE_SIGNED)
    for one in signed:
        if not one.is_signed_by(key):
            findings.add(f"the head over its first {one.size} events was not signed by that key")
        elif roots[one.size].hex() != one.root:
            findings.add(f"its first {one.size} events do not match the signed head")


def _wrong_bases(
    place: ArchiveStore, manifest: manifests.Manifest, partition: int | None, heads: Sequence[Head]
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
    path: Path, base: manifests.Base, place: ArchiveStore, cluster_id: str, partition: int | None, heads: Sequence[Head]
) -> Iterator[str]:
    with closing(RocksDbLog(path, cluster_id=cluster_id)) as log:
        log.write(Commit(own=manifests.status_changes(replace(manifests.archive_status(log), url=place.url))))
        try:
            check_tree(log, base, place)
        except manifests.ArchiveDamaged as error:
            yield str(error)
        part = Query(log, partial(TopicStore, log), partition)
        covered = [one for one in heads if one.size <= base.offset]
        yield from Audit(log, part, heads=covered, public_key=None).findings
        yield from wrong_state(log, StateRebuild(log, lambda: None, from_scratch=True))


def _each_event(
    place: ArchiveStore, segments: Sequence[manifests.Segment], findings: Findings
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
            findings.add(f"what {manifests.MANIFEST} says of {segment.name} does not match its events")


# --- prove


def prove(options: argparse.Namespace, backend: Backend) -> None:
    size = None if options.head is None else read_head(options.head).size
    proof = _requested(options, backend, size)
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n")
    sys.stdout.flush()
    signed = "signed" if proof.head.signature else "not signed"
    print(
        f"{len(proof.events)} events of {proof.about}, proved by a head of {proof.head.size} events, {signed}",
        file=sys.stderr,
    )
    if proof.next_offset is not None:
        print(f"more events exist: continue with --from {proof.next_offset}", file=sys.stderr)


def _requested(options: argparse.Namespace, backend: Backend, size: int | None) -> Proof:
    """The proof of an offset, else a topic, else a request. Raises Refusal, UserError."""
    subject: str = options.subject

    def get(**subject: object) -> Proof:
        span = {"from": options.start, "limit": options.limit, "partition": options.partition, "size": size}
        return backend.get(Proof, "/log/proof", **span, **subject)

    if subject.isascii() and subject.isdigit():
        return get(offset=subject)
    try:
        return get(topic=subject)
    except Refusal as refusal:
        if refusal.status not in {403, 404}:
            raise
    return get(request=subject)
