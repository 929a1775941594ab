"""The catalog of events: described, frozen, and never changed but by fields at the end."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from events import access, catalog
from events.catalog import EVENT_TYPES, EVENT_VERSION, Partition, PartitionChanged, Verdict
from events.names import BrokerId, TopicName, is_placeholder, shard_key
from events.values import Fact

RECORDED = Path(__file__).parents[1] / "golden" / "events" / "catalog.txt"
FACTS = sorted(
    {
        kind
        for module in (access, catalog)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Fact) and kind is not Fact
    },
    key=lambda kind: kind.__name__,
)

facts = pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)


def _rows() -> dict[str, str]:
    return {kind.__name__: ", ".join(f"{name} {of}" for name, of in kind.__annotations__.items()) for kind in FACTS}


def test_what_is_written_is_still_read() -> None:
    """A field may be added at the end, with a default; else a new event version and an upcast are needed.

    After such a change `tests/golden/events/catalog.txt` is to be brought up to date by hand.
    """
    version, *rows = RECORDED.read_text().splitlines()
    assert version == f"version {EVENT_VERSION}"
    recorded = dict(row.split(": ", 1) for row in rows)
    assert recorded == _rows()


@facts
def test_a_fact_is_frozen_and_an_array(kind: type[Fact]) -> None:
    config = kind.__struct_config__
    assert (config.frozen, config.array_like, config.forbid_unknown_fields) == (True, True, True)
    assert (kind in EVENT_TYPES) <= (config.tag == kind.__name__), "an event is tagged with its own name"


@facts
def test_a_fact_is_described(kind: type[Fact]) -> None:
    assert inspect.getdoc(kind) != inspect.getdoc(Fact), f"{kind.__name__} says nothing of what it means"


def test_facts_cannot_be_changed() -> None:
    verdict = Verdict("allowed")
    with pytest.raises(AttributeError, match="immutable type"):
        verdict.outcome = "refused"  # type: ignore[misc]


def test_facts_are_compared_by_value() -> None:
    alone = Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1))
    one, same = (PartitionChanged(TopicName("t"), 0, alone, alone, "") for _ in range(2))
    assert (one, hash(one)) == (same, hash(same))


@pytest.mark.parametrize(
    ("name", "key"), [("a", "a"), ("a.b", "a_b"), ("a_b", "a_b"), ("a.b_c.d", "a_b_c_d"), ("a-b", "a-b")]
)
def test_names_that_collide_share_a_shard(name: str, key: str) -> None:
    assert shard_key(name) == key


def test_placeholders_are_negative() -> None:
    assert [one for one in (-2, -1, 0, 1) if is_placeholder(one)] == [-2, -1]
