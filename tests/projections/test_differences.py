"""What is different between two moments is what two whole lists say, however far apart and however it is paged."""

from __future__ import annotations

import pytest

from projections.queries import differences
from projections.queries.differences import TopicDifference, change_of, topic_differences
from projections.queries.query import Ends, Questions, everything
from projections.views.rows import TopicRow
from tests.http.service import service

FAR, NEAR = 0, 20_000


def listed(query: Questions, end: int) -> dict[str, TopicRow]:
    return {row.name: row for row in query.parts[0].topics_at(end, "", 1000).rows}


def by_lists(query: Questions, start: int, end: int) -> set[TopicDifference]:
    before, after = listed(query, start), listed(query, end)
    both = ((name, before.get(name), after.get(name)) for name in before.keys() | after.keys())
    return {one for one in both if one[1] != one[2]}


def paged(query: Questions, start: Ends, end: Ends, limit: int) -> list[TopicDifference]:
    found: list[TopicDifference] = []
    after = ""
    while True:
        page, reached = topic_differences(query, start, end, after, limit, everything)
        found += page
        if reached is None:
            return found
        assert reached > after, "each page goes on"
        after = reached


@pytest.mark.parametrize("scanned_max", [FAR, NEAR])
async def test_differences_are_those_of_two_lists(scanned_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "SCANNED_MAX", scanned_max)
    monkeypatch.setattr(differences, "PASSED_MAX", 4)
    monkeypatch.setattr(differences, "FOLDED_MAX", 3)
    async with service() as one:
        for name in ("a.b", "c", "d", "e_f", "g", "h", "i"):
            await one.create(name, num_partitions=1)
        for name, again in (("a.b", "a_b"), ("c", "c"), ("e_f", "e.f"), ("h", None)):
            await one.request("DELETE", f"/v1/topics/{name}")
            await one.create(again or "refused", num_partitions=1)
        await one.create("d", 409)
        await one.request("PATCH", "/v1/topics/g", json={"num_partitions": 3})
        query, end = one.query, one.log.durable_offset
        moments = range(0, end, 3)
        changes = set()
        for start in moments:
            for until in (end, end - 7):
                found = paged(query, (start,), (until,), limit=2)
                names = [name for name, _, _ in found]
                assert len(names) == len(set(names)), f"from {start} to {until}"
                assert set(found) == (by_lists(query, start, until) if until > start else set()), f"{start} to {until}"
                changes |= {change_of(before, after) for _, before, after in found}
        assert changes == {"created", "deleted", "recreated", "changed"}
