"""Writes the message classes before the package is built. Everything else is in pyproject.toml."""

import sys
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


class BuildWithMessages(build_py):
    def run(self) -> None:
        sys.path.insert(0, str(ROOT))
        from controller.kafka.generate import generate

        generate()
        super().run()


setup(
    cmdclass={"build_py": BuildWithMessages},
    setup_requires=[each for each in DEPENDENCIES if each.startswith(("kio==", "msgspec=="))],
)
