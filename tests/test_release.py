"""The release number is the same in the code, in the distribution and in the output of the command."""

import subprocess
from importlib.metadata import version

from controller.release import RELEASE
from tests.support.topicwright import COMMAND


def test_the_distribution_has_the_version_of_the_code() -> None:
    assert version("topicwright") == RELEASE


def test_version_flag_prints_the_release() -> None:
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == f"topicwright {RELEASE}\n"
