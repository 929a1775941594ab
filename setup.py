"""Writes the message classes before the package is built, and the metadata that depends on where the project is
published. Everything else is in pyproject.toml.

The README has relative links. With the address of the repository in `PROJECT_URL`, as `.github/workflows/release.yml`
sets it, the package's page has absolute links to that release.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES, TAG = os.environ.get("PROJECT_URL", ""), os.environ.get("GITHUB_REF_NAME", "HEAD")


def _absolute(link: re.Match[str]) -> str:
    return f"{link[0]}{PAGES}/{'raw' if link[0].startswith('!') else 'blob'}/{TAG}/"


class BuildWithMessages(build_py):
    def run(self) -> None:
        sys.path.insert(0, str(ROOT))
        from controller.kafka.generate import generate

        generate()
        super().run()


setup(
    cmdclass={"build_py": BuildWithMessages},
    setup_requires=[each for each in DEPENDENCIES if each.startswith("msgspec>")],
    long_description=re.sub(r"(!?\[[^]]*\]\()(?!\w+:|#)", _absolute, README) if PAGES else README,
    long_description_content_type="text/markdown",
    project_urls={"Source": PAGES, "Changelog": f"{PAGES}/blob/HEAD/CHANGELOG.md"} if PAGES else {},
)
