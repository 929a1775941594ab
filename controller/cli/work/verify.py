"""`topicwright verify` and `prove`: write a proof that events are in the log; verify a proof, or a whole log.

Exit codes: 0 valid, or proved; 1 invalid, or not in the log; 2 wrong usage, or nothing to read.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec

from controller.cli.arguments import DONE, NEGATIVE, Negative, http_address
from controller.cli.backend import Backend, HttpBackend, Refusal
from controller.cli.folder import holds_log, open_log, partitions_in
from controller.cli.output import harmless, progress_to
from controller.store.recovering import wrong_state
from controller.store.snapshotting import StateRebuild
from controller.store.store import TopicStore
from events.codec import EventDecodeError, decode_event
from events.errors import UserError
from events.logs.archive.manifest import MANIFEST
from events.logs.log import LogCorrupted
from events.logs.merkle import Frontier
from events.logs.tree_heads import (
    FILE_BYTES_MAX,
    BadKey,
    Head,
    Proof,
    ProofFails,
    check_paths,
    log_name,
    read_proof,
    read_public_key,
)
from projections.queries.proving import LEAVES_MAX, Consistency, Findings, Leaves, against_head, audit, wrong_snapshots
from projections.queries.query import Query
from projections.text.points_in_time import iso
from projections.views.events import event_view


def verify(options: argparse.Namespace) -> int:
    """Run `verify`; returns the exit code."""
    what = Path(options.what)
    try:
        key = None if options.key is None else read_public_key(options.key)
        head = None if options.head is None else read_head(options.head)
        if "://" in options.what or ((what / MANIFEST).is_file() and not holds_log(what)):
            from controller.cli.work.verify_archive import verify_archive

            return _report(*verify_archive(options, key, head))
        if what.is_dir():
            return _folder(options, what, key, head)
        if what.is_file():
            return _proof(_read(what), key, head)
        return _service(options, key, head)
    except argparse.ArgumentTypeError as error:
        why = str(error).partition(" is ")[2]
        raise UserError(f"{options.what!r} is not a file, not a folder, and {why}") from None
    except BadKey as error:
        raise UserError(str(error)) from error
    except LogCorrupted as error:
        raise Negative(str(error)) from error
    except ProofFails as error:
        raise Negative(f"{options.what}: {error}") from error


def read_head(path: Path) -> Head:
    """Read a tree head from a file, which has the head alone, a response, or a proof. Raises UserError."""
    text = _read(path)
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(text, type=Consistency).head
    try:
        return msgspec.json.decode(text, type=Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(
            f"--head {path} contains no head ({error}): save a response of GET /v1/log/head, or a proof"
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > FILE_BYTES_MAX:
        raise UserError(f"{path} is larger than {FILE_BYTES_MAX} bytes, so it is neither a proof nor a head")
    return text


# --- a proof


def _proof(text: bytes, key: bytes | None, known: Head | None) -> int:
    proof = read_proof(text)
    check_paths(proof)
    head = proof.head
    if key is None and known is None:
        raise UserError(
            f"the proof matches its head, of {head.size} events with root {head.root}; to check the head itself, give "
            "--key with the public key of the service, or --head with a saved head"
        )
    if key is not None and not head.is_signed_by(key):
        raise ProofFails("its head is not signed by that key")
    if known is not None and (known.log, known.size, known.root) != (head.log, head.size, head.root):
        if known.size != head.size:
            raise ProofFails(
                f"its head covers {head.size} events, the saved one {known.size}: create the proof with "
                "`topicwright prove --head`"
            )
        raise ProofFails("its head is not the saved one")
    trusted = head if key is not None or known is None else known
    print(f"valid: {len(proof.events)} events of log {head.log}, which had {head.size} events at {iso(trusted.at_ms)}")
    for line in _lines_of(proof):
        print(harmless(line))
    return DONE


def _lines_of(proof: Proof) -> list[str]:
    lines = []
    for event in proof.events:
        if not event.value:
            lines.append(f"{event.offset}: an event with a secret, of which only the hash is shown")
            continue
        try:
            view = event_view(decode_event(event.offset, event.value))
            lines.append(f"{view.offset:>8}  {view.at}  {view.type:<19}  {view.text}")
        except EventDecodeError as error:
            lines.append(f"{error}: written by a newer release?")
    return lines


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
            progress, index_key = progress_to(log.durable_offset), secrets.token_bytes(32)
            found = audit(log, part, heads=heads, public_key=key, index_key=index_key, progress=progress)
            refold = StateRebuild(log, lambda: None, from_scratch=True)
            wrong = found.findings or (*wrong_snapshots(log, part, refold), *wrong_state(log, refold))
        more = f", with {found.signed} signed heads" if found.signed else ""
        code = max(code, _report(wrong, name, found.size, found.root, heads, more))
    if head is not None and not compared:
        raise Negative(f"--head is of log {head.log}, which is not among the partitions in {folder}")
    return code


def _service(options: argparse.Namespace, key: bytes | None, old: Head | None) -> int:
    """Verify the log of a running service: compute the roots of its head and of `old` from one list of its leaf
    hashes. A consistency proof of the service would not cover these hashes."""
    with closing(HttpBackend(http_address(options.what), options.command_config)) as backend:
        head = backend.get(Consistency, "/log/head", partition=options.partition).head
        findings = Findings()
        if key is not None and not head.is_signed_by(key):
            findings.add("its head is not signed by that key")
        sizes = {one.size for one in (head, old) if one is not None and one.size <= head.size}
        roots = _roots_over(backend, options.partition, sorted(sizes))
        if roots.get(head.size) != head.root:
            findings.add("its events do not match its head")
        if old is not None:
            against_head(findings, old, head.log, head.size, lambda size: roots.get(size, ""))
    return _report(findings, head.log, head.size, head.root, [old] if old is not None else [], "")


def _roots_over(backend: HttpBackend, partition: int | None, sizes: list[int]) -> dict[int, str]:
    """The roots over the first N events for each size, as far as there are events."""
    frontier, progress = Frontier(), progress_to(sizes[-1])
    roots: dict[int, str] = {}
    for size in sizes:
        while frontier.size < size:
            page = backend.get(Leaves, "/log/leaves", from_=frontier.size, limit=LEAVES_MAX, partition=partition)
            leaves = page.leaves[: size - frontier.size]
            if not leaves:
                return roots
            frontier.extend_leaves(leaf.hash for leaf in leaves)
            progress(frontier.size)
        roots[size] = frontier.root().hex()
    return roots


def _report(findings: list[str] | tuple[str, ...], log: str, size: int, root: str, heads: list[Head], more: str) -> int:
    for finding in findings:
        print(f"{log}: {finding}")
    if findings:
        return NEGATIVE
    since = "".join(f", and its first {head.size} match the saved head" for head in heads)
    print(f"{log}: {size} events match its head{since}{more}; root {root}")
    return DONE


# --- prove


def prove(options: argparse.Namespace, backend: Backend) -> int:
    """Run `prove`; returns the exit code."""
    try:
        size = None if options.head is None else read_head(options.head).size
        proof = _requested(options, backend, size)
    except ProofFails as error:
        raise UserError(str(error)) from error
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n")
    sys.stdout.flush()
    signed = "signed" if proof.head.signature else "not signed"
    print(
        f"{len(proof.events)} events of {proof.about}, proved by a head of {proof.head.size} events, {signed}",
        file=sys.stderr,
    )
    if proof.next_offset is not None:
        print(f"more events exist: continue with --from {proof.next_offset}", file=sys.stderr)
    return DONE


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
