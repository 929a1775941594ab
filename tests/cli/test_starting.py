"""Where each command is found, and wrong usage: exit code 2, with a message that says why."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_found_in_its_module(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: topicwright {command} ")


def test_the_help_names_every_command() -> None:
    assert all(re.search(rf"^    {command} ", parser().format_help(), re.MULTILINE) for command in COMMANDS)
