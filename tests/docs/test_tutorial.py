"""The tutorial's commands, typed in order by a shell, print what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.tools import ROOT
from tests.support.topicwright import topicwright

BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)
PRINTED = (
    r"pay\.orders is created(.*\n)+pay\.invoices is created(.*\n)+pay\.orders .*payments\n",
    r"requests by HTTP to create pay\.orders",
    r"1 of 1 examples? holds?",
    r"would have rejected 1 request (.*\n)+ +such as pay\.invoices(.*\n)+version 1 of the rules is effective",
    r"pay\.audit is rejected: .*team-topics(.*\n)+.*pay\.orders is not changed: .*ask in #kafka",
    r"pay\.orders +rejected.*\n.*pay\.audit +rejected",
    r"under-replicated since(.*\n)+.*all wait for broker 3",
    r"broker 2 is fenced",
    r"pay\.refunds is rejected: .*only 2 broker\(s\) are live",
    r"healthy: 3 of 3 brokers live",
    r"RulesApplied(.*\n)+.*broker 3 is fenced(.*\n)+.*broker 3 is live",
    r"^pay\.orders: under-replicated \(6 of 6\)(.*\n)+Topic pay\.orders: ready(.*\n)+.*because broker 3 is fenced",
    r"all \d+ invariants hold(.*\n)+.*0 decided otherwise",
)
"""A pattern for the output of each block."""


def test_commands_of_the_tutorial(tmp_path: Path) -> None:
    (tmp_path / "topicwright").write_text(f'#!/bin/sh\nexec {sys.executable} -m controller.cli.main "$@"\n')
    (tmp_path / "topicwright").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def typed(block: str) -> str:
        return subprocess.run(
            ["bash", "-c", block], cwd=tmp_path, env=environment, text=True, timeout=300, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ).stdout  # fmt: skip

    *running, stopped = BLOCKS
    with topicwright(tmp_path) as service:
        environment["TOPICWRIGHT_HTTP"] = service.http
        printed = [typed(block.replace("127.0.0.1:8080", service.http)) for block in running]
    printed.append(typed(stopped))
    assert len(printed) == len(PRINTED)
    for block, output, pattern in zip(BLOCKS, printed, PRINTED, strict=True):
        assert re.search(pattern, output), f"{block}\nprinted\n{output}"
