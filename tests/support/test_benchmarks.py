"""`make bench`: if one benchmark cannot run, or fails, the others still run."""

from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.__main__ import measured
from benchmarks.figures import Figure, show
from tests.support.tools import cached

GOOD = Figure("creates", "topics/s", 1234.5, 567.8, "1,000", "twice as fast", 12.3, 45.6)


def _of_no_kafka(with_kafka: bool) -> Sequence[Figure]:
    cached("no-such-jars")
    return [GOOD]


def _of_no_package(with_kafka: bool) -> Sequence[Figure]:
    raise ModuleNotFoundError("No module named 'pyspark'")


def _failing(with_kafka: bool) -> Sequence[Figure]:
    raise AssertionError("3 violations\nin a generated log")


def test_benchmarks_with_missing_tools_are_reported_and_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_VERSION")
    (line,), good = measured("stream", _of_no_kafka, True)
    assert good
    assert line.topicwright is None
    assert (line.work, line.note) == ("stream", "not measured: no-such-jars is not here: run `make tools`")
    (line,), good = measured("replay", _of_no_package, True)
    assert good
    assert line.note == "not measured: No module named 'pyspark'"


def test_a_failed_benchmark_is_reported_and_fails_the_run() -> None:
    (line,), good = measured("replay", _failing, True)
    assert (good, line.note) == (False, "failed: 3 violations in a generated log")


def test_benchmark_results_are_printed_as_table_and_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show([GOOD], as_json=False)
    header, row = capfdbinary.readouterr().out.decode().splitlines()
    assert row.split() == ["creates", "topics/s", "1,234", "568", "12.3", "45.6", "1,000", "twice", "as", "fast"]
    assert [row.index(cell) for cell in ("1,234", "568", "12.3", "45.6")] == [
        header.index(name) for name in ("Topicwright", "Kafka", "core us", "Kafka's")
    ], "numbers are not aligned with their headers"
    show([GOOD], as_json=True)
    assert msgspec.json.decode(capfdbinary.readouterr().out, type=list[Figure]) == [GOOD]
