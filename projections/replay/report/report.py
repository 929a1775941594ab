"""Writes a report: `topicwright replay report LOG --output FILE.html`, one HTML page without outside resources.

`queries` computes the numbers, `data` has their types, `figures` draws them, and `page` lays them out. Spark is not
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from projections.replay.errors import ReplayError
from projections.replay.log.log_ref import Ref, as_of, offsets_row
from projections.replay.outcome import Options, Outcome
from projections.replay.report.data import OUTCOMES, Report
from projections.replay.report.page import page
from projections.replay.report.queries import gather

DEFAULT_OUTPUT = "topicwright-report.html"


def check_report(ref: Ref, options: Options) -> None:
    """Check that the page can be written. Raises ReplayError."""
    output = _place(options)
    if not output.parent.is_dir() or output.is_dir():
        raise ReplayError(f"--output {output} cannot be written: name a file in an existing folder")


def _place(options: Options) -> Path:
    return Path(options.output or DEFAULT_OUTPUT).absolute()


def run_report(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay report`: write the report up to `options.at` to `options.output`; found if an invariant
    is broken. Raises ReplayError, for an output that cannot be written before any work."""
    check_report(ref, options)
    output = _place(options)
    report = gather(ref, options.at)
    _write(output, page(report))
    broken = [check.name for check in report.checks if check.violations]
    row = {
        "output": str(output),
        **offsets_row(report.ends),
        "outcomes": {name: report.requests(name) for name in OUTCOMES},
        "violations": {check.name: check.violations for check in report.checks if check.violations},
    }
    return Outcome(rows=[row], found=bool(broken), lines=list(_lines(report, broken, output)))


def _write(output: Path, text: str) -> None:
    """Write the page to a new file and rename it, so that a full disk leaves no partial page. Raises ReplayError."""
    new = output.with_name(f".{output.name}.new")
    try:
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(output)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ReplayError(f"--output {output} cannot be written: {error.strerror or error}") from error


def _lines(report: Report, broken: list[str], output: Path) -> Iterator[str]:
    yield f"{output} shows {report.log} up to {as_of(report.ends)}"
    yield f"  invariants broken: {', '.join(broken)}" if broken else f"  all {len(report.checks)} invariants hold"
