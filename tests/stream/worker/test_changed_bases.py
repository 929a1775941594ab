"""Bases that somebody with write access changed, including their hashes. A base is rejected if its Merkle tree differs
from its events or the archive. `verify` finds changes outside the tree."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from controller.cli.main import main
from controller.store.tree import HEAD, STORED_LEVEL, head_of
from events.logs.archive.base import bases, download_base, write_base
from events.logs.archive.manifest import Base, ManifestWriter, read_manifest
from events.logs.merkle import Frontier
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import Head, HeadSigner
from tests.store.archive.archives import open_any
from tests.stream.worker.memory_kafka import TOPICS
from tests.stream.worker.test_partition_history import Partitions

Pairs = dict[bytes, bytes]
STATE = b"s"
NODE = STATE + HEAD + bytes((STORED_LEVEL,))


def newest_event(pairs: Pairs) -> bytes:
    return max(key for key in pairs if key[:1] == b"\0")


def turned(pairs: Pairs, key: bytes) -> None:
    """Change the last byte of a value."""
    pairs[key] = pairs[key][:-1] + bytes((pairs[key][-1] ^ 1,))


def first_under(pairs: Pairs, prefix: bytes) -> bytes:
    return min(key for key in pairs if key.startswith(prefix) and pairs[key])


def with_another_tree(pairs: Pairs, log: RocksDbLog) -> None:
    """Change an event, and rebuild the Merkle tree over the changed events."""
    key = newest_event(pairs)
    turned(pairs, key)
    values = [value for _, value in log.read(0, log.next_offset - 1)]
    frontier = Frontier()
    for level, index, hash_ in frontier.extend([*values, pairs[key]], STORED_LEVEL):
        pairs[STATE + HEAD + bytes((level,)) + index.to_bytes(8, "big")] = hash_
    pairs[STATE + HEAD] = frontier.size.to_bytes(8, "big") + frontier.root()


NOBODY_BEGINS_WITH: dict[str, Callable[[Pairs], object]] = {
    "the newest event": lambda pairs: turned(pairs, newest_event(pairs)),
    "its first event": lambda pairs: turned(pairs, first_under(pairs, b"\0")),
    "its head": lambda pairs: turned(pairs, STATE + HEAD),
    "a hash of its tree": lambda pairs: turned(pairs, first_under(pairs, NODE)),
    "a hash of its tree is gone": lambda pairs: pairs.pop(first_under(pairs, NODE)),
    "a manifest": lambda pairs: turned(pairs, first_under(pairs, STATE + b"p\0")),
}
FOUND_BY_VERIFY: dict[str, tuple[Callable[[Pairs], object], str]] = {
    "a topic's state": (lambda pairs: turned(pairs, first_under(pairs, STATE + b"t")), "does not match its events"),
    "a topic is gone": (lambda pairs: pairs.pop(first_under(pairs, STATE + b"t")), "is missing"),
    "an event that retained_events": (lambda pairs: turned(pairs, first_under(pairs, b"e")), "is not the event in the"),
    "the index": (lambda pairs: pairs.pop(first_under(pairs, b"tt")), "the index of topics does not match the events"),
}


class Changing:
    """The newest base of partition 0, to be changed."""

    def __init__(self, partitions: Partitions, folder: Path) -> None:
        self.place = partitions.place()
        self.base, self.older = bases(self.place, TOPICS.cluster_id, TOPICS.events_id)
        download_base(self.place, self.base, folder)
        with closing(open_any(folder)) as log:
            self._pairs = dict(log.frozen_pairs())
        self._folder = folder

    def put(self, change: Callable[[Pairs], object]) -> Base:
        pairs = dict(self._pairs)
        change(pairs)
        writer = ManifestWriter(self.place, read_manifest(self.place).writer)
        return write_base(writer, self.base, iter(sorted(pairs.items())))

    def put_with_another_tree(self) -> Head:
        """Upload the base with another tree; returns the original tree head."""
        with closing(open_any(self._folder)) as log:
            head = Head(
                log=f"{TOPICS.cluster_id}/0", size=log.next_offset, root=head_of(log, log.next_offset)[1].hex(), at_ms=0
            )
            self.put(lambda pairs: with_another_tree(pairs, log))
            return head


async def test_base_with_another_tree_is_rejected(based: Partitions, tmp_path: Path) -> None:
    changing = Changing(based, tmp_path / "base")
    for what, change in NOBODY_BEGINS_WITH.items():
        changing.put(change)
        with closing(based.gateway(f"fresh {what}")):
            assert based.began_at == changing.older.kafka_offset, what
    changing.put(lambda _: None)
    with closing(based.gateway("fresh")):
        assert based.began_at == changing.base.kafka_offset, "the unchanged base is accepted"


async def test_verify_finds_changes_of_a_base_outside_its_merkle_tree(
    based: Partitions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changing = Changing(based, tmp_path / "base")
    url = str(tmp_path / "archive" / "partition-00000")
    assert main(["verify", url, "--partition", "0"]) == 0, capsys.readouterr()
    for what, (change, words) in FOUND_BY_VERIFY.items():
        changing.put(change)
        capsys.readouterr()
        assert main(["verify", url, "--partition", "0"]) == 1, what
        said = capsys.readouterr().out
        assert str(changing.base) in said, what
        assert words in said, what
    head = changing.put_with_another_tree()
    kept = tmp_path / "head.json"
    kept.write_bytes(msgspec.json.encode(head))
    assert main(["verify", url, "--partition", "0", "--head", str(kept)]) == 1
    assert (
        f"the first {head.size} events were changed: their root is not that of the tree head" in capsys.readouterr().out
    )


async def test_verify_with_a_key_needs_a_signed_manifest(
    based: Partitions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, key = based.place(), Ed25519PrivateKey.generate()
    public = tmp_path / "public.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    command = ["verify", place.url, "--partition", "0", "--key", str(public)]
    assert main(command) == 1
    assert "manifest.json is not signed by that key" in capsys.readouterr().out
    manifest = read_manifest(place)
    ManifestWriter(place, manifest.writer, HeadSigner(key)).register(manifest)
    assert main(command) == 1
    assert "no signed tree head is in the log" in (said := capsys.readouterr().out)
    assert "is not signed by that key" not in said
