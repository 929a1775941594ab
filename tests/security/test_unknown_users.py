"""Who is there cannot be told from what a login by SCRAM is shown, today or after a restart."""

from __future__ import annotations

from pathlib import Path

from controller.release import RELEASE
from controller.serving.offline_users import offline_users
from controller.settings.load import load_settings
from tests.security.service import shown_by_scram
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND

MECHANISM = "SCRAM-SHA-512"
NAMES = [f"nobody-{number}" for number in range(20)]


def _shown(folder: Path, *users: str) -> list[tuple[int, bytes]]:
    """Iterations and salts that a service, started for it alone, shows of users."""
    argv: list[str | Path] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--data", folder / "data"]
    argv += ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "http.authentication=none"]
    with Process(argv, cwd=folder, env={"PYTHONPATH": str(ROOT)}) as process:
        address = process.wait_for_line(r"listeners=SASL_PLAINTEXT://(\S+)$", within_s=240)[1]
        return [shown_by_scram(address, MECHANISM, user) for user in users]


def test_an_unknown_user_is_shown_what_looks_like_a_known_ones_and_the_same_after_a_restart(tmp_path: Path) -> None:
    iterations = 5000  # 4096 is the default
    with offline_users(tmp_path / "data", load_settings(), RELEASE) as offline:
        assert offline.add("alice", MECHANISM, "alice-PLANTED", iterations).code == 0
    first = _shown(tmp_path, "alice", *NAMES)
    assert {(count, len(salt)) for count, salt in first} == {(iterations, len(first[0][1]))}
    assert len(set(first)) == len(first)
    assert _shown(tmp_path, "alice", *NAMES) == first
