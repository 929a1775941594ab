"""`topicwright demo`: the commands of a short story with an outage, a refusal and a recovery, on simulated brokers of
a service. Without a running service, it starts one in a temporary folder.
"""

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from controller.cli.arguments import http_address
from controller.cli.backend import Backend, HttpBackend
from controller.cli.context import DEFAULT_HTTP, Context, chosen
from events.errors import UserError
from projections.views.brokers import BrokersView

CREATE = "topic create demo.{} --partitions 3 --replication-factor 3"
STOP, START = "broker stop 3", "broker start 3"
STORY = (
    ("Create a topic. The answer comes when every live broker knows it (KIP-4):", CREATE.format("orders")),
    ("Broker 3 fails:", STOP),
    ("What is wrong, since when, and what does it wait for?", "status"),
    ("A topic of three replicas is rejected now, with the reason:", CREATE.format("refunds")),
    ("Broker 3 is back:", START),
    ("Is it over?", "status"),
    ("Who requested the topic, and what happened to it?", "explain demo.orders"),
    ("The rejected topic has a history too:", "explain demo.refunds"),
    ("A deleted topic keeps its history:", "topic delete demo.orders"),
)
"""Announcements and commands."""
BROKER = 3
WITHIN_S = 60  # generous: a cold start on a busy machine


def demo(options: argparse.Namespace, named: Backend) -> None:
    """Run the demo. Raises UserError."""
    with _service(options, named) as (backend, flags):
        http = str(backend).removeprefix("at ")
        page = f"{'' if '://' in http else 'http://'}{http}/"
        print(f"On the service {backend}. Watch it in a browser: {page}", flush=True)
        for announcement, command in STORY:
            print(f"\n● {announcement}", flush=True)
            _run([*shlex.split(command), *flags])
            if command in (STOP, START):
                _wait(backend, is_live=command == START)
        if backend is not named and sys.stdout.isatty():
            with suppress(KeyboardInterrupt, EOFError):
                input(f"\nThe page has the same: {page}. Enter ends the demo. ")


def _run(argv: list[str]) -> None:
    """Run a command of `topicwright`, whatever its exit code."""
    print(f"  $ topicwright {shlex.join(argv)}", flush=True)
    command = [sys.executable, "-m", "controller.cli.main", *argv]
    printed = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    print("".join(f"    {line}\n" for line in printed.rstrip().splitlines()), end="", flush=True)


def _wait(backend: Backend, *, is_live: bool) -> None:
    """Wait until the controller knows that the broker is live, or fenced."""
    deadline = time.monotonic() + WITHIN_S
    while (BROKER in backend.get(BrokersView, "/brokers").live) != is_live:
        if time.monotonic() > deadline:
            raise UserError(f"broker {BROKER} did not {'start' if is_live else 'stop'} within {WITHIN_S} s")
        time.sleep(0.05)


@contextmanager
def _service(options: argparse.Namespace, named: Backend) -> Iterator[tuple[Backend, Sequence[str]]]:
    """The running service, or one in a temporary folder, and the flags that name it."""
    try:
        named.get(BrokersView, "/brokers")
    except UserError:
        if options.http is not None or chosen(None, options.context) != Context(DEFAULT_HTTP):
            raise
    else:
        given = {"--http": options.http, "--context": options.context, "--command-config": options.command_config}
        yield named, [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
        return
    print(f"No service answers {named}, so this demo starts one.", flush=True)
    with TemporaryDirectory(prefix="topicwright-demo-") as folder:
        argv = [sys.executable, "-m", "controller.cli.main", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        argv += ["--data", str(Path(folder) / "data"), "--set", "log.level=error"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                found = re.match(r"ready kafka=\S+ http=(\S+)", line)
                if found is None:
                    raise UserError(f"the service did not start: {line!r}")
                with closing(HttpBackend(http_address(found[1]))) as backend:
                    yield backend, ("--http", found[1])
            finally:
                process.terminate()
                process.wait(timeout=WITHIN_S)
