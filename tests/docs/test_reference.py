"""The generated pages of the HTTP API and the commands are up to date."""

from __future__ import annotations

from tests.docs.reference import openapi, pages
from tests.support.tools import ROOT


async def test_reference_pages_match_openapi_and_commands() -> None:
    for name, text in pages(await openapi()).items():
        assert (ROOT / "docs" / name).read_text() == text, "python -m tests.docs.reference"
