"""Approvals on the command line of a running service, and kill -9 between their steps."""

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from controller.access.users import set_password
from tests.cli.commands import Printed, columns
from tests.http.test_gate import basic
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND, fetch

RULES = """
[[rule]]
name = "big"
partitions = { max = 2 }
approve_by = ["User:carol"]
"""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Process, str]]:
    """A service with logins. Yields its HOST:PORT for HTTP."""
    argv: list[str | Path] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--data"]
    argv += [folder / "data", "--brokers", "simulated:1", "--set", f"users.file={folder / 'users'}"]
    with Process(argv, cwd=folder, env={"PYTHONPATH": str(ROOT)}) as process:
        yield process, process.wait_for_line(r"^ready kafka=\S+ http=(\S+)", within_s=240)[1]


@pytest.fixture
def alice(printed: Printed, tmp_path: Path) -> Printed:
    return of_user("alice", printed, tmp_path)


@pytest.fixture
def carol(printed: Printed, tmp_path: Path) -> Printed:
    return of_user("carol", printed, tmp_path)


def of_user(name: str, printed: Printed, folder: Path) -> Printed:
    """Runs a command as a user of the service."""
    set_password(folder / "users", name, f"{name}-secret")
    (folder / "rules.toml").write_text(RULES)
    config = folder / f"{name}.properties"
    config.write_text(f"username={name}\npassword={name}-secret\n")

    def run_it(*arguments: object, code: int = 0) -> str:
        return printed(*arguments, "--command-config", config, code=code)

    return run_it


def test_a_request_is_held_listed_approved_and_denied(
    alice: Printed, carol: Printed, printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dora = of_user("dora", printed, tmp_path)
    with serving(tmp_path) as (_, http):
        monkeypatch.setenv("TOPICWRIGHT_HTTP", http)
        assert alice("requests", "--pending") == "No request waits for approval.\n"
        alice("rules", "apply", tmp_path / "rules.toml")
        dry = alice("topic", "create", "a", "--partitions", "3", "--dry-run", code=1)
        assert "The request would wait for approval by User:carol." in dry
        refused = alice("topic", "create", "a", "--partitions", "3", code=1)
        (waiting,) = alice("requests", "--pending", "-o", "name").split()
        held = " ".join(alice("explain", waiting, "--utc").split("\n\n")[0].split())
        assert "waits for approval" in held.partition("; at first a rejected POLICY_VIOLATION")[0], held
        assert "ask User:carol to run `topicwright approve" in " ".join(refused.split())
        alice("topic", "create", "b", "--partitions", "3", code=1)
        rows = columns(alice("requests", "--pending"))
        assert [row[1] for row in rows[1:]] == ["a", "b"]
        first, second = alice("requests", "--pending", "-o", "name").split()
        assert "nobody approves their own" in alice("approve", first, code=1)
        assert "User:dora may not approve this request" in dora("approve", first, code=1)
        approved = carol("approve", first)
        assert approved.startswith(f"request {first} is approved, as request ")
        assert approved.endswith("\na: done\n")
        (as_request,) = re.findall(r", as request (\S+)", approved)
        done = " ".join(alice("explain", first).split())
        assert done.startswith(
            f"User:carol (topicwright) approves request {first} for a, done as {as_request}; at first a rejected"
        ), done
        assert "`topicwright explain` has its outcome" in carol("approve", first, code=1)
        assert carol("deny", second, "--because", "too big").endswith(" is denied\n")
        denied = " ".join(alice("explain", second).split())
        assert denied.startswith(
            f"User:carol (topicwright) denies request {second} for b: too big; at first b rejected"
        ), denied
        assert alice("topics", "-o", "name").split() == ["a"]
        changed = alice("changes", "a")
        assert "approved by User:carol" in " ".join(changed.split())
        assert "--pending lists all" in alice("requests", "--pending", "--api", "HTTP", code=2)


def test_kill_9_loses_no_approval_and_does_none_twice(alice: Printed, carol: Printed, tmp_path: Path) -> None:
    rng, made, asked = random.Random(7), 0, []
    for kill in (True, True, True, False):
        with serving(tmp_path) as (process, http):
            alice("rules", "apply", tmp_path / "rules.toml", "--http", http)
            for _ in range(8):
                made += 1
                status, answer = get(http, "/v1/topics", "alice", {"name": f"t{made}", "num_partitions": 3})
                assert status == 403, answer
                asked.append(json.loads(answer)["request_id"])
            waiting = {each["request_id"] for each in json.loads(get(http, "/v1/approvals")[1])["requests"]}
            decided = Counter(one["fields"]["request_id"] for one in _events(http, "ApprovalDecided"))
            assert waiting | decided.keys() == set(asked), "no held request is lost"
            assert not waiting & decided.keys()
            threads = [threading.Thread(target=_approve, args=(http, each)) for each in sorted(waiting)]
            for thread in threads:
                thread.start()
            if kill:
                time.sleep(rng.uniform(0, 0.05))
                process.kill()
            for thread in threads:
                thread.join()
            if not kill:
                decided = Counter(one["fields"]["request_id"] for one in _events(http, "ApprovalDecided"))
                assert decided == Counter(asked), "each is approved once"
                created = [one["fields"]["topic"] for one in _events(http, "TopicCreated")]
                assert sorted(created) == sorted(f"t{number}" for number in range(1, made + 1))


def _approve(http: str, request_id: str) -> None:
    with suppress(OSError):  # killed
        get(http, f"/v1/requests/{request_id}/approve", method="POST")


def get(http: str, path: str, user: str = "carol", body: object = None, method: str | None = None) -> tuple[int, str]:
    return fetch(http, path, body, method, basic(user, f"{user}-secret"))


def _events(http: str, kind: str) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = json.loads(get(http, f"/v1/events?limit=1000&type={kind}")[1])["events"]
    return found
