"""The generated page of the HTTP API is up to date."""

from tests.docs.reference import page
from tests.support.tools import ROOT


async def test_http_page_matches_openapi() -> None:
    assert (ROOT / "docs/http.md").read_text() == await page(), "python -m tests.docs.reference > docs/http.md"
