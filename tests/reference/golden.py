"""Responses of a real Kafka 4.4, in `tests/golden`: to the differential table, as readable text; about permissions and
configs of brokers, as JSON; and the metadata log of a new cluster of three brokers.

`python -m tests.reference.golden` sends all requests to real Kafkas again and rewrites the files.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.reference.cases import Case, Row, in_version
from tests.reference.table import CASES, KAFKA_IS_SILENT, Answers, send_all
from tests.support.reference_kafka import reference_kafka
from tests.support.tools import ROOT

FILE = ROOT / "tests/golden/kafka-4.4-answers.txt"
_MORE = ROOT / "tests/golden/kafka-4.4-more-answers.json"
METADATA_LOG = ROOT / "tests/golden/kafka-4.4-metadata.log"
_TITLE = """\
What Apache Kafka 4.4.0 answered to the differential table (tests/reference). Written by tests/reference/golden.py.
Three nodes with racks rack-a to rack-c, num.partitions=2, default.replication.factor=1, auto.create.topics.enable=true
(false on node 3), and the policy of tests/reference/policies.py. {t} is a name of the case's own.

API: case [versions]
  ask  the request's body
  subject | error | message | facts; a fact may stand on a line of its own; `after` tells the topic afterwards;
  `v5+` stands before a fact that only these versions of the API can tell
"""
_LINE_MAX = 150


def render(answers: Answers, cases: Iterable[Case] = CASES) -> str:
    """Returns the text of the golden file."""
    return _TITLE + "".join(line + "\n" for case in cases for line in _case_lines(case, answers))


def parse(text: str) -> Answers:
    """Parses a golden file; the inverse of `render`."""
    answers: dict[tuple[str, int], tuple[Row, ...]] = {}
    for block in text.split("\n\n")[2:]:
        head, _, *rest = block.strip("\n").split("\n")
        found = re.fullmatch(r"(.*) \[v(\d+)(?:-(\d+))?\]", head)
        assert found, head
        rows = tuple(_parse_rows(rest))
        for version in range(int(found[2]), int(found[3] or found[2]) + 1):
            answers[found[1], version] = tuple(in_version(row, version) for row in rows)
    return answers


def _case_lines(case: Case, answers: Answers) -> Iterator[str]:
    pending = [(version, answers[case.id, version]) for version in case.versions]
    while pending:
        size = max(size for size in range(1, len(pending) + 1) if _merge(pending[:size]) is not None)
        first, last = pending[0][0], pending[size - 1][0]
        yield ""
        yield f"{case.id} [v{first}]" if first == last else f"{case.id} [v{first}-{last}]"
        yield f"  ask  {_request(case)}"
        yield from (line for row in _merge(pending[:size]) or () for line in _row_lines(row))
        pending = pending[size:]


def _merge(answers: list[tuple[int, tuple[Row, ...]]]) -> tuple[Row, ...] | None:
    """Merges the responses of several versions into one, or returns None if they differ by more than added facts.

    A fact that only newer versions have is marked with the first of them: `v5+ partitions=1`.
    """
    last = answers[-1][1]
    heads = {tuple((row.subject, row.code, row.message) for row in rows) for _, rows in answers}
    if len(heads) > 1:
        return None
    merged = []
    for index, row in enumerate(last):
        facts = []
        for fact in row.facts:
            since = next(version for version, rows in answers if fact in rows[index].facts)
            facts.append(fact if since == answers[0][0] else f"v{since}+ {fact}")
        merged.append(Row(row.subject, row.code, row.message, tuple(facts)))
    faithful = all(tuple(in_version(row, version) for row in merged) == rows for version, rows in answers)
    return tuple(merged) if faithful else None


def _request(case: Case) -> str:
    body = json.dumps(case.body, ensure_ascii=True)
    before = f"  given {', '.join(each['name'] for each in case.before)}" if case.before else ""
    return body + before + ("" if case.node == 1 else f"  of node {case.node}")


def _row_lines(row: Row) -> Iterator[str]:
    line = f"  {json.dumps(row.subject)} | {row.code} | {json.dumps(row.message)}"
    joined = "; ".join(row.facts)
    if len(line) + len(joined) <= _LINE_MAX:
        yield f"{line} | {joined}".rstrip(" |") if not joined else f"{line} | {joined}"
        return
    yield line
    yield from (f"      {fact}" for fact in row.facts)


def _parse_rows(lines: Iterable[str]) -> Iterator[Row]:
    pending: list[str] = []
    for line in [*lines, "  "]:
        if line.startswith("      "):
            pending.append(line)
            continue
        if pending:
            yield _parse_row(pending[0], tuple(each[6:] for each in pending[1:]))
        pending = [line]


def _parse_row(line: str, facts: tuple[str, ...]) -> Row:
    found = re.fullmatch(r'  ("(?:[^"\\]|\\.)*") \| (\w+) \| (null|"(?:[^"\\]|\\.)*")(?: \| (.*))?', line)
    assert found, line
    inline = tuple(found[4].split("; ")) if found[4] else ()
    return Row(json.loads(found[1]), found[2], json.loads(found[3]), inline + facts)


def recorded(name: str) -> Any:
    """Returns the stored responses for another test of this folder."""
    return json.loads(_MORE.read_text(encoding="utf-8"))[name]


def main() -> int:
    """Send everything to real Kafkas and rewrite the files."""
    from tests.reference import test_access_table, test_broker_configs, test_fenced_broker

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with reference_kafka(folder / "table") as kafka:
            METADATA_LOG.write_bytes(_whole_batches((kafka.metadata / f"{0:020d}.log").read_bytes()))
            answers = send_all(kafka.brokers, silent=KAFKA_IS_SILENT)
        with reference_kafka(folder / "down") as kafka:  # some of the table's topics prevent a broker stop
            answers = {**answers, **test_fenced_broker.answers_of_kafka(kafka)}
        more = {
            "permissions": test_access_table.answers_of_kafka(folder / "access"),
            "configs of brokers": test_broker_configs.answers_of_kafka(folder / "configs"),
        }
    FILE.write_text(render(answers, (*CASES, *test_fenced_broker.CASES)), encoding="utf-8")
    _MORE.write_text(json.dumps(more, indent=0) + "\n", encoding="utf-8")
    return 0


def _whole_batches(data: bytes) -> bytes:
    """The complete batches of a log whose writer still runs and has preallocated space."""
    end = 0
    while end + 12 <= len(data) and (length := int.from_bytes(data[end + 8 : end + 12], "big")):
        if end + 12 + length > len(data):
            break
        end += 12 + length
    return data[:end]


if __name__ == "__main__":
    sys.exit(main())
