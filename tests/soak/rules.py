"""Limits of resource use; a soak that exceeds one fails.

Memory is checked per process and only in the second half of its lifetime, because the first half fills caches. It may
grow by `GROWTH_MIB_MINUTE`: a thousand events take 0.5 MiB until RocksDB flushes its buffer to a file. Faster growth
must slow down: the slope of the last quarter is at most half of that of the quarter before. Processes that ran for less
than `JUDGED_S` are not checked for growth. No process may ever exceed `RSS_MIB_MAX`.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from events.logs.archive.archive import INDEXES_KEPT
from tests.soak.figures import Disk, Sample, between, median

DESCRIPTORS_MORE: Final = 40 + INDEXES_KEPT
"""RocksDB keeps a varying number of files open, librdkafka a connection to each broker, and an archive's reader up to
`INDEXES_KEPT` indexes."""
THREADS_MORE: Final = 8
RSS_MIB_MAX: Final = 700.0
GROWTH_MIB_MINUTE: Final = 1.5
JUDGED_S: Final = 600.0
POINTS: Final = 60


def too_many(name: str, first: Sequence[Sample], last: Sequence[Sample]) -> list[str]:
    """Violations if descriptors or threads of a node grew too much from the first calm minute to the last."""
    found = []
    for what, allowed in (("descriptors", DESCRIPTORS_MORE), ("threads", THREADS_MORE)):
        before, after = (median(getattr(each, what) for each in span) for span in (first, last))
        if after > before + allowed:
            found.append(f"{name}: {after:.0f} {what}, {before:.0f} at the start; {allowed} more are allowed")
    return found


def slope(samples: Sequence[Sample]) -> float:
    """Growth in MiB per minute: the median slope between all pairs (Theil–Sen), which is robust against peaks."""
    points = samples[:: max(1, len(samples) // POINTS)]
    return 60 * median((b.rss_mib - a.rss_mib) / (b.at_s - a.at_s) for a, b in combinations(points, 2))


def grows(name: str, samples: Sequence[Sample]) -> list[str]:
    """Violations of the memory limits by a node's processes; `samples` has those of all of them, ordered by time."""
    found = []
    for pid in dict.fromkeys(each.pid for each in samples):
        own = [each for each in samples if each.pid == pid]
        highest = max(each.rss_mib for each in own)
        if highest > RSS_MIB_MAX:
            found.append(f"{name}: a process of {highest:.0f} MiB; {RSS_MIB_MAX:.0f} are allowed")
        begin_s, end_s = own[0].at_s, own[-1].at_s
        if end_s - begin_s < JUDGED_S:
            continue
        quarter_s = (end_s - begin_s) / 4
        half = between(own, begin_s + 2 * quarter_s, end_s)
        third, last = (between(own, begin_s + n * quarter_s, begin_s + (n + 1) * quarter_s) for n in (2, 3))
        all_of_it = slope(half)
        if all_of_it > GROWTH_MIB_MINUTE and slope(last) > slope(third) / 2:
            found.append(
                f"{name}: memory grows by {all_of_it:.1f} MiB a minute in the second half of a process's "
                f"{(end_s - begin_s) / 60:.0f} minutes, and no slower at its end "
                f"({slope(third):.1f}, then {slope(last):.1f})"
            )
    return found


def too_large(name: str, disks: Sequence[Disk], limits: Mapping[str, float]) -> list[str]:
    """Violations if parts of a node's folder ever exceeded their limits. `limits` maps a direct entry of the folder to
    MiB; "" is the whole folder."""
    found = []
    for part, limit in limits.items():
        highest = max((each.parts.get(part, 0.0) if part else each.mib for each in disks), default=0.0)
        if highest > limit:
            found.append(f"{name}: {part or 'its folder'} took {highest:.1f} MiB; {limit:.1f} are allowed")
    return found
