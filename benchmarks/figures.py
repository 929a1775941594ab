"""Figures of a benchmark, printed as a table or as JSON."""

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured value, with Kafka's (None without one) and the goal (`reach`).

    `core_us` is the processor time of all processes of the server, user and system together, for one counted unit
    (a create, a topic, an event, a command, a start), which a busy machine changes least. `kafka_core_us` is Kafka's.
    """

    work: str
    unit: str
    topicwright: float | None
    kafka: float | None = None
    reach: str = ""
    note: str = ""
    core_us: float | None = None
    kafka_core_us: float | None = None


def percentile(values: Sequence[float], part: float) -> float:
    """The value that a fraction `part` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def show(figures: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(figures) + b"\n")
        return
    rows = [("work", "unit", "Topicwright", "Kafka", "core us", "Kafka's", "reach", "note")]
    for f in figures:
        numbers = map(_number, (f.topicwright, f.kafka, f.core_us, f.kafka_core_us))
        rows.append((f.work, f.unit, *numbers, f.reach, f.note))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def command_line(run: Callable[..., Sequence[Figure]], about: str | None) -> None:
    """Run a benchmark with a flag for each parameter of `run`, and print its figures. `--without-X` passes False for a
    parameter `with_X`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    for name, default in ((name, one.default) for name, one in inspect.signature(run).parameters.items()):
        if isinstance(default, bool):
            flag, action = name.replace("with_", "without_"), f"store_{not default}".lower()
            parser.add_argument(f"--{flag.replace('_', '-')}", action=action, dest=name)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default, help="default %(default)s")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    show(run(**options), as_json)
