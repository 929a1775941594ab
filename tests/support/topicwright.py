"""Topicwright itself as a process, as its users start it."""

import io
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from controller.cli.main import main
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.wire import Wire

COMMAND = Path(sys.executable).parent / "topicwright"


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, because starting a new Python would take longer."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main([str(each) for each in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    printed = []
    for each in (out, err):
        each.seek(0)
        printed.append(each.read())
    return subprocess.CompletedProcess(words, code, *printed)


def fetch(
    http: str, path: str, body: object = None, method: str | None = None, authorization: str | None = None
) -> tuple[int, str]:
    """The status and the body of the response to an HTTP request; `body` is sent as JSON. Raises URLError."""
    data, headers = (None, {}) if body is None else (json.dumps(body).encode(), {"Content-Type": "application/json"})
    headers |= {} if authorization is None else {"Authorization": authorization}
    request = urllib.request.Request(f"http://{http}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@dataclass(frozen=True, slots=True)
class Topicwright:
    """A server that answers on `kafka` and `http` (HOST:PORT), with its log in `data`."""

    process: Process
    kafka: str
    http: str
    data: Path

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the Kafka listener; an AssertionError shows the output of a server that ended."""
        assert self.process.popen.poll() is None, self.process.output[-4000:]
        return self.kafka

    def stop_broker(self, broker_id: int) -> None:
        """Stop a simulated broker; returns when it is fenced."""
        stopped = fetch(self.http, f"/v1/simulated/brokers/{broker_id}/stop", method="POST")
        assert stopped[0] == 200, stopped
        deadline = time.monotonic() + 240
        with Wire(self.kafka) as wire:
            while broker_id in self._live(wire):
                assert time.monotonic() < deadline, f"broker {broker_id} was never fenced"
                time.sleep(0.01)

    @staticmethod
    def _live(wire: Wire) -> set[int]:
        return {each["broker_id"] for each in wire.call("DescribeCluster", 1, endpoint_type=1)["brokers"]}


@contextmanager
def topicwright(
    folder: Path, settings: Mapping[str, str] | None = None, *, brokers: str = "simulated:3", policies: Path = ROOT
) -> Iterator[Topicwright]:
    """Serve on free ports until the end of the block, then stop with SIGTERM and check the exit code.

    `folder` is the working folder and contains the data folder; `policies` is the folder of policy classes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "topicwright-data"
    argv: list[str | Path] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--data", data]
    argv += [] if "listeners" in (settings or {}) else ["--kafka", "127.0.0.1:0"]
    argv += ["--brokers", brokers]
    for key, value in (settings or {}).items():
        argv += ["--set", f"{key}={value}"]
    with Process(argv, cwd=folder, env={"PYTHONPATH": str(policies)}) as process:
        ready = process.wait_for_line(r"^ready kafka=(\S+) http=(\S+)( listeners=\S+)?$", within_s=240)
        yield Topicwright(process, ready[1], ready[2], data)
        code = process.stop(within_s=120)
        assert code == 0, f"SIGTERM: ended with {code}\n{process.output[-4000:]}"
