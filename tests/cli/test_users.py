"""`topicwright users`: in a data folder, in a file and through the admin API; and its errors."""

import io
import json
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.access.users import UsersFileError, matches, read_users
from tests.cli.commands import Run, columns
from tests.support.topicwright import topicwright

Give = Callable[[str], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Returns a function that sets standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_users_add_creates_the_first_user_in_a_data_folder(run: Run, give: Give, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for more in ((), ("--mechanism", "SCRAM-SHA-256", "--iterations", "8192")):
        give("alice-secret\n")
        assert run("users", "add", "alice", "--data", data, *more).code == 0
    assert columns(run("users", "list", "--data", data).out) == [
        ["USER", "LOGIN", "ITERATIONS"],
        ["alice", "SCRAM-SHA-256", "8192"],
        ["alice", "SCRAM-SHA-512", "4096"],
    ]
    assert run("users", "remove", "alice", "--data", data).code == 0
    again = run("users", "remove", "alice", "--data", data)
    assert (again.code, "Attempt to delete a user credential that does not exist" in again.err) == (1, True)
    events = run("events", "--data", data).out
    assert "SettingsChanged" in events.splitlines()[1], "every log begins with SettingsChanged"
    assert "sets the password of user alice for SCRAM-SHA-512" in events
    assert "removes the password of user alice for SCRAM-SHA-512" in events
    assert "secret" not in events


@pytest.mark.timeout(60)
@pytest.mark.parametrize("iterations", ["16385", "4095", "2000000000", "0000002000000000", "9" * 5000, "-1", "many"])
def test_scram_iterations_limit(run: Run, give: Give, tmp_path: Path, iterations: str) -> None:
    give("alice-secret\n")
    code, _, err = run("users", "add", "alice", "--data", tmp_path / "data", "--iterations", iterations)
    assert (code, "is not a number from 4096 to 16384" in err) == (2, True)
    assert not (tmp_path / "data").exists()


def test_users_are_managed_through_a_running_service(run: Run, give: Give, tmp_path: Path) -> None:
    with topicwright(tmp_path) as service:
        where = ("--bootstrap", service.kafka)
        give("bob-secret\n")
        assert run("users", "add", "bob", *where)[:2] == (0, "set SCRAM-SHA-512 of bob\n")
        (bob,) = json.loads(run("users", "list", *where, "-o", "json").out)["users"]
        assert bob == {"name": "bob", "login": "SCRAM-SHA-512", "iterations": 4096}
        assert run("users", "remove", "bob", *where).code == 0
        again = run("users", "remove", "bob", *where)
        assert (again.code, "does not exist" in again.err) == (1, True)
        give("x\n")
        locked = run("users", "add", "bob", "--data", service.data)
        assert (locked.code, "is open in" in locked.err) == (2, True), "a running service locks its log"


def test_users_are_managed_in_a_users_file(run: Run, give: Give, tmp_path: Path) -> None:
    path = tmp_path / "users"
    for password in ("first\n", "second\n"):
        give(password)
        assert run("users", "add", "carol", "--file", path).code == 0
    token = run("users", "add", "carol", "--token", "--file", path).out.strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    users = read_users(path)
    assert matches(users.passwords["carol"], "second")
    assert not matches(users.passwords["carol"], "first")
    assert token.startswith("tw_")
    assert list(users.tokens.values()) == ["carol"]
    assert not any(secret in path.read_text() for secret in ("first", "second", token))
    assert columns(run("users", "list", "--file", path).out)[1:] == [
        ["carol", "password", "-"],
        ["carol", "token", "-"],
    ]
    assert run("users", "list", "--file", path, "-o", "name").out == "carol\n"
    assert [run("users", "remove", "carol", "--file", path).code for _ in range(2)] == [0, 1]
    assert read_users(path).passwords == read_users(path).tokens == {}
    assert run("users", "list", "--file", path).out == "There are no users.\n"
    assert list(tmp_path.iterdir()) == [path], "no temporary file remains"


WRONG = """
add alice --file FILE               |        | the password is empty
add a:b --file FILE                 | secret | the user name 'a:b' is not allowed
add alice --token --data DIR        | secret | --token needs --file
list --file FILE                    |        | cannot be read: No such file or directory
list --data DIR                     |        | there is no folder
add alice --bootstrap x:1 --command-config FILE | secret | --command-config
add  --data DIR                     | secret | Username must not be empty
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_rejected_user_commands_report_the_reason(line: str, run: Run, give: Give, tmp_path: Path) -> None:
    command, password, message = (cell.strip() for cell in line.split("|"))
    places = {"FILE": str(tmp_path / "file"), "DIR": str(tmp_path / "data")}
    give(password + "\n" if password else "")
    arguments = [places.get(word, word) for word in command.split(" ")]
    words = [word for number, word in enumerate(arguments) if word or arguments[number - 1] == "add"]
    code, _, err = run("users", *words)
    assert code in (1, 2)
    assert message in err


BAD_LINES = ["alice", "alice:secret", "alice:token:sha256:xyz", ":$argon2id$v=19$m=65536,t=3,p=4$YQ$YQ", "a b :x"]


@pytest.mark.parametrize("line", BAD_LINES)
def test_an_invalid_users_file_line_is_reported_without_its_secret(line: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\n\n{line}\n")
    with pytest.raises(UsersFileError, match="line 3: must be NAME:") as raised:
        read_users(path)
    assert "secret" not in str(raised.value)


def test_users_list_reports_an_unreachable_bootstrap_server(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, out, err = run("users", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out) == (2, "")
    assert f"topicwright: 127.0.0.1:{port} cannot be reached: " in err
