"""Topics of the past are counted where they are few; that they are many the snapshot says, of which none is decoded."""

from __future__ import annotations

from unittest.mock import patch

from projections.queries import topic_lists
from projections.queries.query import Query, Questions
from projections.queries.topic_lists import counted_at
from tests.projections.test_snapshotting import commits_of, kept, story


def test_many_topics_are_not_counted_and_none_is_folded_to_find_that() -> None:
    with kept(10) as one:
        for commit in commits_of(story(60)):
            one.commit(commit)
            one.work()
        query, end = Questions([one.query]), one.log.durable_offset
        counted = counted_at(query, (end,))
        assert counted is not None
        there = len(one.query.topics_at(end, "", 1000).rows)
        assert counted.topics == there > 2
        with (
            patch.object(topic_lists, "TOPICS_MAX", 1),
            patch.object(Query, "topics_at", side_effect=AssertionError("they were looked at")),
        ):
            assert counted_at(query, (end,)) is None
