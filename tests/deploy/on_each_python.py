"""Imports every module and runs the demo. `test_pythons` starts it with each Python, with warnings as errors."""

import importlib
import pkgutil
import sys

from controller.cli.main import main

LEFT_OUT = ("faust", "plotly", "py4j", "pyspark", "numpy")
"""Packages of extras; modules that import a missing one are skipped."""


def import_everything() -> int:
    """Import every module; returns their number."""
    count = 0
    for top in ("controller", "events", "projections"):
        for module in pkgutil.walk_packages(importlib.import_module(top).__path__, f"{top}."):
            if module.name.endswith(".__main__"):
                continue
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:
                if str(missing.name).partition(".")[0] not in LEFT_OUT:
                    raise
            count += 1
    return count


if __name__ == "__main__":
    print(f"{import_everything()} modules of Python {sys.version_info.major}.{sys.version_info.minor}")
    sys.exit(main(["demo"]))
