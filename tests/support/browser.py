"""A headless browser for tests of pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.support.tools import program

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[Chrome]:
    """Chromium with its own profile; it records the console output of pages."""
    options = ChromeOptions()
    options.binary_location = program("chromium")
    for flag in (*FLAGS.split(), *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(program("chromedriver")))
    try:
        yield chrome
    finally:
        chrome.quit()
