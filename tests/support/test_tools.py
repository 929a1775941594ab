"""What is said where a tool is absent."""

from __future__ import annotations

import pytest

from tests.support.tools import cached


def test_a_test_is_skipped_and_a_benchmark_ends_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-tool is not here: run `make tools`"):
        cached("no-such-tool")
    monkeypatch.delenv("PYTEST_VERSION")
    with pytest.raises(SystemExit, match="no-such-tool is not here: run `make tools`"):
        cached("no-such-tool")
