"""An audit finds every change that somebody with write access to the disk makes to a log. Some changes need a saved
tree head or the public key."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rocksdict import DBRecoveryMode, WriteBatch

from controller.machine.commands.commands import RecordHead
from controller.store import tree
from controller.store.store import TopicStore
from controller.store.tree import LogTree
from events.catalog import Cause, HeadSigned, TopicReady
from events.codec import decode_event, encode_event
from events.logs.log import Commit, Entry, LogCorrupted
from events.logs.merkle import Frontier
from events.logs.rocksdb_database import Database
from events.logs.tree_heads import Head, HeadSigner
from events.names import RequestId, TopicName, shard_key
from projections.queries.proving import FINDINGS_MAX, Audit
from projections.queries.query import Query
from tests.replay.history import CLUSTER_ID, SIGNER, Day, live_a_day, open_log, signed_head

HALF = 300
"""The number of events that the saved tree head covers."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day's log, some hundred more events, and a signed tree head after them."""
    folder = tmp_path_factory.mktemp("audit") / "log"

    async def write() -> None:
        log = open_log(folder)
        day = await Day(log).start()
        await live_a_day(day)
        while log.next_offset < 2 * HALF:
            await day.create(*(f"more.{log.next_offset + number}" for number in range(20)))
            await day.settled()
        day.submit_internal(RecordHead, **signed_head(log))
        await day.settled()
        await day.controller.stop()
        log.close()

    asyncio.run(write())
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "log"))


def audited(folder: Path, *heads: Head, public_key: bytes | None = SIGNER.public_key) -> Audit:
    with closing(open_log(folder)) as log:
        part = Query(log, partial(TopicStore, log))
        return Audit(log, part, heads=heads, public_key=public_key)


def head_at(folder: Path, size: int) -> Head:
    with closing(open_log(folder)) as log:
        return Head(log=CLUSTER_ID, size=size, root=tree.head_of(log, size)[1].hex(), at_ms=1)


def size_of(folder: Path) -> int:
    log = open_log(folder)
    log.close()
    return log.next_offset


# --- ways to change a log


class Pairs(NamedTuple):
    """All pairs in the database of a log: events by key, and views."""

    events: dict[bytes, bytes]
    views: dict[bytes, bytes]

    def view(self, prefix: bytes) -> bytes:
        """Returns the first key with this prefix."""
        return min(key for key in self.views if key.startswith(prefix))


FORGED = encode_event(5, Cause("ConfirmMetadata", RequestId("forged")), TopicReady(TopicName("forged")))
OTHERS = HeadSigner(Ed25519PrivateKey.from_private_bytes(b"o" * 32))


def key(offset: int) -> bytes:
    return offset.to_bytes(8, "big")


def changed(folder: Path, statement: str) -> None:
    """Run a statement on the pairs of a log's database and rewrite it, so that RocksDB reports no corruption."""
    open_log(folder).close()
    database = Database.open(folder, 8 << 20, DBRecoveryMode.absolute_consistency())
    pairs = Pairs(dict(pages(database.event_page)), dict(pages(database.view_page)))
    database.close()
    names = {"events": pairs.events, "views": pairs.views, "view": pairs.view, "key": key, "FORGED": FORGED}
    exec(statement, names)
    shutil.rmtree(folder)
    database = Database.open(folder, 8 << 20, DBRecoveryMode.absolute_consistency())
    batch = WriteBatch(raw_mode=True)
    for name, value in pairs.events.items():
        batch.put(name, value)
    for name, value in pairs.views.items():
        batch.put(name, value, database.views_handle)
    database.write(batch)
    database.close()


def pages(page: Callable[[bytes, bytes], tuple[list[tuple[bytes, bytes]], bool]]) -> Iterator[tuple[bytes, bytes]]:
    lower, last = b"", False
    while not last:
        pairs, last = page(lower, b"\xff")
        yield from pairs
        lower = pairs[-1][0] + b"\0" if pairs else lower


# a change of the database | the finding
CHANGES = r"""
events[key(100)] = FORGED                             | events 0 to 255 are not those of the tree
events[max(events)] = FORGED                          | are not those of its tree|the tree head stored with the log is not
events[key(40)], events[key(400)] = events[key(400)], events[key(40)] | events 256 to 511 are not those of the tree
del events[key(100)]                                  | event 100 is missing|1 of the events 0 to .* are missing in table
for _ in range(20): del events[max(events)]; views[b"mnext"] = key(len(events)) \
                                                      | its tree covers .* events instead of|everything up to .* was synced
views[view(b"sm\x08")] = bytes(32)                    | events 0 to 255 are not those of the tree
del views[view(b"sm\x08")]                            | its tree lacks the hash over events 0 to 255
views[b"sm"] = key(len(events)) + bytes(32)           | the tree head stored with the log is not that of its first
del views[view(b"tmore")]                             | the index of topics does not match the events
run = view(b"tmore"); views[b"tother\0" + run[-8:]] = views.pop(run) \
                                                      | the index of topics has event .* under 'other', but it belongs to 'more_
views[b"tother\0" + key(7)] = key(5)                  | the index of topics has event 5 under 'other'
views[b"tother\0" + key(1 << 40)] = key(5)            | the index of topics has events 5 to 1099511627776 under 'other'
del views[view(b"r")]                                 | the index of requests does not match the events
views[b"rother\0" + key(5)] = key(5)                  | the index of requests has event 5 under 'other'
""".replace("\\\n", "")  # noqa: E501


def test_an_audit_of_an_unchanged_log_has_no_findings(folder: Path) -> None:
    found = audited(folder, head_at(folder, HALF), head_at(folder, 0), head_at(folder, size_of(folder)))
    assert found.findings == []
    assert found.signed == 2
    without_key = audited(folder, public_key=None)
    assert (without_key.findings, without_key.signed, without_key.root) == ([], 2, found.root)
    assert found.root == head_at(folder, found.size).root


@pytest.mark.parametrize("line", CHANGES.strip().splitlines())
def test_an_audit_finds_every_kind_of_tampering(folder: Path, line: str) -> None:
    statement, finding = (column.strip() for column in line.split(" | ", 1))
    changed(folder, statement)
    try:
        findings: list[str] = audited(folder).findings
    except LogCorrupted as error:
        findings = [str(error)]
    assert len(findings) <= FINDINGS_MAX
    assert any(re.search(finding, one) for one in findings), findings


# --- rewritten logs

Rewrite = Callable[[list[bytes]], list[bytes]]


def rewritten(folder: Path, change: Rewrite) -> None:
    """Write other events with a consistent tree and state, as the project itself does."""
    log = open_log(folder)
    values = change([value for _, value in log.read()])
    log.close()
    shutil.rmtree(folder)
    log = open_log(folder)
    events = (decode_event(offset, value).event for offset, value in enumerate(values))
    entries = [
        Entry(value, shard_key(getattr(event, "topic", "")), getattr(event, "request_id", ""))
        for value, event in zip(values, events, strict=True)
    ]
    log.write(Commit(entries, {**LogTree(log).changes(values)}))
    log.close()


def with_heads_signed_by_another_key(values: list[bytes]) -> list[bytes]:
    """Replace the signed tree heads by heads that fit the events, signed with another key."""
    for offset, value in enumerate(values):
        record = decode_event(offset, value)
        if isinstance(record.event, HeadSigned):
            frontier = Frontier()
            frontier.extend(values[: min(record.event.size, offset)], 99)
            root = frontier.root()
            head = OTHERS.signed(Head(log=CLUSTER_ID, size=frontier.size, root=root.hex(), at_ms=5))
            event = HeadSigned(head.size, root, 5, head.public_key, head.signature)
            values[offset] = encode_event(record.at_ms, record.cause, event)
    return values


OTHER_EVENTS: dict[str, Rewrite] = {
    "changed": lambda values: with_heads_signed_by_another_key([*values[:100], FORGED, *values[101:]]),
    "dropped": lambda values: with_heads_signed_by_another_key([*values[:100], *values[101:]]),
    "put in": lambda values: with_heads_signed_by_another_key([*values[:100], FORGED, *values[100:]]),
    "swapped": lambda values: with_heads_signed_by_another_key(
        [*values[:100], values[101], values[100], *values[102:]]
    ),
}
REWRITES: dict[str, Rewrite] = {
    **OTHER_EVENTS,
    "truncated": lambda values: values[: HALF - 1],
    "grown otherwise": lambda values: with_heads_signed_by_another_key([*values[: HALF - 1], *[FORGED] * 500]),
}


@pytest.mark.parametrize("change", REWRITES)
def test_an_audit_with_a_saved_tree_head_finds_a_rewritten_log(folder: Path, change: str) -> None:
    head = head_at(folder, HALF)
    rewritten(folder, REWRITES[change])
    assert audited(folder, public_key=None).findings == [], "without a head or a key the rewritten log is valid"
    (finding,) = audited(folder, head, public_key=None).findings
    cut_off = f"the log was truncated: it has {HALF - 1} events, and the tree head covers {HALF}"
    other = f"the first {HALF} events were changed: their root is not that of the tree head"
    assert finding == (cut_off if change == "truncated" else other)


@pytest.mark.parametrize("change", OTHER_EVENTS)
def test_an_audit_with_the_public_key_finds_a_rewritten_log(folder: Path, change: str) -> None:
    rewritten(folder, OTHER_EVENTS[change])
    findings = audited(folder).findings
    assert findings
    assert all("was not signed by the expected key" in finding for finding in findings)


def test_an_audit_finds_a_tree_head_of_different_events(folder: Path) -> None:
    rewritten(folder, lambda values: [*values[:100], FORGED, *values[101:]])
    findings = audited(folder, public_key=None).findings
    assert findings
    assert all("events are not those of the tree head in event" in finding for finding in findings)


def test_an_audit_reports_a_tree_head_of_another_log(folder: Path) -> None:
    (finding,) = audited(folder, Head(log="other", size=5, root="00" * 32, at_ms=1)).findings
    assert finding == f"the tree head belongs to log other, and this is log {CLUSTER_ID}"
