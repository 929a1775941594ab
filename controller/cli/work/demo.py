"""`topicwright demo`: the commands of a short story with an outage, a refusal and a recovery, on simulated brokers of
a service. Without a running service, it starts one in a temporary folder.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from controller.cli.arguments import DONE, HttpAddress, http_address
from controller.cli.backend import HttpBackend
from events.errors import UserError
from projections.views.brokers import BrokersView, SimulatedBrokerView

CREATE = "topic create demo.{} --partitions 3 --replication-factor 3"
STORY = (
    ("Create a topic. The answer comes when every live broker knows it (KIP-4):", CREATE.format("orders")),
    ("Broker 3 fails:", "stop"),
    ("What is wrong, since when, and what does it wait for?", "status"),
    ("A topic of three replicas is rejected now, with the reason:", CREATE.format("refunds")),
    ("Broker 3 is back:", "start"),
    ("Is it over?", "status"),
    ("Who requested the topic, and what happened to it?", "explain demo.orders"),
    ("The rejected topic has a history too:", "explain demo.refunds"),
    ("A deleted topic keeps its history:", "topic delete demo.orders"),
)
"""Announcements and commands; `stop` and `start` are requests for broker 3."""
BROKER = 3
WITHIN_S = 60  # generous: a cold start on a busy machine


def demo(options: argparse.Namespace) -> int:
    """Run the demo; returns the exit code. Raises UserError."""
    with _service(options.http) as http, closing(HttpBackend(http)) as backend:
        print(f"On the service at {http}. Watch it in a browser: http://{http}/", flush=True)
        for announcement, command in STORY:
            print(f"\n● {announcement}", flush=True)
            if command in ("stop", "start"):
                _switch(backend, command, http)
            else:
                _run([*shlex.split(command), "--http", str(http)])
        if options.http is None and sys.stdout.isatty():
            with suppress(KeyboardInterrupt, EOFError):
                input(f"\nThe page has the same: http://{http}/. Enter ends the demo. ")
    return DONE


def _run(argv: list[str]) -> None:
    """Run a command of `topicwright`, whatever its exit code."""
    print(f"  $ topicwright {shlex.join(argv)}", flush=True)
    command = [sys.executable, "-m", "controller.cli.main", *argv]
    printed = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    print("".join(f"    {line}\n" for line in printed.rstrip().splitlines()), end="", flush=True)


def _switch(backend: HttpBackend, verb: str, http: HttpAddress) -> None:
    """Stop or start the broker, and wait until the controller knows."""
    print(f"  $ curl -X POST http://{http}/v1/simulated/brokers/{BROKER}/{verb}", flush=True)
    backend.send("POST", f"/simulated/brokers/{BROKER}/{verb}", SimulatedBrokerView)
    deadline = time.monotonic() + WITHIN_S
    while (BROKER in backend.get(BrokersView, "/brokers").live) != (verb == "start"):
        if time.monotonic() > deadline:
            raise UserError(f"broker {BROKER} did not {verb} within {WITHIN_S} s")
        time.sleep(0.05)


@contextmanager
def _service(given: HttpAddress | None) -> Iterator[HttpAddress]:
    """The running service, or one in a temporary folder."""
    http = given or http_address("127.0.0.1:8080")
    with closing(HttpBackend(http)) as backend:
        try:
            backend.get(BrokersView, "/brokers")
        except UserError:
            if given is not None:
                raise
        else:
            yield http
            return
    print(f"No service answers on {http}, so this demo starts one.", flush=True)
    with TemporaryDirectory(prefix="topicwright-demo-") as folder:
        argv = [sys.executable, "-m", "controller.cli.main", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        argv += ["--data", str(Path(folder) / "data"), "--set", "log.level=error"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                found = re.match(r"ready kafka=\S+ http=(\S+)", line)
                if found is None:
                    raise UserError(f"the service did not start: {line!r}")
                yield http_address(found[1])
            finally:
                process.terminate()
                process.wait(timeout=WITHIN_S)
