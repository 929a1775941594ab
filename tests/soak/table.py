"""The output of a soak: a line a minute, and a table at the end."""

from collections.abc import Iterable, Mapping, Sequence

from tests.soak.figures import MINUTE_S, Figures, Sample, between, hundredths, median
from tests.soak.load import Load
from tests.soak.misfortunes import Misfortunes
from tests.soak.rules import slope
from tests.soak.stage import Stage

_Took = Iterable[tuple[float, float]]


def minute(figures: Figures, misfortunes: Misfortunes, load: Load, gauges: Mapping[str, float]) -> str:
    """The status line of a minute."""
    now_s = figures.now_s()
    since_s = figures.began_s + now_s - MINUTE_S
    rss = ", ".join(f"{node.name} {_newest(figures.samples[node.name])}" for node in load.stage.ours)
    creates = [took for one in load.changes.values() for took in one.creates]
    reads = [took for one in load.readers.values() for took in one.took]
    log = ", ".join(f"{name.split('_')[1]} {value:.0f}" for name, value in sorted(gauges.items()))
    return (
        f"{now_s / 60:5.1f} min: {misfortunes.counts.total()} faults; creates {_ms(creates, since_s)}; "
        f"reads {_ms(reads, since_s)}; {load.churn.count} records acknowledged; {rss}; log: {log or 'not now'}"
    )


def table(made: Stage, figures: Figures, misfortunes: Misfortunes, load: Load, calm_s: float, ended_s: float) -> str:
    """All measurements, at the start and at the end."""
    lines = ["process | RSS MiB | descriptors | threads | disk MiB | highest RSS | MiB a minute, second half"]
    for node in made.nodes:
        samples = between(figures.samples[node.name], 0, ended_s)
        first, last = between(samples, 0, calm_s), between(samples, ended_s - calm_s, ended_s)
        cells = [
            f"{median(getattr(s, what) for s in first):.0f} → {median(getattr(s, what) for s in last):.0f}"
            for what in ("rss_mib", "descriptors", "threads")
        ]
        disks = [each.mib for each in figures.disks[node.name]]
        own = [each for each in samples if each.pid == samples[-1].pid] if samples else []
        half = own[len(own) // 2 :]
        grown = f"{slope(half):+.2f} of {len(own) and (own[-1].at_s - own[0].at_s) / 60:.1f} min"
        disk = f"{disks[0]:.1f} → {disks[-1]:.1f}" if disks else "-"
        highest = max((each.rss_mib for each in samples), default=0.0)
        lines.append(" | ".join([node.name, *cells, disk, f"{highest:.0f}", grown]))
    begin_s, end_s = figures.began_s, figures.began_s + ended_s
    for what, took in (
        *((f"creates by {kind}", one.creates) for kind, one in load.changes.items()),
        *((f"reads of {name}", one.took) for name, one in load.readers.items()),
    ):
        start = [each for each in took if each[0] < begin_s + calm_s]
        end = [each for each in took if end_s - calm_s <= each[0] <= end_s]
        lines.append(f"{what}: {_ms(start)} at the start, {_ms(end)} at the end, {_ms(took)} in all")
    counts = ", ".join(f"{count} {what}" for what, count in sorted(misfortunes.counts.items()))
    well = misfortunes.well_s
    lines.append(
        f"faults: {counts}; well again after {median(well):.1f} s (median), {max(well, default=0):.1f} s (longest)"
    )
    for kind, one in load.changes.items():
        lines.append(f"{one.name}: {one.report.answers} answers, {one.report.again} requests sent again ({kind})")
    for name, reader in load.readers.items():
        follower = load.followers[name]
        lines.append(
            f"{name}: {len(reader.took)} reads, {reader.past} of an offset; {follower.reached} events followed, "
            f"the stream begun {follower.again} times"
        )
    lines.append(
        f"{load.churn.count} records acknowledged, {sum(map(len, load.reading.read.values()))} read by the group, "
        f"which stood still {len(load.standstills.excused)} times by a known fault of its client"
    )
    lines += load.standstills.excused
    return "\n".join(lines)


def _newest(samples: Sequence[Sample]) -> str:
    return f"{samples[-1].rss_mib:.0f} MiB" if samples else "-"


def _ms(took: _Took, since_s: float = 0.0) -> str:
    seconds = [each for began, each in took if began >= since_s]
    return f"{len(seconds)} × {1000 * median(seconds):.0f}/{1000 * hundredths(seconds, 99):.0f} ms"
