"""`topicwright users`: in a data folder, in a file, through the admin API; and what is refused."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest

from controller.access.users_file import UsersFileError, matches, read_users
from controller.cli.main import main
from tests.support.topicwright import topicwright


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Standard input, to put a password on."""
    return monkeypatch


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put text on standard input."""
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_the_first_user_of_a_stopped_service(
    said: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    give(said, "alice-secret\n")
    assert main(["users", "add", "alice", "--data", data]) == 0
    give(said, "alice-secret\n")
    assert main(["users", "add", "alice", "--data", data, "--mechanism", "SCRAM-SHA-256", "--iterations", "8192"]) == 0
    capsys.readouterr()
    assert main(["users", "list", "--data", data]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["USER", "LOGIN", "ITERATIONS"],
        ["alice", "SCRAM-SHA-256", "8192"],
        ["alice", "SCRAM-SHA-512", "4096"],
    ]
    assert main(["users", "remove", "alice", "--data", data]) == 0
    assert main(["users", "remove", "alice", "--data", data]) == 1
    assert "Attempt to delete a user credential that does not exist" in capsys.readouterr().err
    assert main(["events", "--data", data]) == 0
    events = capsys.readouterr().out
    assert "SettingsChanged" in events.splitlines()[1], "the first event of every log"
    assert "sets the password of user alice for SCRAM-SHA-512" in events
    assert "removes the password of user alice for SCRAM-SHA-512" in events
    assert "secret" not in events


@pytest.mark.timeout(60)
@pytest.mark.parametrize("iterations", ["16385", "2000000000", "0000002000000000", "9" * 5000, "-1", "many"])
def test_more_iterations_than_are_taken_anywhere_are_not_tried(
    said: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], iterations: str
) -> None:
    give(said, "alice-secret\n")
    with pytest.raises(SystemExit) as ended:
        main(["users", "add", "alice", "--data", str(tmp_path / "data"), "--iterations", iterations])
    assert ended.value.code == 2
    assert "is not a number from 4096 to 16384" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_through_a_running_service(
    said: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with topicwright(tmp_path) as service:
        give(said, "bob-secret\n")
        assert main(["users", "add", "bob", "--bootstrap", service.kafka]) == 0
        assert capsys.readouterr().out == "set SCRAM-SHA-512 of bob\n"
        assert main(["users", "list", "--bootstrap", service.kafka, "-o", "json"]) == 0
        (bob,) = json.loads(capsys.readouterr().out)["users"]
        assert bob == {"name": "bob", "login": "SCRAM-SHA-512", "iterations": 4096}
        assert main(["users", "remove", "bob", "--bootstrap", service.kafka]) == 0
        assert main(["users", "remove", "bob", "--bootstrap", service.kafka]) == 1
        assert "does not exist" in capsys.readouterr().err
        give(said, "bob-secret\n")
        assert main(["users", "add", "bob", "--bootstrap", service.kafka, "--iterations", "5"]) == 1
        assert "Too few iterations" in capsys.readouterr().err
        give(said, "x\n")
        assert main(["users", "add", "bob", "--data", str(service.data)]) == 2
        assert "is open in" in capsys.readouterr().err, "the log of a running service is its own"


def test_the_users_file(said: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "users"
    for password in ("first\n", "second\n"):
        give(said, password)
        assert main(["users", "add", "carol", "--file", str(path)]) == 0
    assert main(["users", "add", "carol", "--token", "--file", str(path)]) == 0
    token = capsys.readouterr().out.splitlines()[-1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    users = read_users(path)
    assert matches(users.passwords["carol"], "second")
    assert not matches(users.passwords["carol"], "first")
    assert token.startswith("tw_")
    assert list(users.tokens.values()) == ["carol"]
    assert not any(secret in path.read_text() for secret in ("first", "second", token))
    assert main(["users", "list", "--file", str(path)]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split() for row in rows] == [["carol", "password", "-"], ["carol", "token", "-"]]
    assert main(["users", "list", "--file", str(path), "-o", "name"]) == 0
    assert capsys.readouterr().out == "carol\n"
    assert main(["users", "remove", "carol", "--file", str(path)]) == 0
    assert main(["users", "remove", "carol", "--file", str(path)]) == 1
    assert read_users(path).passwords == read_users(path).tokens == {}
    capsys.readouterr()
    assert main(["users", "list", "--file", str(path)]) == 0
    assert capsys.readouterr().out == "There are no users.\n"
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


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
def test_a_refusal_says_why(
    line: str, said: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, password, message = (cell.strip() for cell in line.split("|"))
    places = {"FILE": str(tmp_path / "file"), "DIR": str(tmp_path / "data")}
    give(said, password + "\n" if password else "")
    arguments = [places.get(word, word) for word in command.split(" ")]
    words = [word for number, word in enumerate(arguments) if word or arguments[number - 1] == "add"]
    assert main(["users", *words]) in (1, 2)
    assert message in capsys.readouterr().err


BAD_LINES = ["alice", "alice:secret", "alice:token:sha256:xyz", ":$argon2id$v=19$m=65536,t=3,p=4$YQ$YQ", "a b :x"]


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_named_without_what_it_holds(line: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\n\n{line}\n")
    with pytest.raises(UsersFileError, match="line 3: must be NAME:") as raised:
        read_users(path)
    assert "secret" not in str(raised.value)


def test_a_port_where_nobody_listens_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert main(["users", "list", "--bootstrap", f"127.0.0.1:{port}"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert f"topicwright: no service at 127.0.0.1:{port}: " in seen.err
    assert "Connection refused" in seen.err
