"""Parses invariants from a file of SQL, and finds the rows that violate them.

An invariant is one or more queries whose rows are violations. A query has the columns `seen` and `expected`, and may
have `log_partition`, `offset` and `topic`. The comment before the query has the name of the invariant, a colon and the
requirement; more lines explain it. invariants.sql has the built-in invariants; users write files of the same form.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import duckdb
import msgspec

from projections.replay.checks.history import OF_THE_LOG, create_views, history_of, statements, text_of, views
from projections.replay.log.columns import COLUMNS as EVENT_COLUMNS
from projections.replay.log.columns import arrow_schema
from projections.replay.outcome import ReplayError

COLUMNS = ("log_partition", "shard", "offset", "topic", "check", "seen", "expected")
"""The columns of a violation. `topic` is null if no single topic is concerned."""
_HEADING = re.compile(r"([a-z][a-z0-9-]*): (.+)")
_VIOLATIONS = """
with broken as (
  select null::int as log_partition, null::bigint as "offset", null::varchar as topic, null::varchar as seen,
         null::varchar as expected
  where false
  union all by name
  ({query}))
select coalesce(log_partition, 0) as log_partition, coalesce(replace(topic, '.', '_'), '') as shard,
       "offset"::bigint as "offset", topic, ? as "check", seen, expected, count(*) over () as of_query
from broken where {wanted} order by log_partition, "offset", seen {limit}
"""


class Invariant(NamedTuple):
    """A rule: its name, its requirement in one sentence, an explanation, and the queries for violations."""

    name: str
    demand: str
    about: str
    queries: tuple[str, ...]


class Found(NamedTuple):
    """The number of violations of an invariant, and the first ones in log order."""

    check: str
    times: int
    violations: tuple[Mapping[str, Any], ...]


@cache
def invariants() -> tuple[Invariant, ...]:
    """The built-in invariants."""
    return parsed(text_of("invariants.sql"))


def read_invariants(file: Path) -> tuple[Invariant, ...]:
    """The invariants in a user's file. Raises ReplayError if the file cannot be read, is not SQL, or has a query
    without a name."""
    try:
        found = parsed(file.read_text())
    except (OSError, UnicodeDecodeError, ReplayError) as error:
        raise ReplayError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise ReplayError(f"{file} has no check: write `-- NAME: REQUIREMENT`, and a SELECT whose rows are violations")
    return found


def parsed(text: str) -> tuple[Invariant, ...]:
    """The invariants in a text. Raises ReplayError."""
    found: list[Invariant] = []
    for comment, query, is_query in statements(text):
        if not is_query:
            raise ReplayError(f"{query.splitlines()[0]!r} is no query: a check is a SELECT, whose rows are violations")
        paragraph = comment.split("\n\n")[-1]
        heading, _, about = paragraph.partition("\n")
        named = _HEADING.fullmatch(heading)
        if named:
            found.append(Invariant(named[1], named[2], about, (query,)))
        elif found and not comment:
            found[-1] = found[-1]._replace(queries=(*found[-1].queries, query))
        else:
            raise ReplayError(
                f"the query {query.splitlines()[0]!r} has no name: write the comment `-- NAME: REQUIREMENT` before it"
            )
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ReplayError(f"duplicate invariant names: {', '.join(twice)}")
    return tuple(found)


def is_of_the_log(query: str) -> bool:
    """True if a query reads only views that need the whole log (OF_THE_LOG)."""
    return _tables(_parsed(query)) <= {*OF_THE_LOG}


def across_topics(query: str) -> str:
    """The part of a query that may compare different topics, so that it needs the topics of the whole log; "" if there
    is none. The views OF_THE_LOG are whole in every task."""
    known = duckdb.execute("select function_name from duckdb_functions() where function_type = 'aggregate'")
    aggregates = {name for (name,) in known.fetchall()}
    for node in _nodes(_parsed(query), whole={*OF_THE_LOG}):
        if node.get("class") == "WINDOW" and not _by_topic(node["partitions"]):
            return "a window that is not partitioned by topic"
        if (
            node.get("class") == "SUBQUERY"
            and not _tables(node["subquery"]) <= {*OF_THE_LOG}
            and not _by_topic((node["child"], _clauses(node["subquery"], "where_clause")))
        ):
            return "a subquery that is not on topic"
        if (
            node.get("type") == "JOIN"
            and not any(_tables(node[side]) <= {*OF_THE_LOG} for side in ("left", "right"))
            and not _by_topic(node["condition"], node["using_columns"])
        ):
            return "a join that is not on topic"
        if node.get("type") == "LIMIT_MODIFIER":
            return "a limit"
        if node.get("setop_type") in ("EXCEPT", "INTERSECT") and not _by_topic(_clauses(node, "select_list")):
            return "a comparison of rows without their topic"
        if node.get("type") == "SELECT_NODE":
            columns, keys = [node["select_list"], node["having"]], node["group_expressions"]
            functions = [one["function_name"] for one in _nodes(columns) if one.get("class") == "FUNCTION"]
            if node["aggregate_handling"] != "STANDARD_HANDLING":
                keys = columns  # group by all
            if (keys or not aggregates.isdisjoint(functions)) and not _by_topic(keys):
                return "an aggregate that is not grouped by topic"
    return ""


def _parsed(query: str) -> Any:
    ((text,),) = duckdb.execute("select json_serialize_sql(?)", [query]).fetchall()
    return msgspec.json.decode(text)


def _nodes(tree: Any, whole: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The nodes of a query that DuckDB has parsed, without queries that read only the views `whole`."""
    if isinstance(tree, dict):
        if whole and tree.get("type") == "SELECT_NODE" and _tables(tree) <= {*whole}:
            return
        yield tree
    for one in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ():
        yield from _nodes(one, whole)


def _tables(tree: Any) -> set[str]:
    return {node["table_name"] for node in _nodes(tree) if node.get("type") == "BASE_TABLE"}


def _clauses(tree: Any, name: str) -> list[Any]:
    return [node[name] for node in _nodes(tree) if node.get("type") == "SELECT_NODE"]


def _by_topic(tree: Any, using: Sequence[str] = ()) -> bool:
    names = [name for node in _nodes(tree) for name in node.get("column_names", ())]
    return any(name in ("topic", "shard") for name in (*names, *using))


def check_queries(own: Iterable[Invariant], in_buckets: bool) -> None:
    """Raise ReplayError, before any event is read, for a query that DuckDB rejects, and with `in_buckets` for one that
    needs the topics of the whole log."""
    with history_of([], arrow_schema(tuple(EVENT_COLUMNS))) as history:
        create_views(history)
        for one in own:
            for query in one.queries:
                try:
                    columns = [column[0] for column in history.execute(query).description or ()]
                except duckdb.Error as error:
                    raise ReplayError(f"{one.name}: {error}") from None
                missing = [name for name in ("seen", "expected") if name not in columns]
                if missing:
                    raise ReplayError(f"{one.name} has no column {missing[0]}: a violation has `seen` and `expected`")
                across = across_topics(query) if in_buckets else ""
                if across:
                    raise ReplayError(
                        f"{one.name} has {across}, but with Spark each task has only some of the topics: "
                        "run it with --local, or as `topicwright replay sql`"
                    )


def violations(
    history: duckdb.DuckDBPyConnection,
    rules: Iterable[Invariant],
    limit: int | None = None,
    starts: Mapping[int, int] | None = None,
) -> Iterator[dict[str, Any]]:
    """The violations in a history, at most `limit` a query (None: all); those at lower offsets than `starts`, by log
    partition, only if the end of the log violates the invariant. Raises ReplayError for a query that fails.

    `times` has the number of a query's violations in its first row, and 0 in the others. `at_end` is true if only the
    end of the log violates the invariant, so that later events may resolve it.
    """
    ends = ", ".join(f"{one}: {start}" for one, start in (starts or {}).items())
    later = f'coalesce("offset" >= map {{{ends}}}[log_partition], true)' if starts else "true"
    for rule in rules:
        for query in rule.queries:
            at_end = "last_partitions" in query
            bounded, wanted = "" if limit is None else f"limit {limit}", "true" if at_end else later
            try:
                rows = history.execute(_VIOLATIONS.format(query=query, wanted=wanted, limit=bounded), [rule.name])
                for number, (*row, times) in enumerate(rows.fetchall()):
                    about = {"times": 0 if number else times, "at_end": at_end}
                    yield {**dict(zip(COLUMNS, row, strict=True)), **about}
            except duckdb.Error as error:
                raise ReplayError(f"{rule.name}: {error}") from None


def together(rows: Iterable[Mapping[str, Any]], rules: Sequence[Invariant], limit: int | None) -> list[Found]:
    """The broken invariants in the order of `rules`, merged from the violations of each bucket."""
    by_check: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_check.setdefault(row["check"], []).append(row)
    found = []
    for rule in rules:
        if rule.name in by_check:
            some = sorted(by_check[rule.name], key=lambda row: (row["log_partition"], row["offset"] or 0, row["seen"]))
            first = some if limit is None else some[: max(1, limit)]
            kept = tuple({name: row[name] for name in COLUMNS} for row in first)
            found.append(Found(rule.name, sum(row["times"] for row in some), kept))
    return found


_WIDTH = 120


def page() -> str:
    """The text of docs/invariants.md."""
    text = text_of("invariants.md")
    return text.replace("{invariants}", "\n".join(_invariants())).replace("{views}", "\n".join(_views()))


def _invariants() -> Iterator[str]:
    yield "|check|requirement|"
    yield "|---|---|"
    for one in invariants():
        about = " ".join(one.about.split())
        yield f"|`{one.name}`|{one.demand[0].upper()}{one.demand[1:]}. {about}".rstrip() + "|"


def _views() -> Iterator[str]:
    for view in views():
        name, _, about = view.about.split("\n\n")[-1].partition(": ")
        if name == view.name:
            row = " ".join(about.split()).removeprefix("a row is ").split(". ")[0].rstrip(".")
            yield fill(f"- `{name}`: {row}.", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    print(page(), end="")
