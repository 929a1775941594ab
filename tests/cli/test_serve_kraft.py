"""`topicwright serve --brokers kraft`: what its command line and a data folder allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.cli.main import main
from tests.support.processes import Process
from tests.support.topicwright import COMMAND


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--brokers", "kraft:3"],
            "'kraft:3' is neither simulated:N with N from 1 to 1000 nor cluster:HOST:PORT[,HOST:PORT…] nor kraft",
        ),
        (["--metadata-version", "16"], "'16' is not a level from 17 (3.7) to 33 (4.4)"),
        (["--metadata-version", "new"], "'new' is not a level from 17 (3.7) to 33 (4.4)"),
        (["--metadata-version", "30"], "--metadata-version needs --brokers kraft"),
    ],
)
def test_a_bad_command_line_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["serve", *arguments])
    except SystemExit as exit_:
        code = int(str(exit_.code))
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_voter_is_not_named_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be node 0, which may be a broker."""
    code = main(["join", "--bootstrap-controller", "127.0.0.1:1", "--data", str(tmp_path / "voter")])
    assert code == 2
    assert "give this node an id that no controller or broker has: --set node.id=N" in capsys.readouterr().err
    assert not (tmp_path / "voter").exists()


def test_a_folder_of_real_brokers_is_served_with_no_others_and_no_lower_levels(tmp_path: Path) -> None:
    def serve(*arguments: str) -> Process:
        places = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
        return Process([COMMAND, "serve", *places, *arguments], cwd=tmp_path)

    kraft = ("--brokers", "kraft")
    with serve(*kraft, "--metadata-version", "25", "--set", "kraft.version=1") as process:
        process.wait_for_line("^ready", within_s=60)
        assert process.stop() == 0
        assert '"event":"QuorumEpochBegun","epoch":1' in process.output
    refused = {
        (): "the data folder belongs to KRaft brokers",
        kraft: "kraft.version=0: the cluster has 1, which cannot be lowered",
        (
            *kraft,
            "--set",
            "kraft.version=1",
            "--metadata-version",
            "24",
        ): "--metadata-version 24: the cluster has 25, which cannot be lowered",
    }
    for arguments, why in refused.items():
        with serve(*arguments) as process:
            process.wait_for_line(why, within_s=60)
            assert process.wait(120) == 2
    with serve(*kraft, "--set", "kraft.version=1") as process:
        process.wait_for_line('"event":"QuorumEpochBegun","epoch":2', within_s=60)
        process.wait_for_line("^ready", within_s=60)
