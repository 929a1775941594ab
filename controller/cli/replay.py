"""`topicwright replay`: rebuild, check and query the topics of a log as of any offset, with Spark or in this process.

Each sub-command is a module of `projections.replay`. This module parses the arguments, starts Spark, prints the outcome
and returns the exit code. Spark is loaded only when a sub-command runs with it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.cli.arguments import (
    AGO,
    DONE,
    NEGATIVE,
    add_action,
    count,
    key_value,
    point_in_time,
)
from controller.cli.commands import COMMANDS as ALL_COMMANDS
from controller.cli.commands import Parsers
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
    """A sub-command: its module in `projections.replay`, its purpose, and its arguments in addition to the log."""

    module: str
    help: str
    arguments: tuple[Callable[[_Parser], object], ...] = ()
    spark: bool = True
    """True if Spark runs the sub-command, unless --local is given."""
    formats: tuple[str, ...] = FORMATS
    has_at: bool = True


def _argument(*names: str, **options: Any) -> Callable[[_Parser], object]:
    return lambda parser: parser.add_argument(*names, **options)


_REPEATED: dict[str, Any] = {"action": "append", "default": []}


def _setting(name: str, metavar: str) -> dict[str, Any]:
    """A flag for `--set NAME=…`."""
    return {**_REPEATED, "dest": "set", "type": lambda text: (name, text), "metavar": metavar}


def register(commands: Parsers[_Parser]) -> None:
    parser = commands.add_parser("replay", description=ALL_COMMANDS["replay"].description)
    subcommands = parser.add_subparsers(dest="replay", required=True, metavar="WHAT")
    for name, command in COMMANDS.items():
        _register(subcommands, name, command)


def _register(subcommands: Parsers[_Parser], name: str, command: _Command) -> None:
    parser = add_action(subcommands, name, command.help)
    what = "data folder of a service, running or not, or a copy of it; or kafka://HOST:PORT/TOPIC"
    parser.add_argument("log", metavar="LOG", help=what)
    properties = "for a log in Kafka: file with librdkafka properties, one KEY=VALUE per line"
    parser.add_argument("--kafka-properties", type=Path, metavar="FILE", help=properties)
    for add_to in command.arguments:
        add_to(parser)
    if command.has_at:
        what = f"read the log up to an offset, an ISO-8601 time, {AGO}; default: to its end"
        parser.add_argument("--at", type=point_in_time, metavar="OFFSET|TIME", help=what)
    parser.set_defaults(limit=LIMIT)
    add_output(parser, command.formats)
    parser.set_defaults(func=lambda options: _run(name, command, options))
    if not command.spark:
        return
    parser.add_argument("--limit", type=count, metavar="N", help=f"maximum number of rows to print; default {LIMIT}")
    spark = parser.add_argument_group("Spark")
    what = f"run on one core of this process, without Spark: faster for up to about {SMALL_EVENTS:,} events"
    spark.add_argument("--local", action="store_true", help=what)
    what = "spark://HOST:PORT or sc://HOST:PORT; default local[*]"
    spark.add_argument("--master", type=_master, metavar="URL", help=what)
    what = "a Spark setting; may be repeated"
    spark.add_argument("--conf", **_REPEATED, type=key_value, metavar="KEY=VALUE", help=what)
    what = "show Spark's own log, as SPARK_CONF_DIR/log4j2.properties configures it"
    spark.add_argument("--spark-log", action="store_true", help=what)


# --- the sub-commands


_CHECKS = "check these too: queries whose rows are violations, each after a comment `-- NAME: REQUIREMENT`"
_FROM_SCRATCH = _argument(
    "--from-scratch", action="store_true", help="do not start from a snapshot of topics, but from the first event"
)
_EXPORT = _argument(
    "--export",
    metavar="DIR",
    help="read the Parquet export in this folder or object store (see `replay export`), after adding the new events",
)

COMMANDS: dict[str, _Command] = {
    "rebuild": _Command(
        "rebuild.rebuild",
        "rebuild topics as of any offset or time from the events",
        (
            _argument("--to", metavar="DIR", help="folder to write the rows to, as Parquet; default: print them"),
            _FROM_SCRATCH,
        ),
    ),
    "compare": _Command(
        "rebuild.compare",
        "compare the live state with the state rebuilt from the events",
        (
            _argument("--data", metavar="DIR", help="for a log in Kafka: the data folder of a gateway or worker"),
            _FROM_SCRATCH,
        ),
        has_at=False,
    ),
    "invariants": _Command(
        "checks.invariants",
        "check the log against the invariants, and your own",
        (_EXPORT, _argument("--checks", type=Path, metavar="FILE.sql", help=_CHECKS)),
    ),
    "watch": _Command(
        "watch",
        "check the invariants while events are written, until interrupted",
        spark=False,
        formats=("table", "json"),
        has_at=False,
    ),
    "redecide": _Command(
        "redecide.redecide",
        "decide every past request again, and compare the events byte for byte",
        (
            _argument(
                "--policies",
                dest="recorded_policies",
                action="store_true",
                help="let the recorded Python policies judge again, if their source is the recorded one",
            ),
        ),
    ),
    "backtest": _Command(
        "redecide.backtest",
        "find requests that other policies or settings change",
        (
            _argument("--policy", **_setting("create.topic.policy.class.name", "CLASS"), help="policies to try"),
            _argument(
                "--set", **_REPEATED, type=key_value, metavar="KEY=VALUE", help="setting to try; may be repeated"
            ),
            _argument("--rules", **_setting("topic.rules.file", "FILE"), help="rules to try"),
        ),
    ),
    "sql": _Command(
        "checks.sql",
        "run an SQL query on the history",
        (
            _argument("subject", metavar="QUERY", help="SQL, on `events` and the views of docs/invariants.md"),
            _argument("--to", metavar="FILE", help="file to write the rows to: .parquet, .csv or .json"),
            _EXPORT,
        ),
        spark=False,
    ),
    "shell": _Command("checks.sql", "run SQL queries as you type them", (_EXPORT,), spark=False, formats=("table",)),
    "views": _Command(
        "checks.sql",
        "write the views of docs/invariants.md as Parquet, for other engines",
        (_argument("--to", metavar="DIR", required=True, help="new folder; each view gets a folder in it"), _EXPORT),
    ),
    "export": _Command(
        "export",
        "write the events to Parquet, or add the new ones",
        (_argument("--to", dest="export", metavar="DIR", required=True, help="folder or URL; an export is updated"),),
    ),
    "report": _Command(
        "report",
        "write an HTML page about the history",
        (_argument("--to", metavar="FILE", help="page to write; default topicwright-report.html"),),
        spark=False,
    ),
}


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
    from controller.settings.properties import PropertiesError, read_values
    from projections.replay.log.kafka_ref import KAFKA

    if arguments.kafka_properties is None:
        return ()
    if not arguments.log.startswith(KAFKA):
        raise ReplayError(f"--kafka-properties is for a log in Kafka, which {arguments.log} is not")
    try:
        return tuple(read_values(arguments.kafka_properties).items())
    except PropertiesError as error:
        raise ReplayError(f"--kafka-properties {arguments.kafka_properties} {error}") from None


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
