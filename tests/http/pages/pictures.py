"""Takes the screenshots of docs/page.md: `python -m tests.http.pages.pictures`. They show a service with a story at two
widths, the narrow ones in dark mode."""

import asyncio
import base64
import tempfile
from pathlib import Path

from tests.http.pages.story import story
from tests.http.pages.test_browser import Look
from tests.support.browser import chromium
from tests.support.tools import ROOT

FOLDER = ROOT / "docs/pictures"
WIDE, NARROW = 1280, 390
HEIGHT_MAX = {WIDE: 1000, NARROW: 900}


async def take(folder: Path) -> list[Path]:
    """Take the screenshots; returns their paths."""
    async with story(hostile=False) as one:
        created = (await one.get("/v1/topics/pay.orders"))["created_by"]["request_id"]
        pages = {
            "overview": "/",
            "topic": "/topics/pay.orders",
            "request": f"/requests/{created}",
            "policies": "/policies",
            "difference": "/diff?from=40",
            "quorum": "/quorum",
        }
        return await asyncio.to_thread(_take_pictures, one.port, pages, folder)


def _take_pictures(port: int, pages: dict[str, str], folder: Path) -> list[Path]:
    taken = []
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        look = Look(browser, port)
        for name, path in pages.items():
            for width in (WIDE, NARROW):
                look.at(path, width, dark=width == NARROW)
                look.until(lambda: look.text("h1") != "", "it is loaded")
                height = min(int(look.run("return document.documentElement.scrollHeight")), HEIGHT_MAX[width])
                clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
                shot = look.command(
                    "Page.captureScreenshot", format="webp", quality=60, clip=clip, captureBeyondViewport=True
                )
                taken.append(folder / f"page-{name}-{width}.webp")
                taken[-1].write_bytes(base64.b64decode(shot["data"]))
    return taken


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in asyncio.run(take(FOLDER)):
        print(each.relative_to(ROOT), each.stat().st_size)
