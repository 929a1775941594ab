"""Commands that run in this process."""

from __future__ import annotations

import pytest

from controller.serving import log_lines


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """How log lines are written is of the whole process: other tests look at them."""
    monkeypatch.setattr(log_lines, "configure_logs", lambda _: None)
