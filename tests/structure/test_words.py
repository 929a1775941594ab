"""Identifiers of the product use the words of CONTRIBUTING.md ("Words"), not private ones.

`BANNED` has the words that no identifier of the product uses. When the last use of another is gone, add it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {
    "asks": "requests",
    "beside": "with",
    "came": "received",
    "births": "creation_index",
    "clearance": "dry_run",
    "consult": "needs_approval",
    "door": "listener",
    "doors": "listeners",
    "duties": "owner_tasks",
    "ears": "contact",
    "entrance": "listener",
    "fleet": "brokers",
    "foreign": "external",
    "look": "check",
    "missed": "skipped",
    "moment": "point_in_time",
    "moments": "points_in_time",
    "said": "message",
    "silence": "throttle_time",
    "parked": "delayed",
    "spare": "delayed",
    "told": "reported",
    "unfoldable": "unsupported",
    "unheard": "needs_approval",
    "upkeep": "replica_metadata",
    "waiter": "pending_create",
    "waiters": "pending_creates",
    "wish": "wants_leadership",
}


def _identifiers(path: Path) -> Iterator[tuple[str, int]]:
    for part in path.relative_to(ROOT).with_suffix("").parts:
        yield part, 1
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def _words(identifier: str) -> list[str]:
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier).lower().split("_")


@pytest.mark.parametrize("package", ["controller", "events", "projections"])
def test_identifiers_use_no_banned_words(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {identifier}: write {BANNED[word]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for identifier, line in _identifiers(path)
        for word in _words(identifier)
        if word in BANNED
    ]
    assert not found, "\n".join(found)
