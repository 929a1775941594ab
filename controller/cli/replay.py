"""`topicwright replay`: rebuild, check and query the topics of a log as of any offset, with Spark or in this process.

Each sub-command is a module of `projections.replay`. This module parses the arguments, starts Spark, prints the outcome
and returns the exit code. Spark is loaded only when a sub-command runs with it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.cli.arguments import AGO, DONE, NEGATIVE, count, key_value, point_in_time
from controller.cli.commands import Parsers, add, add_action, add_actions, add_command
from controller.cli.output import Style, add_output, show
from events.errors import MissingExtra
from projections.replay.outcome import ReplayError, message_of

if TYPE_CHECKING:
    from projections.replay.log.log_ref import Ref
    from projections.replay.outcome import Options, Outcome
    from projections.replay.runner import Runner

INTERRUPTED = 130
FORMATS = ("table", "wide", "json", "yaml")
LIMIT = 20
SMALL_EVENTS = 2_000_000
"""For fewer events, `--local` on one core is faster than Spark on two cores, because Spark takes 9 s to start."""
MASTERS = "local, local[N], local[*], spark://HOST:PORT, sc://HOST:PORT, yarn or k8s://URL"
_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|yarn|(spark|sc|k8s)://\S+")

_Parser = argparse.ArgumentParser
_Run = Callable[["Runner", "Ref", "Options"], "Outcome"]


class _Command(NamedTuple):
    """A sub-command: its module in `projections.replay`, and its purpose."""

    module: str
    help: str
    spark: bool = True
    """True if Spark runs the sub-command, unless --local is given."""
    formats: tuple[str, ...] = FORMATS
    has_at: bool = True


COMMANDS: Final[Mapping[str, _Command]] = {
    "rebuild": _Command("rebuild.rebuild", "rebuild topics as of any offset or time from the events"),
    "compare": _Command(
        "rebuild.compare", "compare the live state with the state rebuilt from the events", has_at=False
    ),
    "invariants": _Command("checks.invariants", "check the log against the invariants, and your own"),
    "watch": _Command(
        "watch", "check the invariants while events are written, until interrupted", False, ("table", "json"), False
    ),
    "redecide": _Command("redecide.redecide", "decide every past request again, and compare the events byte for byte"),
    "backtest": _Command("redecide.backtest", "find requests that other policies or settings change"),
    "sql": _Command("checks.sql", "run an SQL query on the history", spark=False),
    "shell": _Command("checks.sql", "run SQL queries as you type them", spark=False, formats=("table",)),
    "views": _Command("checks.sql", "write the views of docs/invariants.md as Parquet, for other engines"),
    "export": _Command("export", "write the events to Parquet, or add the new ones"),
    "report": _Command("report", "write an HTML page about the history", spark=False),
}


def register(commands: Parsers) -> None:
    actions = add_actions(add_command(commands, "replay"), "WHAT")
    parsers = {name: add_action(actions, name, command.help) for name, command in COMMANDS.items()}
    for parser in parsers.values():
        add(parser, "log LOG", "data folder of a service, running or not, or a copy of it; or kafka://HOST:PORT/TOPIC")
        what = "for a log in Kafka: file with librdkafka properties, one KEY=VALUE per line"
        add(parser, "--kafka-properties FILE", what, Path)
    _add_own(parsers)
    for name, command in COMMANDS.items():
        _add_common(parsers[name], name, command)


def _add_own(parsers: Mapping[str, _Parser]) -> None:
    """Add the arguments that only some sub-commands have."""
    add(parsers["rebuild"], "--to DIR", "folder to write the rows to, as Parquet; default: print them")
    add(parsers["compare"], "--data DIR", "for a log in Kafka: the data folder of a gateway or worker")
    for name in ("rebuild", "compare"):
        add(parsers[name], "--from-scratch", "do not start from a snapshot of topics, but from the first event")
    what = "check these too: queries whose rows are violations, each after a comment `-- NAME: REQUIREMENT`"
    add(parsers["invariants"], "--checks FILE.sql", what, Path)
    what = "let the recorded Python policies judge again, if their source is the recorded one"
    add(parsers["redecide"], "--policies", what, dest="recorded_policies")
    of_policies, of_rules = "create.topic.policy.class.name", "topic.rules.file"
    backtest = parsers["backtest"]
    add(backtest, "--policy CLASS", "policies to try", lambda text: (of_policies, text), repeated=True, dest="set")
    add(backtest, "--set KEY=VALUE", "setting to try; may be repeated", key_value, repeated=True)
    add(backtest, "--rules FILE", "rules to try", lambda text: (of_rules, text), repeated=True, dest="set")
    add(parsers["sql"], "subject QUERY", "SQL, on `events` and the views of docs/invariants.md")
    add(parsers["sql"], "--to FILE", "file to write the rows to: .parquet, .csv or .json")
    add(parsers["views"], "--to DIR", "new folder; each view gets a folder in it", required=True)
    what = "read the Parquet export in this folder or object store (see `replay export`), after adding the new events"
    for name in ("invariants", "sql", "shell", "views"):
        add(parsers[name], "--export DIR", what)
    add(parsers["export"], "--to DIR", "folder or URL; an export is updated", dest="export", required=True)
    add(parsers["report"], "--to FILE", "page to write; default topicwright-report.html")


def _add_common(parser: _Parser, name: str, command: _Command) -> None:
    if command.has_at:
        what = f"read the log up to an offset, an ISO-8601 time, {AGO}; default: to its end"
        add(parser, "--at OFFSET|TIME", what, point_in_time)
    parser.set_defaults(limit=LIMIT)
    add_output(parser, command.formats)
    parser.set_defaults(func=lambda options: _run(name, command, options))
    if not command.spark:
        return
    add(parser, "--limit N", f"maximum number of rows to print; default {LIMIT}", count)
    spark = parser.add_argument_group("Spark")
    what = f"run on one core of this process, without Spark: faster for up to about {SMALL_EVENTS:,} events"
    add(spark, "--local", what)
    add(spark, "--master URL", "spark://HOST:PORT or sc://HOST:PORT; default local[*]", _master)
    add(spark, "--conf KEY=VALUE", "a Spark setting; may be repeated", key_value, repeated=True)
    add(spark, "--spark-log", "show Spark's own log, as SPARK_CONF_DIR/log4j2.properties configures it")


# --- running


def _run(name: str, command: _Command, arguments: argparse.Namespace) -> int:
    def lines(style: Style) -> Iterator[str]:
        if outcome.table is not None:
            yield from style.table(outcome.table.header, outcome.table.rows)
            yield ""
        yield from outcome.lines

    try:
        outcome = _outcome(name, command, arguments)
        show(arguments, {"found": outcome.found, **outcome.about, "rows": outcome.rows}, lines, tuple)
        return NEGATIVE if outcome.found else DONE
    except KeyboardInterrupt:
        return INTERRUPTED


def _outcome(name: str, command: _Command, arguments: argparse.Namespace) -> Outcome:
    """Run a sub-command. Raises UserError and OSError."""
    on_spark = command.spark and not arguments.local
    if not on_spark:
        _load_arrow_alone()
    from projections.replay.log.log_ref import archived, ends_of, open_ref

    ref, options = open_ref(arguments.log, _kafka_properties(arguments)), _options(arguments)
    ends_of(ref, options.at)  # before Spark starts, like `check` below: it raises for a point in time after the end
    try:
        module = import_module(f"projections.replay.{command.module}")
    except ImportError as error:
        raise MissingExtra(f"replay {name}", "report", error) from error
    check: Callable[[Ref, Options], None] | None = getattr(module, f"check_{name}", None)
    if check is not None:
        check(ref, options)
    from_archive = archived(ref)
    if from_archive is not None:
        print(from_archive, file=sys.stderr)
    run: _Run = getattr(module, f"run_{name}")
    if not on_spark:
        from projections.replay.runner import InProcess

        given = [flag for flag in ("master", "conf", "spark_log") if getattr(arguments, flag, None)]
        if given:
            raise ReplayError(f"--{given[0].replace('_', '-')} configures Spark, which --local does not use")
        return run(InProcess(), ref, options)
    events = sum(ends_of(ref, options.at).values())
    if events <= SMALL_EVENTS and sys.stderr.isatty():
        print(f"{events:,} events: starting Spark; --local, without Spark, would be faster", file=sys.stderr)
    with _spark(arguments) as runner:
        return run(runner, ref, options)


class _Hidden:
    """Hides numpy and pandas, which pyarrow imports if it can, and which take 0.4 s."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in ("numpy", "pandas"):
            raise ModuleNotFoundError(name=name)


def _load_arrow_alone() -> None:
    sys.meta_path.insert(0, _Hidden)
    import pyarrow._compute  # looks for numpy too, when something needs it

    pyarrow.array([])  # looks for pandas
    sys.meta_path.remove(_Hidden)


def _kafka_properties(arguments: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    from controller.settings.properties import read_values
    from projections.replay.log.kafka_ref import KAFKA

    if arguments.kafka_properties is None:
        return ()
    if not arguments.log.startswith(KAFKA):
        raise ReplayError(f"--kafka-properties is for a log in Kafka, which {arguments.log} is not")
    path = arguments.kafka_properties
    return tuple(read_values(path, f"--kafka-properties {path}").items())


@contextmanager
def _spark(arguments: argparse.Namespace) -> Iterator[Runner]:
    """A Spark session that is stopped at the end. Raises ReplayError for Spark's errors."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from projections.replay.spark.session import OnSpark, spark_session
    except ImportError as error:
        raise MissingExtra("replay without --local", "spark", error, "add --local, or ") from error
    session = spark_session(arguments.master, arguments.spark_log, dict(arguments.conf))
    try:
        yield OnSpark(session)
    except (PySparkException, Py4JError) as error:
        raise ReplayError(message_of(error)) from error
    finally:
        with suppress(Py4JError, OSError):  # Java may have been stopped too
            session.stop()


def _options(arguments: argparse.Namespace) -> Options:
    from projections.replay.outcome import Options

    given: dict[str, Any] = vars(arguments)
    return Options(
        **{name: value for name, value in given.items() if name in Options._fields},
        settings=tuple(given.get("set", ())),
        all_rows=arguments.output in ("json", "yaml"),
    )


# --- the values of flags


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Spark master: it must be {MASTERS}")
    return text
