"""`topicwright verify`: does a proof hold, or is a whole log what it was?

Exit codes: 0 it is; 1 it is not; 2 wrong usage, or nothing there to read.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from controller.cli.reads.common import DONE, FOUND
from controller.cli.sources.http import HttpSource, Refusal, SourceError
from controller.cli.sources.http_access import AccessError, http_address, read_access
from controller.cli.terminal.tables import harmless
from controller.cli.terminal.usage import complain
from events.catalog import HeadSigned, Recorded
from events.codec import EventDecodeError, decode_event
from events.logs.archive.manifest import manifests_of, noted, read_stored, requests_of
from events.logs.archive.place import open_place
from events.logs.heads import BadKey, Head, log_name, read_public_key
from events.logs.log import LogCorrupted, LogError
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.proofs import FILE_BYTES_MAX, Proof, ProofFails, check_paths, read_proof
from events.logs.rocksdb_log import RocksDbLog
from projections.queries.auditing import NONE_SIGNED, Findings, against_head, audit, wrong_snapshots
from projections.queries.proving import Consistency, signed_head
from projections.queries.query import Query
from projections.store.archived.bases import wrong_state
from projections.store.snapshotting import Refold
from projections.store.store import TopicStore
from projections.text.moments import iso
from projections.views import to_json

_SHOWN_EVERY = 10_000


def verify(options: argparse.Namespace) -> int:
    """Say whether it holds; the exit code."""
    from controller.cli.sources.folder import holds_log

    what = Path(options.what)
    try:
        key = None if options.key is None else read_public_key(options.key)
        head = None if options.head is None else read_head(options.head)
        if "://" in options.what or ((what / "archive.json").is_file() and not holds_log(what)):
            return _archive(options, key, head)
        if what.is_dir():
            return _folder(options, what, key, head)
        if what.is_file():
            return _proof(_read(what, FILE_BYTES_MAX), key, head)
        return _service(options, key, head)
    except argparse.ArgumentTypeError as error:
        return complain(f"{options.what!r} is no file, no folder, and {str(error).partition(' is ')[2]}")
    except (SourceError, AccessError, BadKey) as error:
        return complain(str(error), FOUND if isinstance(error.__cause__, LogCorrupted) else 2)
    except Refusal as refusal:
        return complain(refusal.error.message)
    except ProofFails as error:
        return complain(f"{options.what}: {error}", FOUND)


def read_head(path: Path) -> Head:
    """The head in a file: alone, or in a reply or a proof that holds it. Raises SourceError."""
    try:
        text = _read(path, FILE_BYTES_MAX)
        return msgspec.json.decode(text, type=Consistency).head
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.json.decode(text, type=Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SourceError(f"--head {path} holds no head ({error}): keep a reply of GET /log/head, or a proof") from None


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(bytes_max + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > bytes_max:
        raise SourceError(f"{path} is larger than {bytes_max} bytes: no proof and no head is")
    return text


# --- a proof


def _proof(text: bytes, key: bytes | None, kept: Head | None) -> int:
    proof = read_proof(text)
    check_paths(proof)
    head = proof.head
    if key is None and kept is None:
        return complain(
            f"the proof fits its head, of {head.size} events with root {head.root}; say by whom that head is to be "
            "trusted: --key with the public key of the service, or --head with one that was kept"
        )
    if key is not None and not head.is_signed_by(key):
        raise ProofFails("its head is not signed by that key")
    if kept is not None and (kept.log, kept.size, kept.root) != (head.log, head.size, head.root):
        if kept.size != head.size:
            raise ProofFails(
                f"its head is over {head.size} events, and the one that was kept over {kept.size}: have it made with "
                "`topicwright prove --head`"
            )
        raise ProofFails("its head is not the one that was kept")
    said = head if key is not None or kept is None else kept  # the time is of whom the reader trusts
    print(f"holds: {len(proof.events)} events of log {head.log}, which had {head.size} events at {iso(said.at_ms)}")
    for line in _in_words(proof):
        print(harmless(line))
    return DONE


def _in_words(proof: Proof) -> list[str]:
    lines = []
    for event in proof.events:
        if not event.value:
            lines.append(f"{event.offset}: an event of which only the hash is shown, as of one with a secret")
            continue
        try:
            shown = to_json.event(decode_event(event.offset, event.value))
            lines.append(f"{shown.offset:>8}  {shown.at}  {shown.type:<19}  {shown.text}")
        except EventDecodeError as error:
            lines.append(f"{error}: a newer release may know it")
    return lines


# --- a log


def _folder(options: argparse.Namespace, folder: Path, key: bytes | None, head: Head | None) -> int:
    from controller.cli.sources.folder import open_log, partitions_in

    numbered: dict[int | None, Path] = dict(enumerate(partitions_in(folder))) or {None: folder}
    if options.partition is not None:
        if options.partition not in numbered:
            raise SourceError(f"--partition {options.partition}: {folder} has {len(numbered) - (None in numbered)}")
        numbered = {options.partition: numbered[options.partition]}
    code, compared = DONE, head is None
    for number, path in numbered.items():
        with closing(open_log(path)) as log:
            name = log_name(log.cluster_id, number)
            heads = [head] if head is not None and (len(numbered) == 1 or head.log == name) else []
            compared = compared or bool(heads)
            part = Query(log, partial(TopicStore, log), number)
            found = audit(
                log,
                name,
                part,
                heads=heads,
                public_key=key,
                index_key=secrets.token_bytes(32),
                progress=_progress(log.durable_offset),
            )
            wrong = found.findings or tuple(dict.fromkeys(_wrong_beside(log, part)))
        more = f", {found.signed} signed heads among them" if found.signed else ""
        code = max(code, _say(wrong, name, found.size, found.root, heads, more))
    if head is not None and not compared:
        return complain(f"--head is one of log {head.log}, and none of the partitions in {folder} is that", FOUND)
    return code


def _wrong_beside(log: RocksDbLog, part: Query) -> Iterator[str]:
    """What is not what the events lead to, which are as they should be: snapshots, the state, and of stretches that are
    in the archive alone their requests. Raises LogError."""
    refold = Refold(log, lambda: None, from_scratch=True)
    yield from wrong_snapshots(log, part, refold)
    yield from wrong_state(log, refold)
    for manifest in manifests_of(log):
        stored = requests_of(log, manifest)
        if stored is not None and manifest.end <= log.start_offset:
            place = open_place(noted(log).url)
            try:
                read_stored(place, manifest.requests_name(stored), stored)
            except LogCorrupted as error:
                yield str(error)


def _archive(options: argparse.Namespace, key: bytes | None, head: Head | None) -> int:
    try:
        from controller.cli.work.verify_bases import wrong_bases
        from controller.cli.work.verify_stretches import each_event
        from events.logs.archive.base import offsets_of_bases
        from events.logs.archive.manifest import read_chain
        from projections.store.archived.recovering import archived
    except ImportError as error:
        return complain(f"this takes {error.name}, which is not installed: pip install 'topicwright[replay]'")
    heads, findings, frontier = [head] if head is not None else [], Findings(), Frontier()
    roots = {0: frontier.root()}
    try:
        place = open_place(options.what)
        about, manifests = read_chain(place)
        name = log_name(about.cluster_id, options.partition)
        progress = _progress(manifests[-1].end if manifests else 0)
        signed = [] if key is None else list(_signed_in(archived(place, manifests), name))
        sizes = {one.size for one in (*heads, *signed)}
        for record, value in each_event(place, manifests, findings):
            frontier.extend((value,), PATH_LENGTH_MAX)
            if frontier.size in sizes:
                roots[frontier.size] = frontier.root()
            if not record.offset % _SHOWN_EVERY:
                progress(record.offset)
        newest = max(offsets_of_bases(place), default=0)
        for one in heads:
            if one.log == name and one.size > max(frontier.size, newest):
                findings.found(f"it has the first {frontier.size} events, and the head is over {one.size}")
            elif one.log != name or one.size <= frontier.size:  # else the base is looked at that has the others
                against_head(findings, one, name, frontier.size, lambda size: roots[size].hex())
        if key is not None:
            _check_signed(findings, key, signed, roots)
        for finding in wrong_bases(place, name, options.partition, heads, secrets.token_bytes(32)):
            findings.found(finding)
    except LogError as error:
        return complain(str(error), FOUND if isinstance(error, LogCorrupted) else 2)
    more = f", {len(signed)} signed heads among them" if signed else ""
    return _say(findings, name, frontier.size, frontier.root().hex(), heads, more)


def _signed_in(events: Iterable[tuple[Recorded, bytes]], log: str) -> Iterator[Head]:
    """The heads that are kept as events, of which each is older than its event."""
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
            findings.found(f"its first {one.size} events are not those of the head that was signed")


def _service(options: argparse.Namespace, key: bytes | None, old: Head | None) -> int:
    """The roots are those of the events as they were read once: what a service says of an older head, as that it goes
    on from there, shows nothing of these."""
    with HttpSource(http_address(options.what), read_access(options.command_config)) as source:
        head, findings = source.head(options.partition), Findings()
        if key is not None and not head.is_signed_by(key):
            findings.found("its head is not signed by that key")
        sizes = {one.size for one in (head, old) if one is not None and one.size <= head.size}
        roots = _roots_over(source, options.partition, sorted(sizes))
        if roots.get(head.size) != head.root:
            findings.found("its events are not those that its head is over")
        if old is not None:
            against_head(findings, old, head.log, head.size, lambda size: roots.get(size, ""))
    return _say(findings, head.log, head.size, head.root, [old] if old is not None else [], "")


def _roots_over(source: HttpSource, partition: int | None, sizes: list[int]) -> dict[int, str]:
    """The roots over the first so many events, for as far as there are events."""
    frontier, progress = Frontier(), _progress(sizes[-1])
    roots: dict[int, str] = {}
    for size in sizes:
        while frontier.size < size:
            leaves = source.leaves(frontier.size, partition).leaves[: size - frontier.size]
            if not leaves:
                return roots
            frontier.extend_leaves(leaf.hash for leaf in leaves)
            progress(frontier.size)
        roots[size] = frontier.root().hex()
    return roots


def _say(findings: list[str] | tuple[str, ...], log: str, size: int, root: str, heads: list[Head], more: str) -> int:
    for finding in findings:
        print(f"{log}: {finding}")
    if findings:
        return FOUND
    since = "".join(f", and its first {head.size} are those of the head that was kept" for head in heads)
    print(f"{log}: {size} events are those of its head{since}{more}; root {root}")
    return DONE


def _progress(size: int) -> Callable[[int], object]:
    """Shows on a terminal how far it is."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda done: print(f"\r{done:,} of {size:,} events", end="" if done < size else "\n", file=sys.stderr)
