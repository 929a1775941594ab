"""The Merkle tree of RFC 9162 over the events of a log: hashes, roots, and proofs of inclusion.

A leaf is the hash of an event's canonical bytes, in offset order; the hash of two subtrees makes their parent. The root
over the first `size` events identifies all of them. A client that stored a root can check with some thirty hashes that
an event was at its offset (inclusion, section 2.1.3). That a later root extends the same events, `topicwright verify`
checks with the hashes of all events.

Pure: the caller supplies the hashes of complete subtrees (`Subtree`). `controller.store.tree` stores these hashes, and
`projections.queries.proving` makes proofs for clients.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()
PATH_LENGTH_MAX = 64
"""The maximum path length for offsets below 2 ** 63."""

Subtree = Callable[[int, int], bytes]
"""The hash of the complete subtree at a level (0: a leaf) and an index in that level: `1 << level` leaves from `index
<< level` on."""


def leaf_hash(value: bytes) -> bytes:
    return sha256(b"\0" + value).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two adjacent subtrees."""
    return sha256(b"\1" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: the complete subtrees without a right neighbour.

    `peaks` are their hashes, the highest level first, one for each bit of `size`.
    """

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        assert size.bit_count() == len(peaks), "one peak for each bit of the size"
        self.size = size
        self._peaks = list(peaks)

    def extend(self, values: Iterable[bytes], from_level: int) -> list[tuple[int, int, bytes]]:
        """Append events. Returns the subtrees that they complete at `from_level` and above: level, index, hash."""
        return self.extend_leaves([sha256(b"\0" + value).digest() for value in values], from_level)

    def extend_leaves(self, leaves: Iterable[bytes], from_level: int = PATH_LENGTH_MAX) -> list[tuple[int, int, bytes]]:
        """As `extend`, with the hashes of events."""
        peaks, nodes, first, level = self._peaks, list(leaves), self.size, 0
        self.size += len(nodes)
        rest: list[bytes] = []
        completed: list[tuple[int, int, bytes]] = []
        while nodes:  # each round has the nodes of a level from index `first` on
            if first & 1:
                nodes.insert(0, peaks.pop())
            if len(nodes) & 1:
                rest.append(nodes.pop())
            pairs = zip(nodes[::2], nodes[1::2], strict=True)
            nodes = [sha256(b"\1" + left + right).digest() for left, right in pairs]
            first, level = first >> 1, level + 1
            if level >= from_level:
                completed += [(level, index, node) for index, node in enumerate(nodes, first)]
        self._peaks += reversed(rest)
        return completed

    def root(self) -> bytes:
        return root_of(self._peaks)


def root_of(peaks: Sequence[bytes]) -> bytes:
    """The root of the tree with these complete subtrees, from left to right."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def peaks_of(end: int, start: int = 0) -> list[tuple[int, int]]:
    """The complete subtrees over the leaves [start, end), from left to right: level and index of each. `start` is a
    multiple of the size of the largest subtree."""
    found = []
    while start < end:
        level = (end - start).bit_length() - 1
        found.append((level, start >> level))
        start += 1 << level
    return found


def root_at(subtree: Subtree, end: int, start: int = 0) -> bytes:
    """The root over the leaves [start, end)."""
    return root_of([subtree(level, index) for level, index in peaks_of(end, start)])


def inclusion_path(subtree: Subtree, offset: int, size: int) -> list[bytes]:
    """The hashes that lead from an event to the root over the first `size` events, from the leaf up."""
    assert 0 <= offset < size, "the event is one of them"
    path, start, end = [], 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if offset < middle:
            path.append(root_at(subtree, end, middle))
            end = middle
        else:
            path.append(root_at(subtree, middle, start))
            start = middle
    return path[::-1]


def _split(count: int) -> int:
    """The largest power of two below a number of leaves above 1: the size of the left subtree."""
    return 1 << ((count - 1).bit_length() - 1)


def root_from_inclusion(leaf: bytes, offset: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a path leads to from a leaf hash at an offset (RFC 9162, 2.1.3.2); None if the path has the wrong
    length."""
    if not 0 <= offset < size:
        return None
    index, last, root = offset, size - 1, leaf
    for hash_ in path:
        if last == 0:
            return None
        if index & 1 or index == last:
            root = node_hash(hash_, root)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            root = node_hash(root, hash_)
        index, last = index >> 1, last >> 1
    return root if last == 0 else None
