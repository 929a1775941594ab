"""Where each command is found, and starts that cannot be: exit code 2, with a message that says why."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from controller.cli.commands import COMMANDS
from controller.cli.main import main, parser

USAGE = 2
BOTH = (
    (["--bootstrap", "nowhere"], "'nowhere' is not HOST:PORT"),
    (["--bootstrap", ""], "'' is not HOST:PORT"),
    (["--bootstrap", "h:1,:2"], "'h:1,:2' is not HOST:PORT, several separated by commas"),
    (["--bootstrap", "h:0"], "'h:0' is not HOST:PORT"),
    (["--bootstrap", "h:65536"], "'h:65536' is not HOST:PORT"),
    (["--bootstrap", "h:1", "--kafka-properties", "no.properties"], "--kafka-properties=no.properties cannot be"),
    (["--bootstrap", "h:1", "--set", "stream.partitions=0"], "stream.partitions=0"),
    (["--bootstrap", "h:1", "--set", "stream.partition=1"], "did you mean stream.partitions?"),
)
WORKERS = (
    (["--bootstrap", "h:1", "--brokers", "simulated:0"], "simulated:N"),
    (["--bootstrap", "h:1", "--brokers", "cluster:h"], "'h' is not HOST:PORT"),
)


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        *(("worker", *case) for case in (*BOTH, *WORKERS)),
        *(("gateway", *case) for case in BOTH),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], command: str, arguments: list[str], says: str) -> None:
    try:
        code: object = main([command, *arguments])
    except SystemExit as ended:  # argparse
        code = ended.code
    assert code == USAGE
    assert says in capsys.readouterr().err


def test_rules_without_their_policy_are_no_silent_start(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(data)]
    assert main(["serve", *arguments, "--set", "topic.rules.file=rules.toml"]) == USAGE
    assert "names no policy that reads topic.rules.file=rules.toml" in capsys.readouterr().err
    assert not data.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_found_in_its_module(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: topicwright {command} ")


def test_the_help_names_every_command() -> None:
    assert all(re.search(rf"^    {command} ", parser().format_help(), re.MULTILINE) for command in COMMANDS)


@pytest.mark.parametrize("flag", ["--kafka", "--http"])
def test_an_address_that_is_taken_is_named_and_leaves_no_folder(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        places = {"--kafka": "127.0.0.1:0", "--http": "127.0.0.1:0", flag: address}
        words = [word for pair in places.items() for word in pair]
        assert main(["serve", *words, "--data", str(tmp_path / "data")]) == USAGE
    expected = f"topicwright: cannot listen on {address} ({flag}): the address is in use; give another one"
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
